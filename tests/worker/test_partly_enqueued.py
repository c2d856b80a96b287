"""An `enqueue_many` that fails in the middle: what it has stored, and how to enqueue the rest."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from pinlater import partly_enqueued
from pinlater.client import AsyncClient, Job, errors
from pinlater.client.values import UniqueKey
from pinlater.domain.clock import SystemClock
from pinlater.domain.queue import QueueConfig
from pinlater.testing import InProcessService
from pinlater.worker import PartlyEnqueued, Task, Worker
from tests import structs as t
from tests.client.fake_server import FakeServer

INFO = t.ServerInfo("9", [], "memory", 1, 1, 3, 1, 1, 1, 1, 1)


class Storing:
    """A server's method that stores jobs by request key and then does what the test says, by the number of the call."""

    def __init__(self, *after: Callable[[], Any] | None) -> None:
        self.after = list(after)
        self.stored: dict[str, list[str]] = {}
        self.requests: list[tuple[str, bool]] = []

    def __call__(self, arguments: Any) -> Any:
        request = arguments.request
        self.requests.append((request.request_key, bool(request.repeated)))
        after = self.after.pop(0) if self.after else None
        bodies = [job.body.decode() for job in request.jobs]
        if not request.repeated or request.request_key not in self.stored:
            self.stored[request.request_key] = bodies
        done = after() if after else None
        return done or t.Enqueued(descriptors=[f"q:s1:p1:{n}" for n, _ in enumerate(bodies)])

    @property
    def bodies(self) -> list[str]:
        return [body for bodies in self.stored.values() for body in bodies]


def task_of(worker: Worker) -> Task[[int], Any]:
    @worker.task("q")
    def row(number: int) -> None: ...

    return row


def bodies(numbers: range) -> list[str]:
    return [f'{{"number":{number}}}' for number in numbers]


def part_of(error: BaseException) -> PartlyEnqueued:
    part = partly_enqueued(error)
    assert part is not None
    return part


def test_an_enqueue_many_that_is_refused_in_the_middle_says_what_is_stored_and_the_rest_can_be_enqueued() -> None:
    with InProcessService() as service:
        worker = Worker()
        row = task_of(worker)
        with service.serving(worker):
            service.client.configure_queue("q", QueueConfig(max_backlog=1200))
            with pytest.raises(errors.QueueFull) as refused:
                row.enqueue_many(row.job(number) for number in range(2000))
            assert str(refused.value).endswith("; 1,000 jobs were stored before")
            assert "the first 1,000 are stored. pinlater.partly_enqueued(error)" in refused.value.__notes__[-1]
            part = part_of(refused.value)
            assert (len(part.placed), part.may_be_stored) == (1000, 0)
            service.client.configure_queue("q", QueueConfig(max_backlog=2000))
            placed = [*part.placed, *row.enqueue_many(part.rest)]
            assert service.client.count("q") == 2000
            found = service.client.lookup([one.descriptor for one in placed], bodies=True)
            assert [found[one.descriptor].body for one in placed] == [body.encode() for body in bodies(range(2000))]


def broken(row: Task[[int], Any], at: int) -> Iterator[Job]:
    for number in range(2000):
        if number == at:
            raise RuntimeError(f"line {at} is broken")
        yield row.job(number)


def test_the_error_of_the_jobs_themselves_says_what_is_stored_and_keeps_the_jobs_that_were_read() -> None:
    with InProcessService() as service:
        worker = Worker()
        row = task_of(worker)
        with service.serving(worker):
            with pytest.raises(RuntimeError, match="line 1300 is broken") as raised:
                row.enqueue_many(broken(row, 1300))
            part = part_of(raised.value)
            assert (len(part.placed), part.may_be_stored) == (1000, 0)
            assert "the first 1,000 are stored" in raised.value.__notes__[0]
            assert len(row.enqueue_many(part.rest)) == 300
            with pytest.raises(TypeError, match=r"jobs\[700\] must be a Job, not int") as wrong:
                row.enqueue_many([*(row.job(number) for number in range(700)), 7, row.job(8)])  # type: ignore[list-item]
            wrong_part = part_of(wrong.value)
            assert (len(wrong_part.placed), len(list(wrong_part.rest))) == (500, 201)


def test_an_error_that_is_a_frozen_dataclass_says_what_is_stored_and_stays_the_error() -> None:
    @dataclass(frozen=True)
    class BrokenLineError(Exception):
        number: int

    def jobs(row: Task[[int], Any]) -> Iterator[Job]:
        yield from (row.job(number) for number in range(600))
        raise BrokenLineError(600)

    with InProcessService() as service:
        worker = Worker()
        row = task_of(worker)
        with service.serving(worker), pytest.raises(BrokenLineError) as raised:
            row.enqueue_many(jobs(row))
    assert len(part_of(raised.value).placed) == 500
    assert "the first 500 are stored" in raised.value.__notes__[-1]


