"""Tasks and workers create their queues, if the server lets them; clients create none by themselves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from pinlater import JobState, Worker, WorkerSettings, partly_enqueued
from pinlater.client.errors import QueueNotFound, TooManyQueues
from pinlater.testing import InProcessService, JobSettings
from pinlater.worker import Task

PASSWORD = "open sesame"
COMMAND = "pinlater queue create mails"


class Office(NamedTuple):
    """A service without queues, and a worker of it whose task is on one."""

    service: InProcessService
    worker: Worker
    send: Task[[], Any]

    def jobs(self) -> int:
        return sum(stats.total("pending") for stats in self.service.client.queue_stats())


@contextmanager
def office(settings: JobSettings | None = None, *, auto_create: bool = True) -> Iterator[Office]:
    """`settings` are the server's, `auto_create` is the worker's."""
    worker = Worker("nowhere.invalid:1", settings=WorkerSettings(auto_create=auto_create))
    with InProcessService(admin_password=PASSWORD, settings=settings) as service, service.serving(worker):

        @worker.task("mails")  # behind `serving`, which creates the queues of the tasks that it finds
        async def send() -> None: ...

        yield Office(service, worker, send)


def nothing() -> None: ...


async def one(task: Task[[], Any]) -> None:
    await task.enqueue_async()


async def one_in_a_thread(task: Task[[], Any]) -> None:
    await asyncio.to_thread(task.enqueue)


async def one_with_options(task: Task[[], Any]) -> None:
    await task.using(delay=60, priority=2).enqueue_async()


async def many(task: Task[[], Any]) -> None:
    await task.enqueue_many_async([task.job() for _ in range(1_200)])


async def many_in_a_thread(task: Task[[], Any]) -> None:
    await asyncio.to_thread(task.enqueue_many, (task.job() for _ in range(1_200)))


Enqueue = Callable[[Task[[], Any]], Awaitable[None]]
WAYS = pytest.mark.parametrize("enqueue", [one, one_in_a_thread, one_with_options, many, many_in_a_thread])


@WAYS
async def test_an_enqueue_of_a_task_creates_its_queue_and_stores_each_job_once(enqueue: Enqueue) -> None:
    with office() as at:
        await enqueue(at.send)
        assert at.service.client.queue_names() == ["mails"]
        assert at.jobs() == (1_200 if enqueue in (many, many_in_a_thread) else 1)


@WAYS
async def test_a_worker_without_auto_create_creates_no_queue(enqueue: Enqueue) -> None:
    with office(auto_create=False) as at:
        with pytest.raises(QueueNotFound, match=r"(?m)^Queue not found: mails$") as error:
            await enqueue(at.send)
        assert COMMAND in error.value.__notes__[0]
        with pytest.raises(QueueNotFound):
            await at.worker.run_until_idle()
        assert at.service.client.queue_names() == []


@WAYS
async def test_a_server_may_forbid_it_and_the_error_names_setting_and_command(enqueue: Enqueue) -> None:
    with office(JobSettings(auto_create=False)) as at:
        for attempt in (enqueue(at.send), at.worker.run_until_idle()):
            with pytest.raises(
                QueueNotFound, match=r"create no queues on this server \(setting jobs.auto_create\)"
            ) as error:
                await attempt
            assert COMMAND in error.value.__notes__[0]
        at.service.client.create_queue("mails")
        await enqueue(at.send)
        assert at.jobs()


async def test_a_client_creates_no_queue_by_itself() -> None:
    with office() as at:
        with pytest.raises(QueueNotFound):
            at.service.client.enqueue("mails", [at.send.job()])
        async with at.service.async_client() as client:
            with pytest.raises(QueueNotFound):
                await client.dequeue("mails")
            await client.ensure_queue("mails")  # unless it is asked to, as a task would ask
            await client.ensure_queue("mails")
            assert len((await client.enqueue("mails", [at.send.job()])).descriptors) == 1


async def test_a_worker_that_starts_creates_the_queues_of_its_tasks(caplog: pytest.LogCaptureFixture) -> None:
    with office() as at:
        at.worker.task("reports")(nothing)
        with caplog.at_level(logging.INFO, "pinlater.worker"):
            await at.worker.run_until_idle()
        assert at.service.client.queue_names() == ["mails", "reports"]
    assert {f"queue {name}: created, since it did not exist" for name in ("mails", "reports")} <= {*caplog.messages}


@pytest.mark.parametrize("overlap", [True, False])
async def test_a_cron_entry_creates_its_queue(overlap: bool) -> None:
    with office() as at:
        at.worker.cron("@hourly", queue="clock", overlap=overlap)(nothing)
        began = at.service.clock.now
        at.service.clock.advance(hours=1)
        assert await at.worker.fire_cron(began, at.service.clock.now) == 1
        assert at.jobs() == 1


async def test_a_queue_that_was_deleted_is_not_created_by_tasks_and_workers_for_a_day() -> None:
    """An operator who deletes a queue does so against programs that are running; each of them would bring it back at once."""
    with office() as at:
        await at.send.enqueue_async()
        at.service.client.delete_queue("mails", PASSWORD)
        for attempt in (at.send.enqueue_async, at.worker.run_until_idle):
            with pytest.raises(
                QueueNotFound, match="deleted within the last day, and tasks do not create it again"
            ) as error:
                await attempt()
            assert COMMAND in error.value.__notes__[0]
        at.service.clock.advance(hours=23)
        with pytest.raises(QueueNotFound, match="deleted within the last day"):
            await at.send.enqueue_async()
        at.service.clock.advance(hours=2)
        await at.send.enqueue_async()
        assert at.jobs() == 1


async def test_a_deleted_queue_that_is_created_by_hand_is_used_at_once() -> None:
    with office() as at:
        await at.send.enqueue_async()
        at.service.client.delete_queue("mails", PASSWORD)
        with pytest.raises(QueueNotFound):
            await at.send.enqueue_async()
        at.service.client.create_queue("mails")
        placed = await at.send.enqueue_async()
        await at.worker.run_until_idle()
        assert at.service.job(placed.descriptor).state is JobState.SUCCEEDED


async def test_a_server_with_as_many_queues_as_may_be_says_so() -> None:
    with office(JobSettings(max_queues=1)) as at:
        at.service.client.create_queue("other")
        with pytest.raises(TooManyQueues):
            at.service.client.ensure_queue("mails")
        at.service.clock.advance(seconds=1)
        with pytest.raises(
            QueueNotFound, match=r"; it can't be created: Queue mails was not made: .*setting jobs.max_queues"
        ):
            await at.send.enqueue_async()


async def test_a_failed_creation_leaves_all_jobs_in_the_rest() -> None:
    with office(JobSettings(auto_create=False)) as at:
        with pytest.raises(QueueNotFound) as error:
            await at.send.enqueue_many_async([at.send.job() for _ in range(3)])
        part = partly_enqueued(error.value)
        assert part is not None
        assert (len(part.placed), part.may_be_stored) == (0, 0)
        at.service.client.create_queue("mails")
        assert len(await at.send.enqueue_many_async(part.rest)) == 3


async def test_each_of_several_enqueues_to_a_queue_that_can_not_be_created_has_its_own_rest() -> None:
    """A refusal counts for a minute, and its error was one object for all enqueues in it."""
    with office(JobSettings(auto_create=False)) as at:
        errors = []
        for number in (3, 5):
            with pytest.raises(QueueNotFound) as error:
                await at.send.enqueue_many_async([at.send.job() for _ in range(number)])
            errors.append(error.value)
        parts = [partly_enqueued(error) for error in errors]
        assert [part and len([*part.rest]) for part in parts] == [3, 5]


def test_many_threads_that_enqueue_first_create_the_queue_together() -> None:
    with office() as at, ThreadPoolExecutor(8) as threads:
        placed = [*threads.map(lambda _: at.send.enqueue(), range(64))]
        assert len({one.descriptor for one in placed}) == at.jobs() == 64
