"""The row about garbage: the longest wait of a request while a million finished jobs are collected.

The jobs were finished some days ago, so a server begins to collect them as soon as it runs, and their bodies' partitions are dropped
when it is done. Meanwhile one connection enqueues, claims and acks, a hundred times a second. A stall of the server, however short it
is and whatever caused it, is the wait of the request that met it; so the same on an empty store, beside it, says what the machine does.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from array import array
from collections.abc import Callable

from bench import frames
from bench.benchmark_run import BODY, QUEUE, BenchmarkRun
from bench.filling import CHUNK, filling
from bench.load import percentiles_ms
from bench.mysql_stores import MysqlStore
from bench.raw_client import RawClient
from bench.results import RowResult, median_of
from bench.servers import PinLaterServer
from pinlater.domain.clock import ManualClock, SystemClock

ROUND_SECONDS = 0.01
LOOK_SECONDS = 0.5
COLLECTED_SECONDS_MAX = 600.0
_HOUR_MS = 3_600_000
# Finished longer ago than the default time to live of a day, over a day, so in several partitions.
_FROM_HOURS, _TO_HOURS = 54, 30
_COLLECTED = re.compile(rf'^pinlater_jobs_succeeded_collected_total{{queue="{QUEUE}"}} (\S+)$', re.MULTILINE)


def garbage(place: BenchmarkRun) -> RowResult:
    """A light load on an empty store, then on one with its garbage."""
    count = place.sizes.garbage
    runs = []
    for _ in range(max(1, place.sizes.repeats - 2)):
        with place.pinlater() as server:
            ends = time.monotonic() + place.sizes.quiet_seconds
            quiet, _seconds = light_load(server, lambda: time.monotonic() >= ends)  # noqa: B023 called at once
        store = place.mysql.new()
        place.say(f"  filling a store with {count:,} finished jobs")
        asyncio.run(fill(store, count))
        store.settle()
        with place.pinlater(store) as server:
            waits, seconds = light_load(server, lambda: collected(server) >= count)
        store.remove()
        of_waits, of_quiet = percentiles_ms(waits), percentiles_ms(quiet)
        runs.append(
            {
                "longest_wait_ms": of_waits["max"],
                "p99_ms": of_waits["p99"],
                "p50_ms": of_waits["p50"],
                "collected_per_s": count / seconds,
                "quiet_longest_wait_ms": of_quiet["max"],
                "quiet_p99_ms": of_quiet["p99"],
            }
        )
    figures = median_of(runs)
    references = {name: figures.pop(name) for name in list(figures) if name.startswith("quiet_")}
    title = f"collecting {count:,} finished jobs: the longest wait of a request under a light load"
    return RowResult("garbage", title, place.goals("garbage"), figures, references, runs=list(runs))


def light_load(server: PinLaterServer, is_over: Callable[[], bool]) -> tuple[array[float], float]:
    """Each request's wait until `is_over`, which is asked twice a second, and how long that took. All in seconds."""
    waits, acks = array("d"), frames.AckMaker(QUEUE)
    enqueue, dequeue = frames.enqueue(QUEUE, [BODY]), frames.dequeue(QUEUE, 1)
    pause, started = threading.Event(), time.monotonic()
    look_at = started

    def call(frame: bytes) -> bytes:
        asked = time.perf_counter()
        reply = client.call(frame)
        waits.append(time.perf_counter() - asked)
        return reply

    with RawClient(server.port) as client:
        while True:
            call(enqueue)
            claimed = frames.claimed_descriptors(call(dequeue))
            if claimed:
                call(acks.frame(claimed))
            now = time.monotonic()
            if now >= look_at:
                if is_over():
                    return waits, now - started
                if now > started + COLLECTED_SECONDS_MAX:
                    raise RuntimeError(f"not collected within {COLLECTED_SECONDS_MAX:.0f} s")
                look_at = now + LOOK_SECONDS
            pause.wait(ROUND_SECONDS)


def collected(server: PinLaterServer) -> int:
    """How many finished jobs the server has thrown away since its start."""
    found = _COLLECTED.search(server.get("/metrics"))
    return int(float(found.group(1))) if found else 0


async def fill(store: MysqlStore, count: int) -> None:
    """Finished jobs of days ago: a clock that is set back says so, and goes on between the chunks."""
    now_ms = SystemClock().now_ms()
    clock = ManualClock(now_ms - _FROM_HOURS * _HOUR_MS)
    step_ms = (_FROM_HOURS - _TO_HOURS) * _HOUR_MS * CHUNK // max(CHUNK, count)
    shard = store.first_shard()
    async with filling(shard, clock) as filler:
        for start in range(0, count, CHUNK):
            await filler.finished(min(CHUNK, count - start))
            clock.advance(ms=step_ms)
            await shard.keep_partitions(clock.now_ms())
