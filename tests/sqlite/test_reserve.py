"""The write-ahead log has its length from the start, and never takes the last space on a disk for it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pinlater.server.storage.sqlite.settings import SqliteSettings
from tests.sqlite.conftest import Bench

RESERVE = SqliteSettings(wal_reserve_kib=2_048)


def log_bytes(bench: Bench) -> int:
    return bench.path.with_name("jobs.db-wal").stat().st_size


async def test_the_log_is_as_long_as_it_will_be(bench: Bench) -> None:
    """A flush of a file that grows takes twice as long."""
    await bench.shard.close()
    await bench.open(RESERVE)
    before = log_bytes(bench)
    assert before >= 2_048 * 1024
    await bench.insert(100)
    assert log_bytes(bench) == before


async def test_zeros_at_its_end_are_no_jobs(bench: Bench, tmp_path: Path) -> None:
    """SQLite's own recovery reads what a crash leaves, and stops at the first thing that is no frame."""
    await bench.shard.close()
    await bench.open(RESERVE)
    await bench.insert(25)
    crashed = tmp_path / "crashed.db"
    shutil.copy(bench.path, crashed)
    shutil.copy(bench.path.with_name("jobs.db-wal"), tmp_path / "crashed.db-wal")
    after = Bench(crashed)
    await after.open(RESERVE)
    assert await after.pending() == 25
    assert len(await after.claim(100)) == 25
    await after.shard.close()


async def test_the_reserve_does_not_take_the_last_disk_space(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    await bench.shard.close()
    usage = shutil.disk_usage(bench.path.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=3_000_000))
    await bench.open(RESERVE)
    assert log_bytes(bench) < 2_048 * 1024
    await bench.insert()
