"""The row about a big store: the same work on an empty file and on one with millions of jobs waiting, not yet due and finished.

The big file is made once, through the store's own methods in this process, and kept; each run works on a copy.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from bench.raw_client import RawClient
from bench.results import Goal, RowResult, median_of
from bench.servers import Server
from bench.workplace import BODY, QUEUE, Run, Workplace, copy_store, remove_store
from pinlater.domain.clock import SystemClock
from pinlater.domain.ids import IdMaker
from pinlater.domain.job import Holder, NewJob
from pinlater.storage.interface import Ack, ClaimCall, Claimed, ClaimOrder, Inserted, InsertRequest, JobKey, Shard
from pinlater.storage.sqlite import SqliteShard

CHUNK = 5_000
FUTURE_MS = 30 * 24 * 3_600_000
SPREAD_MS = 24 * 3_600_000


def backlog(place: Workplace) -> RowResult:
    """Enqueue and claim rates on the big store over those on an empty one, in turn."""
    size = place.sizes.backlog
    full = place.folder / f"backlog-{size}.db"
    if not full.exists():
        place.say(f"  filling a store with {size:,} waiting, future and finished jobs each")
        make_full_store(full, size)
    runs = []
    copy = place.folder / "backlog-copy.db"
    for number in range(place.sizes.repeats):
        copy_store(full, copy)
        with place.pinlater() as empty, place.pinlater(copy) as big:
            runs.append(_figures(*_work(place, empty, big)))
        remove_store(copy)
        ratios = " ".join(f"{name} {value:.2f}" for name, value in runs[-1].items() if name.endswith("_ratio"))
        place.say(f"  run {number + 1}: {ratios}")
    title = f"claim and enqueue with {size:,} waiting, future and finished jobs each, against an empty store"
    figures = median_of(runs)
    # The worst of the medians: the median of each run's worst would pick the machine's mood, not the load that suffers.
    figures["worst_ratio"] = min(value for name, value in figures.items() if name.endswith("_ratio"))
    return RowResult("backlog", title, [Goal("worst_ratio", 0.85, 0.95)], figures, runs=list(runs))


def _work(place: Workplace, empty: Server, big: Server) -> tuple[dict[str, Run], dict[str, Run]]:
    """Four loads, each on one server and at once on the other, so that both meet the same mood of the machine.

    The server that isn't asked idles meanwhile. The empty store gets just the jobs that a claim run needs.
    """
    sizes = place.sizes
    on_empty: dict[str, Run] = {}
    on_big: dict[str, Run] = {}
    for name, connections, per_request, jobs in (
        ("single", 64, 1, sizes.claim_jobs_single),
        ("batched", 32, 50, sizes.claim_jobs_batched),
    ):
        with RawClient(empty.port) as client:
            client.enqueue_many(QUEUE, BODY, jobs)
        for server, runs in ((empty, on_empty), (big, on_big)):
            plan = replace(
                place.plan(server, "claim", connections, per_request), seconds=60.0, jobs_max=int(jobs * 0.9)
            )
            runs[f"claim_{name}"] = place.load(server, replace(plan, warmup_seconds=min(0.1, sizes.warmup_seconds)))
        for server, runs in ((empty, on_empty), (big, on_big)):
            plan = place.plan(server, "enqueue", connections, per_request)
            runs[f"enqueue_{name}"] = place.load(server, plan)
    return on_empty, on_big


def _figures(empty: dict[str, Run], big: dict[str, Run]) -> dict[str, float]:
    ratios = {f"{name}_ratio": big[name].report.rate / empty[name].report.rate for name in big}
    rates = {f"{name}_rate": run.report.rate for name, run in big.items()}
    return {**ratios, **rates}


def make_full_store(path: Path, size: int) -> None:
    """Makes the big store. A half-made one never gets the name."""
    unfinished = path.with_suffix(".unfinished")
    remove_store(unfinished)
    asyncio.run(fill(unfinished, size))
    copy_store(unfinished, path)
    remove_store(unfinished)


async def fill(path: Path, size: int) -> None:
    """Puts finished, then future, then waiting jobs into a new store.

    Future jobs are due at random times; waiting ones became due in the order in which they came, as where nobody names a time.
    """
    clock = SystemClock()
    async with _opened(path, clock) as shard:
        ids = IdMaker(clock, shard.slot)
        await shard.create_queues([QUEUE], clock.now_ms())
        await _finished_jobs(shard, ids, clock, size)
        now_ms, dice = clock.now_ms(), random.Random(size)  # the same seed makes every big store alike
        await _insert(shard, ids, clock, [now_ms + FUTURE_MS + dice.randrange(SPREAD_MS) for _ in range(size)])
        await _insert(shard, ids, clock, [now_ms - SPREAD_MS + number * SPREAD_MS // size for number in range(size)])


@asynccontextmanager
async def _opened(path: Path, clock: SystemClock) -> AsyncIterator[Shard]:
    shard: Shard = SqliteShard(path)
    await shard.open(clock.now_ms())
    try:
        yield shard
    finally:
        await shard.close()


async def _insert(shard: Shard, ids: IdMaker, clock: SystemClock, due_ms: Sequence[int]) -> None:
    """A job for each due time, in this order."""
    for start in range(0, len(due_ms), CHUNK):
        due = due_ms[start : start + CHUNK]
        jobs = [
            NewJob(job_id, BODY, 1, run_after_ms, 2)
            for job_id, run_after_ms in zip(ids.make(len(due)), due, strict=True)
        ]
        (answer,) = await shard.insert_jobs([InsertRequest(QUEUE, jobs)], clock.now_ms())
        assert isinstance(answer, Inserted), answer


async def _finished_jobs(shard: Shard, ids: IdMaker, clock: SystemClock, count: int) -> None:
    """Jobs that went the whole way."""
    holder = Holder("bench:0:0:bench:0", "bench", "bench")
    for start in range(0, count, CHUNK):
        size, now_ms = min(CHUNK, count - start), clock.now_ms()
        await _insert(shard, ids, clock, [now_ms] * size)
        order = ClaimOrder(QUEUE, [ClaimCall(size, holder, 1 << 30)], 600_000)
        (claimed,) = await shard.claim_jobs([order], clock.now_ms())
        assert isinstance(claimed, Claimed), claimed
        keys = [JobKey(QUEUE, job.priority, job.id) for job in claimed.jobs[0]]
        assert len(keys) == size, f"{len(keys)} of {size} claimed"
        await shard.finish_jobs([Ack(key, succeeded=True) for key in keys], clock.now_ms())
