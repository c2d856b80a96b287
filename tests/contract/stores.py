"""The stores that must pass the contract suite. A new one adds a function and a line in `STORES`.

A function is given an empty folder of the test's own and makes an unopened shard on it. Called again with the same folder, it gives
a shard on the same data: that is how durable stores are opened again. A store with a server makes its database's name from the
folder's. It raises `StoreMissing` where it can't run here; that skips the test, but fails it where the environment says `CI`.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pinlater.storage.interface import Shard
from pinlater.storage.memory import MemoryShard


class StoreMissing(Exception):
    """This store can't be run on this machine; the text says what is wanting."""


def _memory(folder: Path) -> Shard:
    return MemoryShard()


def _sqlite(folder: Path) -> Shard:
    try:
        sqlite = importlib.import_module("pinlater.storage.sqlite")
    except ModuleNotFoundError as error:
        if error.name != "pinlater.storage.sqlite":
            raise
        raise StoreMissing("the SQLite store is not there yet") from error
    # Hundreds of stores are opened in a run: each log of the usual length would write gigabytes in all.
    shard: Shard = sqlite.SqliteShard(folder / "jobs.db", sqlite.SqliteSettings(wal_reserve_kib=64))
    return shard


STORES: dict[str, Callable[[Path], Shard]] = {
    "memory": _memory,
    "sqlite": _sqlite,
}


def make_store(kind: str, folder: Path) -> Shard:
    """An unopened shard on `folder`; skips or fails the test where there is no such store here."""
    try:
        return STORES[kind](folder)
    except StoreMissing as missing:
        if os.environ.get("CI"):
            pytest.fail(f"store {kind} must be tested here: {missing}")
        pytest.skip(str(missing))
