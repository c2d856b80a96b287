"""Shards that carry out some commands in another way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from msgspec.structs import astuple

from pinlater.server.storage.commands import Command
from pinlater.server.storage.interface import Store
from pinlater.server.storage.table import CommandTable, Operation, Table


def instead(shard: Store, kind: type[Command[Any]], operation: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
    """Returns a `submit` for the shard that carries out commands of this kind by `operation`, which gets their fields."""
    plain = shard.submit

    def submit(command: Command[Any]) -> Awaitable[Any]:
        return operation(*astuple(command)) if type(command) is kind else plain(command)

    return submit


def everywhere(
    monkeypatch: pytest.MonkeyPatch,
    shards: type[CommandTable],
    kind: type[Command[Any]],
    operation: Callable[..., Coroutine[Any, Any, Any]],
) -> None:
    """Has all shards of a class carry out commands of this kind by `operation(shard, *fields)` until the test ends."""
    patch_table: Callable[[Table, type[Command[Any]], Operation], None] = monkeypatch.setitem
    patch_table(shards.table, kind, operation)


@contextmanager
def replaced(shard: Store, kind: type[Command[Any]], operation: Callable[..., Awaitable[Any]]) -> Iterator[None]:
    """Has the shard carry out commands of this kind by `operation`, which gets their fields."""
    with patch.object(shard, "submit", instead(shard, kind, operation)):
        yield
