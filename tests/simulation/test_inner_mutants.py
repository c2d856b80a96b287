"""Defects that are built into a server with what only it knows: the database file of a shard, the reading of its clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pinlater.domain.clock import Clock
from pinlater.domain.errors import PinLaterError
from pinlater.server.sharding import agreed_time
from pinlater.server.storage.commands import InsertJobs
from pinlater.server.storage.interface import Store
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.server.storage.values import Inserted, InsertRequest
from tests.commands import everywhere
from tests.simulation.test_mutants import caught, caught_by_jumps

pytestmark = pytest.mark.timeout(900)  # the machine may be busy with other things


def forget_rows(monkeypatch: pytest.MonkeyPatch, table: str) -> None:
    """Makes each shard forget its request keys or its unique keys before it stores jobs."""
    plain = MemoryShard.table[InsertJobs]

    async def insert(
        shard: MemoryShard, requests: Sequence[InsertRequest], now_ms: int
    ) -> Sequence[Inserted | PinLaterError]:
        shard._open.connection.execute(f"DELETE FROM {table}")
        answers: Sequence[Inserted | PinLaterError] = await plain(shard, requests, now_ms)
        return answers

    everywhere(monkeypatch, MemoryShard, InsertJobs, insert)


def test_a_request_key_that_is_forgotten_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_rows(monkeypatch, "request_keys")
    assert caught() & {"DOUBLED", "STORED"}


def test_a_unique_key_that_is_forgotten_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_rows(monkeypatch, "unique_keys")
    assert "DUPLICATES" in caught()


def test_a_database_whose_clock_has_jumped_and_that_outvotes_the_servers_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """About one seed in forty finds it."""
    plain = agreed_time._look

    async def look(store: Store, clock: Clock) -> Any:
        answer = await plain(store, clock)
        return None if answer is None else answer._replace(of_servers=True)

    monkeypatch.setattr(agreed_time, "_look", look)
    assert "TWICE" in caught_by_jumps(monkeypatch)
