"""A worker's memory after many jobs is the same as after some, however they ended.

`PINLATER_WORKER_JOBS=1000000 .venv/bin/pytest tests/worker/process/test_memory.py -s` takes minutes and prints the memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pinlater.client import AsyncClient, Job, JobState
from pinlater.supervision.resident_memory import resident_bytes
from pinlater.testing import RealServer
from pinlater.worker import Reject, Snooze, Worker, WorkerSettings, current_job
from tests.worker.conftest import eventually
from tests.worker.test_worker import running

JOBS = int(os.environ.get("PINLATER_WORKER_JOBS", "6000"))
WARM_UP = max(2_000, min(50_000, JOBS // 4))
A_REQUEST = 500
# Objects that a job may leave behind, of those that the collector knows.
LEFT_A_JOB_MAX = 0.02
ROUNDS = 3
FILLING_UP_MAX = 200  # of pools and reservoirs, however many jobs there are
MIB = 2**20
OURS = ("pinlater.worker.", "pinlater.client.")
MORE_ITEMS_MAX = 300  # between two looks what is under way differs a little
DEADLINE_S = 60
LOOK_S = 20


class MemoryUse(NamedTuple):
    """The process's memory now."""

    objects: Counter[type]
    resident_mib: float

    @classmethod
    def now(cls) -> MemoryUse:
        gc.collect()
        return cls(Counter(map(type, gc.get_objects())), resident_bytes() / MIB)

    def more_than(self, before: MemoryUse) -> int:
        """How many objects, of types that grew."""
        return sum((self.objects - before.objects).values())


def items_held(root: object) -> int:
    """Items of all containers that can be reached from `root` by way of client and worker objects."""
    seen, waiting, items = set[int](), [root], 0
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Mapping):
            items += len(value)
            waiting += [*value.keys(), *value.values()]
        elif isinstance(value, list | tuple | set | frozenset | deque):
            items += len(value)
            waiting += list(value)
        elif type(value).__module__.startswith(OURS):
            waiting += list(fields_of(value))
    return items


def fields_of(value: object) -> Iterator[Any]:
    yield from getattr(value, "__dict__", {}).values()
    for kind in type(value).__mro__:
        for name in getattr(kind, "__slots__", ()):
            if hasattr(value, name):
                yield getattr(value, name)


@pytest.mark.timeout(7200)
async def test_a_worker_holds_no_more_after_many_jobs_than_after_some(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Successes on the loop and in threads, failures, rejections, snoozes and checkpoints; the server is another process."""
    caplog.set_level(logging.CRITICAL, "pinlater.worker")  # pytest keeps every line
    with RealServer(tmp_path) as server:
        async with AsyncClient(server.address) as client:
            await client.create_queue("q")
            await work_through(client)


async def work_through(client: AsyncClient) -> None:
    worker = Worker(client, settings=WorkerSettings(concurrency=50, retry_delay_ms=1))
    ended = 0

    @worker.task("q")
    async def plain(number: int) -> None:
        nonlocal ended
        ended += 1

    @worker.task("q")
    def in_thread(number: int) -> None:
        nonlocal ended
        ended += 1

    @worker.task("q", attempts=1)
    async def fails(number: int) -> None:
        nonlocal ended
        ended += 1
        raise (Reject if number % 40 else ValueError)(f"job {number}: " + "x" * 500)

    snoozed: set[int] = set()

    @worker.task("q")
    async def comes_again(number: int) -> None:
        nonlocal ended
        if number in snoozed:
            snoozed.discard(number)
            ended += 1
            return
        snoozed.add(number)
        await current_job().checkpoint_async()
        if number % 40 == 1:
            current_job().reschedule(0)
            return
        raise Snooze(0.001)

    def job(number: int) -> Job:
        task = (
            fails if number % 20 == 0 else comes_again if number % 20 == 1 else in_thread if number % 5 == 2 else plain
        )
        return task.job(number)

    def reached(number: int) -> bool:
        return ended >= number

    async def all_reported() -> bool:
        """What a job in flight holds is none that it leaves behind."""
        return await client.count("q", JobState.IN_PROGRESS) + await client.count("q") == 0

    async def work(first: int, last: int) -> None:
        for start in range(first, last, A_REQUEST):
            await client.enqueue("q", [job(number) for number in range(start, min(last, start + A_REQUEST))])
            await eventually(partial(reached, start - 4 * A_REQUEST), DEADLINE_S)
        await eventually(partial(reached, last), DEADLINE_S)
        await eventually(all_reported, DEADLINE_S)

    async def left_by(first: int, last: int) -> bool:
        """Whether these jobs left more behind than they may: what one in flight holds goes when its report is answered."""
        before, items, began = MemoryUse.now(), items_held(worker), time.monotonic()
        await work(first, last)
        took_s = time.monotonic() - began
        after = before

        async def holds_no_more() -> bool:
            nonlocal after
            await asyncio.sleep(0.1)  # a look takes as long, in which the loop does nothing else
            after = MemoryUse.now()
            return after.more_than(before) <= (last - first) * LEFT_A_JOB_MAX + FILLING_UP_MAX

        with contextlib.suppress(TimeoutError):
            await eventually(holds_no_more, LOOK_S)
        grown = after.objects - before.objects
        print(
            f"\njobs {first} to {last} in {took_s:.0f} s: {sum(grown.values())} objects more, {before.resident_mib:.1f} MiB "
            f"before and {after.resident_mib:.1f} MiB after; most: {grown.most_common(10)}"
        )
        assert items_held(worker) <= items + MORE_ITEMS_MAX
        return not await holds_no_more() or after.resident_mib - before.resident_mib >= 20

    async with running(worker):
        await work(0, WARM_UP)
        # What a process does for the first time (a module that it loads, a pool that fills) is left once; a leak is left by each round.
        for round_ in range(ROUNDS):
            if not await left_by(WARM_UP + round_ * JOBS, WARM_UP + (round_ + 1) * JOBS):
                return
    pytest.fail(f"each of {ROUNDS} rounds of {JOBS} jobs left objects or memory behind")
