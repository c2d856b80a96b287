"""The row about memory: how many bytes of Redis' a waiting job of 100 bytes takes, and a claimed and a finished one.

By Redis' own count of what it has allocated, before and after; so what indexes, keys and the allocator's rounding take is all in it.
"""

from __future__ import annotations

import asyncio

from bench.benchmark_run import BODY, BenchmarkRun
from bench.filling import CHUNK, filling
from bench.redis_stores import RedisStore
from bench.results import RowResult, median_of
from pinlater.domain.clock import SystemClock
from pinlater.server.storage.values import JobKey


def memory(place: BenchmarkRun) -> RowResult:
    """A new store, filled through its own methods in this process."""
    jobs = place.sizes.memory_jobs
    runs = []
    for _ in range(max(1, place.sizes.repeats - 2)):
        store = place.redis.new()
        runs.append(asyncio.run(_figures(store, jobs)))
        store.remove()
    title = f"memory a job of {len(BODY)} bytes takes, of {jobs:,} in one queue"
    return RowResult("memory", title, place.goals("memory"), median_of(runs), runs=list(runs))


async def _figures(store: RedisStore, jobs: int) -> dict[str, float]:
    clock = SystemClock()
    async with filling(store.shard(), clock) as filler:
        empty = store.used_bytes()
        now_ms = clock.now_ms()
        await filler.waiting([now_ms - (jobs - number) // 10 for number in range(jobs)])
        waiting = store.used_bytes()
        keys: list[JobKey] = []
        while len(keys) < jobs:
            keys += await filler.claim(CHUNK)
        claimed = store.used_bytes()
        for start in range(0, jobs, CHUNK):
            await filler.finish(keys[start : start + CHUNK])
        finished = store.used_bytes()
    return {
        "bytes_a_waiting_job": (waiting - empty) / jobs,
        "bytes_a_claimed_job": (claimed - empty) / jobs,
        "bytes_a_finished_job": (finished - empty) / jobs,
    }
