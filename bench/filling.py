"""Fills a store with jobs through its own methods in this process, without a server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from bench.benchmark_run import BODY, QUEUE
from pinlater.domain.clock import Clock
from pinlater.domain.ids import IdMaker
from pinlater.domain.job import Holder
from pinlater.server.storage.commands import ClaimJobs, FinishJobs, InsertJobs, create_queues
from pinlater.server.storage.interface import Shard
from pinlater.server.storage.values import (
    ClaimCall,
    Claimed,
    ClaimOrder,
    Inserted,
    InsertRequest,
    JobAck,
    JobKey,
    NewJob,
)

CHUNK = 5_000
_HOLDER = Holder("bench:0:0:bench:0", "bench", "bench")


class Filler:
    """Puts jobs into the benchmark's queue of an open shard, at the time that `clock` tells."""

    def __init__(self, shard: Shard, clock: Clock) -> None:
        self._shard = shard
        self._clock = clock
        self._ids = IdMaker(clock, shard.slot)

    async def waiting(self, due_ms: Sequence[int]) -> None:
        """A job for each due time, in this order."""
        for start in range(0, len(due_ms), CHUNK):
            due = due_ms[start : start + CHUNK]
            jobs = [
                NewJob(job_id, BODY, 1, run_after_ms, 2)
                for job_id, run_after_ms in zip(self._ids.make(len(due)), due, strict=True)
            ]
            (answer,) = await self._shard.submit(InsertJobs([InsertRequest(QUEUE, jobs)], self._clock.now_ms()))
            assert isinstance(answer, Inserted), answer

    async def finished(self, count: int) -> None:
        """Jobs that went the whole way."""
        for start in range(0, count, CHUNK):
            size, now_ms = min(CHUNK, count - start), self._clock.now_ms()
            await self.waiting([now_ms] * size)
            await self.finish_waiting(size)

    async def finish_waiting(self, count: int) -> None:
        """Finishes the next jobs of those that wait, up to this number."""
        while count:
            keys = await self.claim(min(CHUNK, count))
            await self.finish(keys)
            count -= len(keys)

    async def claim(self, limit: int) -> list[JobKey]:
        """As many as the store gives at once, one at least."""
        order = ClaimOrder(QUEUE, [ClaimCall(limit, _HOLDER, 1 << 30)], 600_000)
        (claimed,) = await self._shard.submit(ClaimJobs([order], self._clock.now_ms()))
        assert isinstance(claimed, Claimed), claimed
        keys = [JobKey(QUEUE, job.priority, job.id) for job in claimed.jobs[0]]
        assert keys, f"none claimed, {limit} to come"
        return keys

    async def finish(self, keys: Sequence[JobKey]) -> None:
        """Acks claimed jobs."""
        await self._shard.submit(FinishJobs([JobAck(key, succeeded=True) for key in keys], self._clock.now_ms()))


@asynccontextmanager
async def filling(shard: Shard, clock: Clock) -> AsyncIterator[Filler]:
    """Opens the shard, with the queue made, and closes it."""
    await shard.open(clock.now_ms())
    try:
        await shard.submit(create_queues([QUEUE], clock.now_ms()))
        yield Filler(shard, clock)
    finally:
        await shard.close()
