"""The write-ahead log: who copies it into the file, and how long it is."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pinlater.server.storage.commands import CountJobs
from pinlater.server.storage.sqlite.settings import SqliteSettings
from tests.sqlite.conftest import Bench

QUICK = SqliteSettings(checkpoint_interval_ms=40, wal_reserve_kib=256, wal_restart_pages=1)
DEADLINE_S = 30


def log_bytes(bench: Bench) -> int:
    return bench.path.with_name("jobs.db-wal").stat().st_size


async def cut(bench: Bench, *, busy: bool) -> None:
    """Waits until the log has its usual length. `busy`: while jobs are stored."""
    async with asyncio.timeout(DEADLINE_S):
        while log_bytes(bench) > 300_000:
            if busy:
                await bench.insert()
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
async def test_the_log_is_given_back_after_a_long_read(bench: Bench, busy: bool) -> None:
    """Nothing that was stored meanwhile can be copied while another program reads: a backup, or an operator."""
    await bench.shard.close()
    await bench.open(QUICK)
    with closing(sqlite3.connect(bench.path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        [[before]] = reader.execute("SELECT count(*) FROM jobs").fetchall()
        for _ in range(40):
            await bench.insert(100, body=bytes(1_000))
        assert log_bytes(bench) > 3_000_000
        assert reader.execute("SELECT count(*) FROM jobs").fetchall() == [(before,)]
        reader.execute("ROLLBACK")
        await cut(bench, busy=busy)
    assert await bench.pending() >= 4_000
    assert len(await bench.claim(5_000)) >= 4_000


async def test_the_log_stays_short_while_jobs_are_stored(bench: Bench) -> None:
    await bench.shard.close()
    await bench.open(QUICK)
    longest = stored = 0
    async with asyncio.timeout(DEADLINE_S):
        while stored < 100 or log_bytes(bench) >= longest:
            await bench.insert(100, body=bytes(1_000))
            stored += 1
            longest = max(longest, log_bytes(bench))
    assert await bench.pending() == 100 * stored


async def test_the_connection_that_commits_is_the_only_one_that_copies_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite before 3.51.3 can damage a file if a checkpoint begins on one connection while a commit of another one restarts the log."""
    statements: list[tuple[int, str]] = []
    connect = sqlite3.connect

    def connect_traced(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **options)
        connection.set_trace_callback(lambda text: statements.append((id(connection), text)))
        return connection

    def of(text: str) -> set[int]:
        return {connection for connection, statement in statements if statement.startswith(text)}

    monkeypatch.setattr(sqlite3, "connect", connect_traced)
    bench = Bench(tmp_path / "jobs.db")
    await bench.open(QUICK)
    async with asyncio.timeout(DEADLINE_S):
        while not of("PRAGMA wal_checkpoint"):
            await bench.insert()
            await asyncio.sleep(0.01)
    await bench.shard.submit(CountJobs())
    await bench.shard.close()
    assert len(of("COMMIT")) == 1
    assert of("PRAGMA wal_checkpoint") == of("COMMIT")
    assert not of("PRAGMA wal_autocheckpoint = 1")


async def test_the_log_of_the_server_names_the_version_of_sqlite(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    await bench.shard.close()
    with caplog.at_level(logging.INFO):
        await bench.open()
    assert f"SQLite {sqlite3.sqlite_version}" in caplog.text
