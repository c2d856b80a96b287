"""Queues share a worker, and workers share the jobs of queues."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from pinlater import Job
from pinlater.client import AsyncClient, QueueConfig
from pinlater.worker import Worker, WorkerSettings
from tests.worker.conftest import eventually
from tests.worker.test_worker import running


def worker_of(server: str, queues: list[str], slots: int, run: Callable[[str], object]) -> Worker:
    """Has the same task on each queue."""
    worker = Worker(server, settings=WorkerSettings(concurrency=slots))

    def register(queue: str) -> None:
        @worker.task(queue, name="work")
        async def work() -> None:
            counted = run(queue)
            if asyncio.iscoroutine(counted):
                await counted

    for queue in queues:
        register(queue)
    return worker


async def fill(client: AsyncClient, queues: list[str], jobs: int) -> None:
    job = Job(b"{}", headers={"pinlater-task": "work", "content-type": "application/json"})
    for queue in queues:
        await client.enqueue(queue, [job] * jobs)


async def all_polls_wait(client: AsyncClient, polls: int) -> None:
    async def count() -> bool:
        return sum([each.number for each in await client.waiting_dequeues()]) >= polls

    await eventually(count)


@pytest.mark.parametrize(("queues", "slots"), [(1, (4, 4)), (4, (4, 4)), (4, (2, 6)), (40, (4, 4))])
async def test_idle_workers_share_a_burst_and_none_holds_jobs_that_it_cannot_run(
    client: AsyncClient, server: str, queues: int, slots: tuple[int, int]
) -> None:
    names = [f"q{number}" for number in range(queues)]
    for name in names:
        await client.create_queue(name)
    go_on = asyncio.Event()
    workers = [worker_of(server, names, count, lambda _: go_on.wait()) for count in slots]
    async with running(workers[0]), running(workers[1]):
        await all_polls_wait(client, 2 * queues)
        await fill(client, names, max(1, 16 // queues))
        await eventually(lambda: [worker.counts.running for worker in workers] == list(slots))

        async def held() -> bool:
            return sum([each.total("in_progress") for each in await client.queue_stats(*names)]) == sum(slots)

        await eventually(held)
        go_on.set()
        await eventually(lambda: sum([worker.counts.succeeded for worker in workers]) == queues * max(1, 16 // queues))
    assert [worker.counts.failed for worker in workers] == [0, 0]


async def test_queues_share_a_workers_slots_by_weight(client: AsyncClient, server: str) -> None:
    await client.create_queue("heavy")
    ran: Counter[str] = Counter()
    go_on = asyncio.Event()

    async def hold(queue: str) -> None:
        ran[queue] += 1
        await go_on.wait()

    worker = worker_of(server, ["q", "heavy"], 8, hold)
    worker.queue("heavy", weight=3)
    await fill(client, ["q", "heavy"], 40)
    async with running(worker):
        await eventually(lambda: ran.total() == 8)
        assert ran == {"q": 2, "heavy": 6}
        go_on.set()


async def test_all_queues_with_short_jobs_are_served_if_they_outnumber_the_slots(
    client: AsyncClient, server: str
) -> None:
    names = [f"q{number}" for number in range(12)]
    for name in names:
        await client.create_queue(name)
    ran: Counter[str] = Counter()
    shares: Counter[str] = Counter()

    async def work(queue: str) -> None:
        await asyncio.sleep(0.001)
        ran[queue] += 1
        if ran.total() == 1_200:
            shares.update(ran)

    await fill(client, names, 400)
    worker = worker_of(server, names, 2, work)
    for name in names[:6]:
        worker.queue(name, weight=3)
    async with running(worker):
        await eventually(shares.total)
    assert all(75 < shares[name] < 300 for name in names[:6])
    assert all(25 < shares[name] < 100 for name in names[6:])


async def test_a_rate_limited_queue_gets_its_jobs_while_another_fills_all_slots(
    client: AsyncClient, server: str
) -> None:
    """What goes back for lack of a slot does not use up the limit."""
    for name in ("busy", "limited"):
        await client.create_queue(name)
    await client.configure_queue("limited", QueueConfig(max_jobs_per_second=2))
    ran: Counter[str] = Counter()

    async def work(queue: str) -> None:
        ran[queue] += 1
        await asyncio.sleep(0.3)

    worker = worker_of(server, ["busy", "limited"], 1, work)
    await fill(client, ["busy", "limited"], 100)
    async with running(worker):
        await eventually(lambda: ran["limited"] >= 3)
    assert ran["busy"] < 60
