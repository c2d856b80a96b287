"""Firings whose runs have to wait: a paused queue, a task that runs for longer than its interval."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from pinlater.client import AsyncClient, JobState
from pinlater.testing import InProcessService
from pinlater.worker import Snooze, Worker, WorkerSettings, constant
from pinlater.worker.cron import cron
from tests.worker.conftest import eventually
from tests.worker.cron.test_cron import sweep_task
from tests.worker.test_worker import running

FAST = WorkerSettings(backoff_first_ms=10, backoff_max_ms=50)
NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)


def later(seconds: float) -> Callable[[], bool]:
    """Whether that time is over."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    return lambda: loop.time() >= end


def ticking(client: AsyncClient, missed: str, ran: list[str]) -> Worker:
    worker = Worker(client, settings=FAST)

    @worker.cron("* * * * * *", missed=missed)
    async def tick() -> None:
        ran.append("tick")

    return worker


@pytest.mark.parametrize("missed", ["latest", "skip"])
async def test_one_firing_waits_in_a_paused_queue_also_with_several_workers_and_after_a_restart(
    client: AsyncClient, missed: str
) -> None:
    await client.create_queue("cron")
    ran: list[str] = []
    first = ticking(client, missed, ran)
    async with running(ticking(client, missed, ran)):
        async with running(first):
            await eventually(lambda: ran)
            await client.pause_queue("cron")
            await eventually(later(2.5))
        async with running(ticking(client, missed, ran)):
            await eventually(later(2.5))
            assert await client.count("cron") == 1
            before = len(ran)
            await client.resume_queue("cron")
            await eventually(lambda: len(ran) > before)
            await eventually(lambda: len(ran) >= before + 3)  # it goes on


async def test_all_firings_of_a_pause_are_made_if_all_are_wanted() -> None:
    with InProcessService() as service:
        worker, ran = Worker(), list[str]()

        @worker.cron("* * * * *", queue="all", missed="all")
        async def every() -> None:
            ran.append("every")

        @worker.cron("* * * * *")
        async def latest() -> None:
            ran.append("latest")

        with service.serving(worker):
            for queue in worker.queues:
                service.client.pause_queue(queue)
            await service.run_for(hours=1)
            assert [service.client.count(queue) for queue in ("all", "cron")] == [60, 1]
            for queue in worker.queues:
                service.client.resume_queue(queue)
            await service.run_until_idle()
            assert (ran.count("every"), ran.count("latest")) == (60, 1)
            await service.run_for(minutes=10)
            assert (ran.count("every"), ran.count("latest")) == (70, 11)


async def test_a_job_that_its_task_has_put_off_or_that_waits_for_a_retry_keeps_no_firing_back() -> None:
    with InProcessService() as service:
        worker, ran = Worker(), list[str]()

        @worker.cron("* * * * *")
        async def snoozes() -> None:
            ran.append("snoozes")
            raise Snooze("2h")

        @worker.cron("* * * * *", retry=constant("2h"))
        async def fails() -> None:
            ran.append("fails")
            raise ValueError

        with service.serving(worker):
            await service.run_for(minutes=10, raise_errors=False)
    assert (ran.count("snoozes"), ran.count("fails")) == (10, 10)


async def test_an_entry_without_overlap_does_not_fire_while_its_job_waits_or_runs(client: AsyncClient) -> None:
    await client.create_queue("cron")
    go_on, running_now, most = asyncio.Event(), set[object](), [0]

    def slow(settings: WorkerSettings) -> Worker:
        worker = Worker(client, settings=settings)

        @worker.cron("* * * * * *", overlap=False)
        async def sync() -> None:
            me = object()
            running_now.add(me)
            most[0] = max(most[0], len(running_now))
            await go_on.wait()
            running_now.discard(me)

        return worker

    async with running(slow(FAST)), running(slow(FAST)):
        await eventually(lambda: running_now)
        await eventually(later(2.5))
        assert (most[0], await client.count("cron"), await client.count("cron", JobState.IN_PROGRESS)) == (1, 0, 1)
        async with running(slow(FAST)):  # a restart does not forget the one that runs
            await eventually(later(1.5))
        assert (most[0], await client.count("cron")) == (1, 0)
        go_on.set()

        async def ran_twice() -> bool:
            return await client.count("cron", JobState.SUCCEEDED) >= 2

        await eventually(ran_twice)
    assert most[0] == 1


async def test_a_firing_without_overlap_is_one_job_also_if_another_worker_makes_it_after_its_run() -> None:
    """A worker of another version of the program makes another job of it, which counts as the same firing."""
    with InProcessService(now=NOON) as service:

        def made_by(attempts: int) -> Worker:
            worker = Worker()

            @worker.cron("* * * * *", overlap=False, attempts=attempts)
            async def sync() -> None: ...

            return worker

        first, equal, newer = made_by(2), made_by(2), made_by(3)
        with service.serving(first), service.serving(equal), service.serving(newer):
            made = 0
            for worker in (first, equal, newer):
                await worker.fire_cron(NOON, NOON + timedelta(minutes=1))
                made += len(await service.run_until_idle(first))
        assert made == 1


def test_an_entry_without_overlap_makes_up_for_no_missed_firing() -> None:
    entry = cron(sweep_task(), "* * * * *", overlap=False)
    assert (entry.missed.value, entry.missed_before(NOON)) == ("skip", [])
    with pytest.raises(
        ValueError, match="overlap=False makes up for no missed firing: missed must be 'skip', not 'all'"
    ):
        cron(sweep_task(), "* * * * *", overlap=False, missed="all")
