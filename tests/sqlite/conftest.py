"""A shard on a file of the test's own, and short words for what these tests do with it."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import pytest

from pinlater.domain.job import HandedOutJob, Holder
from pinlater.server.storage.commands import ClaimJobs, CountJobs, FinishJobs, InsertJobs, create_queues
from pinlater.server.storage.sqlite import shard as shard_module
from pinlater.server.storage.sqlite.connection import connect
from pinlater.server.storage.sqlite.settings import SqliteSettings
from pinlater.server.storage.sqlite.shard import SqliteShard
from pinlater.server.storage.values import (
    Acked,
    ClaimCall,
    Claimed,
    ClaimOrder,
    Inserted,
    InsertRequest,
    JobAck,
    JobKey,
    NewJob,
)

NOW = 1_767_225_600_000
QUEUE = "emails"
HOLDER = Holder("host:9010:0:worker:1", "worker", "token")


class Disk:
    """What a shard's writer asks for, which fails where a test wants it to.

    `fails(statement)`: the error of a statement of a transaction, or None; it is called in the thread that executes the statement.
    `connection`: the writer's own, which never fails. `committing`: set once a COMMIT was asked for.
    """

    def __init__(self) -> None:
        self.fails: Callable[[str], sqlite3.Error | None] = lambda _: None
        self.connection: sqlite3.Connection
        self.committing = threading.Event()

    def connect(self, path: Path, settings: SqliteSettings) -> sqlite3.Connection:
        """Takes the place of `connection.connect` for the writer."""
        self.connection = connect(path, settings)
        return cast(sqlite3.Connection, FaultyConnection(self))

    def works(self) -> None:
        """Nothing fails any more."""
        self.fails = lambda _: None


class FaultyConnection:
    """A connection whose cursors fail where the disk does."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def cursor(self) -> FaultyCursor:
        return FaultyCursor(self._disk)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk.connection, name)


class FaultyCursor:
    """A cursor that fails where the disk does."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._real = disk.connection.cursor()

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        if statement == "COMMIT":
            self._disk.committing.set()
        error = self._disk.fails(statement)
        if error is not None:
            raise error
        return self._real.execute(statement, *values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class Bench:
    """A shard with the queue `emails`, on a `disk`. `monotonic`: the shard's, in seconds."""

    def __init__(self, path: Path, monotonic: Callable[[], float] = time.perf_counter) -> None:
        self.path = path
        self._monotonic = monotonic
        self.shard = SqliteShard(path)
        self.disk = Disk()
        self._ids = count(1)

    async def open(self, settings: SqliteSettings | None = None) -> SqliteShard:
        self.shard = SqliteShard(self.path, settings, monotonic=self._monotonic)
        with patch.object(shard_module, "connect", self.disk.connect):
            await self.shard.open(NOW)
        self._ids = count(self.shard.highest_id + 1)
        await self.shard.submit(create_queues([QUEUE], NOW))
        return self.shard

    def jobs(self, number: int, *, body: bytes = b"hello", run_after_ms: int = NOW) -> list[NewJob]:
        return [NewJob(next(self._ids), body, 1, run_after_ms, 2) for _ in range(number)]

    async def insert(self, number: int = 1, *, body: bytes = b"hello", run_after_ms: int = NOW) -> list[JobKey]:
        jobs = self.jobs(number, body=body, run_after_ms=run_after_ms)
        [result] = await self.shard.submit(InsertJobs([InsertRequest(QUEUE, jobs)], NOW))
        assert isinstance(result, Inserted), result
        return [JobKey(QUEUE, 1, job.id) for job in jobs]

    async def claim(self, limit: int = 1, now_ms: int = NOW) -> list[HandedOutJob]:
        order = ClaimOrder(QUEUE, [ClaimCall(limit, HOLDER)], 60_000, from_memory=True)
        [result] = await self.shard.submit(ClaimJobs([order], now_ms))
        assert isinstance(result, Claimed), result
        return list(result.jobs[0])

    async def succeed(self, *keys: JobKey) -> list[Acked]:
        return list(await self.shard.submit(FinishJobs([JobAck(key, True) for key in keys], NOW)))

    async def pending(self) -> int:
        return sum(row.counts.pending for row in await self.shard.submit(CountJobs([QUEUE])))


class BrokenJobs(list[NewJob]):
    """Jobs that raise when the transaction of `disk` goes over them, as a bug does; `then` happens before."""

    def __init__(self, jobs: Iterable[NewJob], disk: Disk, then: Callable[[], object]) -> None:
        super().__init__(jobs)
        self._disk = disk
        self._then = then

    def __iter__(self) -> Iterator[NewJob]:
        if self._disk.connection.in_transaction:
            self._then()
            raise ZeroDivisionError("a bug")
        return super().__iter__()


async def insert_by_a_bug(bench: Bench, then: Callable[[], object] = lambda: None) -> None:
    """An insert that raises ZeroDivisionError in its transaction; `then` happens before."""
    request = InsertRequest(QUEUE, BrokenJobs(bench.jobs(1), bench.disk, then))
    await bench.shard.submit(InsertJobs([request], NOW))


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path / "jobs.db")
    await bench.open()
    yield bench
    await bench.shard.close()
