"""The row about a busy event loop: what the SQLite store does from 64 tasks alone, and beside a task that always reschedules itself.

A store that works in a thread of its own can look fine alone and starve for seconds beside a loop that never idles (the driver takes
the interpreter's lock anew for each row). `python -m bench.busy_loop FILE JOBS` prints both as JSON, in a process of its own.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from array import array
from pathlib import Path

import uvloop

from bench.benchmark_run import BODY, QUEUE, BenchmarkRun
from bench.load import percentiles_ms
from bench.results import RowResult, median_of
from bench.sqlite_stores import SqliteStore
from pinlater.domain.clock import SystemClock
from pinlater.domain.job import Holder
from pinlater.server.sharding.shards import ClaimRequest, ShardLanes
from pinlater.server.storage.commands import create_queues
from pinlater.server.storage.sqlite.shard import SqliteShard
from pinlater.server.storage.values import ClaimCall, InsertRequest, JobAck, JobKey, NewJob

TASKS = 64


def busy_loop(place: BenchmarkRun) -> RowResult:
    """Ratio of the rates, and the slowest job beside a busy loop."""
    runs = []
    for _ in range(max(1, place.sizes.repeats - 2)):
        path = place.folder / "busy-loop.db"
        command = [sys.executable, "-m", "bench.busy_loop", str(path), str(place.sizes.busy_jobs)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        SqliteStore(path).remove()
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        runs.append(json.loads(done.stdout))
    title = f"insert + claim + ack from {TASKS} tasks beside a loop that is never idle, against an idle one"
    return RowResult("busy_loop", title, place.goals("busy_loop"), median_of(runs), runs=list(runs))


async def _one_task(lanes: ShardLanes, clock: SystemClock, jobs: int, latencies: array[float]) -> None:
    """Jobs one after another, each through insert, claim and ack; the time of all three together counts."""
    holder = Holder("bench:0:0:bench:0", "bench", "bench")
    for _ in range(jobs):
        started = clock.monotonic()
        (job_id,) = lanes.ids.make(1)
        job = NewJob(job_id, BODY, 1, clock.now_ms(), 2)
        await lanes.insert.submit(InsertRequest(QUEUE, [job]))
        claimed = await lanes.claim.submit(ClaimRequest(QUEUE, ClaimCall(1, holder), 600_000))
        acks = [JobAck(JobKey(QUEUE, each.priority, each.id), succeeded=True) for each in claimed.jobs[0]]
        if acks:
            await lanes.finish.submit(acks)
        latencies.append(clock.monotonic() - started)


async def _work(path: Path, jobs: int, *, busy: bool) -> dict[str, float]:
    """The rate and the latencies of all tasks together."""
    SqliteStore(path).remove()
    clock = SystemClock()
    shard = SqliteShard(path)
    await shard.open(clock.now_ms())
    await shard.submit(create_queues([QUEUE], clock.now_ms()))
    lanes, latencies = ShardLanes(shard, clock), array("d")
    hog = asyncio.create_task(_never_idle()) if busy else None
    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(TASKS):
            group.create_task(_one_task(lanes, clock, max(1, jobs // TASKS), latencies))
    seconds = time.perf_counter() - started
    if hog is not None:
        hog.cancel()
    await lanes.close()
    prefix = "busy" if busy else "idle"
    figures = {f"{prefix}_{name}_ms": value for name, value in percentiles_ms(latencies).items()}
    return {f"{prefix}_rate": len(latencies) / seconds, **figures}


async def _never_idle() -> None:
    """A task that always reschedules itself, with a little work each time: a loop under full load."""
    while True:
        sum(range(50))
        await asyncio.sleep(0)


def main() -> None:
    """Both measurements, as JSON."""
    path, jobs = Path(sys.argv[1]), int(sys.argv[2])
    figures = uvloop.run(_work(path, jobs, busy=False))
    figures |= uvloop.run(_work(path, jobs, busy=True))
    figures["busy_ratio"] = figures["busy_rate"] / figures["idle_rate"]
    json.dump(figures, sys.stdout)


if __name__ == "__main__":
    main()
