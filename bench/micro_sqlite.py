"""Microseconds a job of the SQLite store alone: insert, claim and ack at several jobs a call, quiet and beside a loop that is never idle.

    python bench/micro_sqlite.py [--folder PATH] [--jobs N]

Every call is one transaction here, because nothing else is under way; in the server the calls of all lanes share one.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

import uvloop

from pinlater.domain.clock import SystemClock
from pinlater.domain.ids import IdMaker
from pinlater.domain.job import Holder
from pinlater.server.storage.commands import ClaimJobs, FinishJobs, InsertJobs, create_queues
from pinlater.server.storage.sqlite.settings import SqliteSettings
from pinlater.server.storage.sqlite.shard import SqliteShard
from pinlater.server.storage.values import ClaimCall, Claimed, ClaimOrder, InsertRequest, JobAck, JobKey, NewJob

BODY = b"x" * 100


async def burn(stop: asyncio.Event) -> None:
    """Keeps the loop busy in 50 microsecond pieces."""
    while not stop.is_set():
        until = time.perf_counter() + 50e-6
        while time.perf_counter() < until:
            pass
        await asyncio.sleep(0)


async def measure(folder: str, size: int, jobs: int, *, busy: bool, inline_us: int) -> None:
    clock = SystemClock()
    shard = SqliteShard(Path(folder) / f"{size}-{busy}-{inline_us}.db", SqliteSettings(inline_commit_us=inline_us))
    await shard.open(clock.now_ms())
    await shard.submit(create_queues(["q"], clock.now_ms()))
    ids = IdMaker(clock, 0, shard.highest_id)
    stop = asyncio.Event()
    burner = asyncio.create_task(burn(stop)) if busy else None
    spent = [0.0, 0.0, 0.0]
    cpu = time.thread_time()
    for done in range(0, jobs, size):
        now = clock.now_ms()
        new = [NewJob(job_id, BODY, 1, now, 2) for job_id in ids.make(size)]
        holder = Holder("127.0.0.1:9010:1767225600000:source:12", "source", f"{done:032x}")
        started = time.perf_counter()
        await shard.submit(InsertJobs([InsertRequest("q", new)], now))
        inserted = time.perf_counter()
        [got] = await shard.submit(ClaimJobs([ClaimOrder("q", [ClaimCall(size, holder)], 600_000)], now))
        assert isinstance(got, Claimed)
        claimed = time.perf_counter()
        acks = [JobAck(JobKey("q", 1, job.id), True, holder.token) for job in got.jobs[0]]
        before_ack = time.perf_counter()
        await shard.submit(FinishJobs(acks, now))
        acked = time.perf_counter()
        for index, took in enumerate((inserted - started, claimed - inserted, acked - before_ack)):
            spent[index] += took
    cpu = time.thread_time() - cpu
    stop.set()
    if burner:
        await burner
    await shard.close()
    each = [took / jobs * 1e6 for took in spent]
    kind = "busy" if busy else "quiet"
    figures = "".join(f"{took:9.2f}" for took in (*each, sum(each), cpu / jobs * 1e6))
    print(f"{kind:6}{inline_us:>7}{size:>6}{figures}")


async def main(folder: str, jobs: int) -> None:
    print(
        f"{'loop':6}{'inline':>7}{'jobs':>6}{'insert':>9}{'claim':>9}{'ack':>9}{'all':>9}{'loop cpu':>9}{'loop cpu':>9}  us a job"
    )
    for busy in (False, True):
        for inline_us in (0, 150, 100_000):
            for size, share in ((1, 40), (64, 2), (256, 1), (1000, 1)):
                await measure(
                    folder, size, max(size, jobs // share // (8 if busy else 1)), busy=busy, inline_us=inline_us
                )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", default=None, help="where the files go; a temporary folder if not given")
    parser.add_argument("--jobs", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        uvloop.run(main(temporary, options.jobs))
