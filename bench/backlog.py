"""The row about a big store: the same work on an empty one and on one with millions of jobs waiting, not yet due and finished.

The big store is made once, through the store's own methods in this process.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

from bench.benchmark_run import BODY, QUEUE, BenchmarkRun, MeasuredRun
from bench.filling import filling
from bench.raw_client import RawClient
from bench.results import RowResult, median_of
from bench.servers import PinLaterServer
from bench.stores import BenchmarkStore
from pinlater.domain.clock import SystemClock
from pinlater.server.storage.interface import Shard

FUTURE_MS = 30 * 24 * 3_600_000
SPREAD_MS = 24 * 3_600_000


def backlog(place: BenchmarkRun) -> RowResult:
    """Enqueue and claim rates on the big store over those on an empty one, in turn."""
    size = place.sizes.backlog

    def prepare(store: BenchmarkStore) -> None:
        place.say(f"  filling a store with {size:,} waiting, future and finished jobs each")
        fill(store, size)

    runs = []
    for number in range(place.sizes.repeats):
        full = place.stores.prepared(f"backlog-{size}", prepare)
        with place.pinlater() as empty, place.pinlater(full) as big:
            runs.append(_figures(*_work(place, empty, big)))
        full.remove()
        ratios = " ".join(f"{name} {value:.2f}" for name, value in runs[-1].items() if name.endswith("_ratio"))
        place.say(f"  run {number + 1}: {ratios}")
    title = f"claim and enqueue with {size:,} waiting, future and finished jobs each, against an empty store"
    figures = median_of(runs)
    # The worst of the medians: the median of each run's worst would pick the machine's mood, not the load that suffers.
    figures["worst_ratio"] = min(value for name, value in figures.items() if name.endswith("_ratio"))
    return RowResult("backlog", title, place.goals("backlog"), figures, runs=list(runs))


def _work(
    place: BenchmarkRun, empty: PinLaterServer, big: PinLaterServer
) -> tuple[dict[str, MeasuredRun], dict[str, MeasuredRun]]:
    """Four loads, each on one server and at once on the other, so that both meet the same mood of the machine.

    The server that isn't asked idles meanwhile. The empty store gets just the jobs that a claim run needs.
    """
    sizes = place.sizes
    on_empty: dict[str, MeasuredRun] = {}
    on_big: dict[str, MeasuredRun] = {}
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


def _figures(empty: dict[str, MeasuredRun], big: dict[str, MeasuredRun]) -> dict[str, float]:
    ratios = {f"{name}_ratio": big[name].report.rate / empty[name].report.rate for name in big}
    rates = {f"{name}_rate": run.report.rate for name, run in big.items()}
    return {**ratios, **rates}


def fill(store: BenchmarkStore, size: int) -> None:
    """Puts finished, then future, then waiting jobs into a new store.

    Future jobs are due at random times; waiting ones became due in the order in which they came, as without explicit times.
    """
    asyncio.run(_fill(store.shard(), size))


async def _fill(shard: Shard, size: int) -> None:
    clock = SystemClock()
    async with filling(shard, clock) as filler:
        await filler.finished(size)
        now_ms, dice = clock.now_ms(), random.Random(size)  # the same seed makes every big store alike
        await filler.waiting([now_ms + FUTURE_MS + dice.randrange(SPREAD_MS) for _ in range(size)])
        await filler.waiting([now_ms - SPREAD_MS + number * SPREAD_MS // size for number in range(size)])
