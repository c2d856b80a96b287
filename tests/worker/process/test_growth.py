"""A worker's containers must not grow with the jobs that it has run, however they ended."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from pinlater.client import AsyncClient, ClaimedJob, Job
from pinlater.worker import Reject, Snooze, Worker, WorkerSettings, current_job
from tests.worker.conftest import eventually

SETTINGS = WorkerSettings(
    concurrency=8, retry_delay_ms=1, backoff_first_ms=1, backoff_max_ms=5, unknown_task_delay_ms=1, grace_ms=1_000
)
OURS = ("pinlater.worker.", "pinlater.client.")
ROUND = 700  # jobs
# Between two rounds what is under way differs a little.
SLACK_ITEMS = 300


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


async def test_a_workers_memory_does_not_grow_with_the_jobs_it_has_run(client: AsyncClient) -> None:
    worker = Worker(client, settings=SETTINGS)
    done = 0

    @worker.task("q", default=True)
    async def handle(job: ClaimedJob) -> None:
        nonlocal done
        done += 1
        match int(job.body) % 7:
            case 0 if job.attempt == 1:
                raise ValueError("again")
            case 1:
                raise Reject("never")
            case 2 if job.attempts_allowed == job.attempts_remaining and job.body[0:1] != b"0":
                current_job().reschedule(0, b"0" + job.body)
            case 3 if job.body[0:1] != b"0":
                raise Snooze(0.001) if done % 2 else ValueError("twice")
            case 4:
                await asyncio.sleep(0.001)

    @worker.task("q", time_limit=5)
    def in_thread() -> None: ...

    async def one_round() -> int:
        before = (await client.queue_stats("q"))[0]
        jobs = [Job(b"%d" % (100_000 + number), attempts_allowed=3) for number in range(ROUND)]
        await client.enqueue("q", [*jobs, *[in_thread.job() for _ in range(50)]])

        async def all_finished() -> bool:
            now = (await client.queue_stats("q"))[0]
            finished = sum(now.total(name) - before.total(name) for name in ("succeeded", "failed"))
            return finished == ROUND + 50

        await eventually(all_finished, 60)
        await eventually(lambda: worker.counts.running == 0)
        return items_held(worker)

    running = asyncio.create_task(worker.run_async())
    first = await one_round()
    for _ in range(2):
        await one_round()
    last = await one_round()
    worker.request_stop()
    await asyncio.wait_for(running, 20)
    assert last <= first + SLACK_ITEMS
    assert worker.counts.acks_refused == 0
