"""A shard on a file of the test's own, and short words for what these tests do with it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from itertools import count
from pathlib import Path

import pytest

from pinlater.domain.job import HandedOutJob, Holder, NewJob
from pinlater.server.storage.commands import ClaimJobs, CountJobs, FinishJobs, InsertJobs, create_queues
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
)

NOW = 1_767_225_600_000
QUEUE = "emails"
HOLDER = Holder("host:9010:0:worker:1", "worker", "token")


class Bench:
    """A shard with the queue `emails`. `monotonic`: the shard's, in seconds."""

    def __init__(self, path: Path, monotonic: Callable[[], float] = time.perf_counter) -> None:
        self.path = path
        self._monotonic = monotonic
        self.shard = SqliteShard(path)
        self._ids = count(1)

    async def open(self, settings: SqliteSettings | None = None) -> SqliteShard:
        self.shard = SqliteShard(self.path, settings, monotonic=self._monotonic)
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


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path / "jobs.db")
    await bench.open()
    yield bench
    await bench.shard.close()
