"""The row about a big store: the same work on an empty file and on one with millions of jobs waiting, not yet due and finished.

The big file is made once, through the store's own methods in this process, and kept; each run works on a copy.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
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
_SPREAD_MS = 24 * 3_600_000


def backlog(place: Workplace) -> RowResult:
    """Enqueue and claim rates on the big store over those on an empty one, in turn."""
    size = place.sizes.backlog
    full = place.folder / f"backlog-{size}.db"
    if not full.exists():
        place.say(f"  filling a store with {size:,} waiting, future and finished jobs each")
        make_full_store(full, size)
    runs = []
    for number in range(place.sizes.repeats):
        with _started(place, None) as server:
            empty = _work(place, server, fill_first=True)
        copy = place.folder / "backlog-copy.db"
        copy_store(full, copy)
        with _started(place, copy) as server:
            big = _work(place, server, fill_first=False)
        remove_store(copy)
        place.say(f"  run {number + 1}: {_ratios(big, empty)}")
        runs.append(_figures(big, empty))
    title = f"claim and enqueue with {size:,} waiting, future and finished jobs each, against an empty store"
    return RowResult("backlog", title, [Goal("worst_ratio", 0.85, 0.95)], median_of(runs), runs=list(runs))


@contextmanager
def _started(place: Workplace, store: Path | None) -> Iterator[Server]:
    with place.pinlater(store) as server:
        yield server


def _work(place: Workplace, server: Server, *, fill_first: bool) -> dict[str, Run]:
    """Four loads on one server. An empty store gets just the jobs that the claims need."""
    sizes = place.sizes
    runs = {}
    for name, connections, per_request, jobs in (
        ("single", 64, 1, sizes.claim_jobs_single),
        ("batched", 32, 50, sizes.claim_jobs_batched),
    ):
        if fill_first:
            with RawClient(server.port) as client:
                client.enqueue_many(QUEUE, BODY, jobs)
        claim = place.plan(server, "claim", connections, per_request)
        claim = replace(claim, seconds=60.0, warmup_seconds=min(0.1, sizes.warmup_seconds), jobs_max=int(jobs * 0.9))
        runs[f"claim_{name}"] = place.load(server, claim)
    for name, connections, per_request in (("single", 64, 1), ("batched", 32, 50)):
        runs[f"enqueue_{name}"] = place.load(server, place.plan(server, "enqueue", connections, per_request))
    return runs


def _ratios(big: dict[str, Run], empty: dict[str, Run]) -> dict[str, float]:
    return {f"{name}_ratio": round(big[name].report.rate / empty[name].report.rate, 3) for name in big}


def _figures(big: dict[str, Run], empty: dict[str, Run]) -> dict[str, float]:
    ratios = _ratios(big, empty)
    rates = {f"{name}_rate": run.report.rate for name, run in big.items()}
    return {"worst_ratio": min(ratios.values()), **ratios, **rates}


def make_full_store(path: Path, size: int) -> None:
    """Makes the big store. A half-made one never gets the name."""
    unfinished = path.with_suffix(".unfinished")
    remove_store(unfinished)
    asyncio.run(fill(unfinished, size))
    copy_store(unfinished, path)
    remove_store(unfinished)


async def fill(path: Path, size: int) -> None:
    """Puts finished, then future, then waiting jobs into a new store."""
    clock = SystemClock()
    async with _opened(path, clock) as shard:
        ids = IdMaker(clock, shard.slot)
        await shard.create_queues([QUEUE], clock.now_ms())
        await _finished_jobs(shard, ids, clock, size)
        now_ms = clock.now_ms()
        await _insert(shard, ids, clock, size, (now_ms + FUTURE_MS, now_ms + FUTURE_MS + _SPREAD_MS))
        await _insert(shard, ids, clock, size, (now_ms - _SPREAD_MS, now_ms))


@asynccontextmanager
async def _opened(path: Path, clock: SystemClock) -> AsyncIterator[Shard]:
    shard: Shard = SqliteShard(path)
    await shard.open(clock.now_ms())
    try:
        yield shard
    finally:
        await shard.close()


async def _insert(shard: Shard, ids: IdMaker, clock: SystemClock, count: int, due: tuple[int, int]) -> None:
    """Jobs due at random times between `due`'s two; a fixed seed makes every big store alike."""
    dice = random.Random(count)
    for start in range(0, count, CHUNK):
        jobs = [NewJob(each, BODY, 1, dice.randint(*due), 2) for each in ids.make(min(CHUNK, count - start))]
        (answer,) = await shard.insert_jobs([InsertRequest(QUEUE, jobs)], clock.now_ms())
        assert isinstance(answer, Inserted), answer


async def _finished_jobs(shard: Shard, ids: IdMaker, clock: SystemClock, count: int) -> None:
    """Jobs that went the whole way."""
    holder = Holder("bench:0:0:bench:0", "bench", "bench")
    for start in range(0, count, CHUNK):
        size, now_ms = min(CHUNK, count - start), clock.now_ms()
        await _insert(shard, ids, clock, size, (now_ms, now_ms))
        order = ClaimOrder(QUEUE, [ClaimCall(size, holder, 1 << 30)], 600_000)
        (claimed,) = await shard.claim_jobs([order], clock.now_ms())
        assert isinstance(claimed, Claimed), claimed
        keys = [JobKey(QUEUE, job.priority, job.id) for job in claimed.jobs[0]]
        assert len(keys) == size, f"{len(keys)} of {size} claimed"
        await shard.finish_jobs([Ack(key, succeeded=True) for key in keys], clock.now_ms())