async def test_the_rest_after_a_lost_answer_is_stored_once() -> None:
    """Also if the rest is enqueued by a call that fails, too."""

    def hang_up() -> Any:
        return FakeServer.HANG_UP

    def full() -> Any:
        raise t.PinLaterException(430, "full", detail="QUEUE_FULL", retryable=True)

    storing = Storing(None, hang_up, hang_up, None, full)
    async with (
        FakeServer(getServerInfo=lambda _: INFO, enqueueJobs=storing) as server,
        AsyncClient(server.address, retries=0) as client,
    ):
        row = task_of(Worker(client))
        with pytest.raises(errors.ConnectionLost) as lost:
            await row.enqueue_many_async(row.job(number) for number in range(2000))
        assert "the first 500 are stored, and the next 500 may be." in lost.value.__notes__[-1]
        part = part_of(lost.value)
        assert (len(part.placed), part.may_be_stored) == (500, 500)
        with pytest.raises(errors.ConnectionLost) as again:
            await row.enqueue_many_async(part.rest)
        assert (len(part_of(again.value).placed), part_of(again.value).may_be_stored) == (0, 500)
        with pytest.raises(errors.QueueFull) as refused:
            await row.enqueue_many_async(part_of(again.value).rest)
        assert (len(part_of(refused.value).placed), part_of(refused.value).may_be_stored) == (500, 0)
        storing.stored.popitem()  # which was refused
        assert len(await row.enqueue_many_async(part_of(refused.value).rest)) == 1000
    keys = [key for key, _ in storing.requests]
    assert keys[1] == keys[2] == keys[3]
    assert [repeat for _, repeat in storing.requests] == [False, False, True, True, False, False, False]
    assert storing.bodies == bodies(range(2000))


async def test_a_cancelled_enqueue_many_says_what_may_be_stored() -> None:
    asked = asyncio.Event()

    async def hang() -> Any:
        asked.set()
        await asyncio.Event().wait()

    storing = Storing(None, hang)
    async with (
        FakeServer(getServerInfo=lambda _: INFO, enqueueJobs=storing) as server,
        AsyncClient(server.address) as client,
    ):
        row = task_of(Worker(client))

        async def enqueue() -> None:
            async with asyncio.timeout(None) as bound:
                waiting = asyncio.create_task(asked.wait())
                waiting.add_done_callback(lambda _: bound.reschedule(0))
                await row.enqueue_many_async(row.job(number) for number in range(1100))

        with pytest.raises(TimeoutError) as late:
            await enqueue()
        part = part_of(late.value)
        assert (len(part.placed), part.may_be_stored) == (500, 500)
        assert len(await row.enqueue_many_async(part.rest)) == 600
    assert storing.bodies == bodies(range(1100))


async def test_a_request_that_may_be_stored_is_not_repeated_after_its_key_may_be_forgotten() -> None:
    storing = Storing(lambda: FakeServer.HANG_UP, lambda: FakeServer.HANG_UP)
    ahead_s = [0.0]
    clock = SystemClock(monotonic=lambda: time.monotonic() + ahead_s[0])
    async with (
        FakeServer(getServerInfo=lambda _: INFO, enqueueJobs=storing) as server,
        AsyncClient(server.address, retries=0) as client,
    ):
        worker = Worker(client, clock=clock)
        row = task_of(worker)
        with pytest.raises(errors.ConnectionLost) as lost:
            await row.enqueue_many_async([row.job(1), row.job(2)])
        with pytest.raises(errors.ConnectionLost) as unique:
            await row.enqueue_many_async([row.using(unique=UniqueKey("k")).job(3)])
        ahead_s[0] = 60
        with pytest.raises(errors.OutcomeUnknown, match="2 jobs may be stored or not, and it is too late") as late:
            await row.enqueue_many_async(part_of(lost.value).rest)
        assert part_of(late.value).may_be_stored == 2
        assert len(await row.enqueue_many_async(list(part_of(late.value).rest))) == 2  # on the caller's word
        assert len(await row.enqueue_many_async(part_of(unique.value).rest)) == 1
    assert len({key for key, _ in storing.requests}) == 4


async def test_the_rest_belongs_to_its_queue_and_process() -> None:
    async with (
        FakeServer(getServerInfo=lambda _: INFO, enqueueJobs=Storing(lambda: FakeServer.HANG_UP)) as server,
        AsyncClient(server.address, retries=0) as client,
    ):
        worker = Worker(client)
        row = task_of(worker)

        @worker.task("other")
        async def other() -> None: ...

        with pytest.raises(errors.ConnectionLost) as lost:
            await row.enqueue_many_async(row.job(number) for number in range(3))
        with pytest.raises(TypeError, match="the rest of the jobs is for queue q, not other"):
            await other.enqueue_many_async(part_of(lost.value).rest)
        elsewhere = part_of(pickle.loads(pickle.dumps(lost.value)))
        assert elsewhere.may_be_stored == 3
        with pytest.raises(RuntimeError, match="in the process that enqueued"):
            list(elsewhere.rest)


def test_an_error_of_something_else_is_no_partly_enqueued_one() -> None:
    assert partly_enqueued(ValueError("other")) is None
