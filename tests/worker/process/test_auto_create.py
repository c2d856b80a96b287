"""Creation of missing queues by workers that run and by tasks, when servers answer late, refuse, or are original ones."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from pinlater.client import AsyncClient, errors
from pinlater.domain.passwords import hash_password
from pinlater.worker import Task, Worker, WorkerSettings, partly_enqueued
from tests import structs as t
from tests.client.fake_server import FakeServer
from tests.worker.conftest import eventually, serving
from tests.worker.report_shards import info
from tests.worker.test_worker import FAST, running

PASSWORD = "open sesame"
REFUSALS = {
    "QUEUE_NOT_FOUND": "Queue not found: q; tasks create no queues here",
    "TOO_MANY_QUEUES": "Queue not found: q; it can't be created: as many as may be",
    "ACCESS_DENIED": "Queue not found: q; it can't be created: as many as may be",
}


class Queues:
    """What a fake server has: no queue until it is created, if `creates` says nothing else."""

    def __init__(self, creates: Callable[[], Any] | None = None) -> None:
        self.exists = False
        self._creates = creates

    async def ensure(self, _: Any) -> None:
        if self._creates is not None:
            answer = self._creates()
            if asyncio.iscoroutine(answer):
                await answer
        self.exists = True

    def enqueue(self, arguments: Any) -> t.Enqueued:
        self._check()
        return t.Enqueued(descriptors=[f"q:s1:p1:{number}" for number, _ in enumerate(arguments.request.jobs)])

    async def dequeue(self, arguments: Any) -> t.DequeueResponse:
        self._check()
        await asyncio.sleep((arguments.request.wait_ms or 0) / 1000)
        return t.DequeueResponse()

    def _check(self) -> None:
        if not self.exists:
            raise t.PinLaterException(413, "Queue not found: q", detail="QUEUE_NOT_FOUND", retryable=False)

    def server(self, *, original: bool = False) -> FakeServer:
        methods = {"enqueueJobs": self.enqueue, "dequeueJobs": self.dequeue}
        return FakeServer(**methods if original else {**methods, "ensureQueue": self.ensure, "getServerInfo": info})


def refusing(detail: str) -> Callable[[], None]:
    def refuse() -> None:
        code = {"QUEUE_NOT_FOUND": 413, "ACCESS_DENIED": 403}.get(detail, 500)
        text = "Queue not found: q; tasks create no queues here" if code == 413 else "as many as may be"
        raise t.PinLaterException(code, text, detail=detail, retryable=False)

    return refuse


def worker_of(client: AsyncClient | str) -> tuple[Worker, Task[[], Any]]:
    worker = Worker(client, settings=FAST)

    @worker.task("q")
    async def task() -> None: ...

    return worker, task


async def test_only_the_first_enqueue_to_a_missing_queue_costs_further_calls() -> None:
    async with Queues().server() as server, AsyncClient(server.address) as client:
        _, task = worker_of(client)
        for _ in range(3):
            await task.enqueue_async()
        asked = [method for method, _ in server.calls if method in ("enqueueJobs", "ensureQueue")]
        # Some of its jobs may be stored on a shard that has the queue, for example one that was added since.
        refused, repeated, *_ = (call.request.request_key for call in server.called("enqueueJobs"))
    assert refused == repeated
    assert asked == ["enqueueJobs", "ensureQueue", "enqueueJobs", "enqueueJobs", "enqueueJobs"]


@pytest.mark.parametrize("detail", REFUSALS)
async def test_a_refusal_is_an_error_of_the_enqueue_and_the_server_is_not_asked_again_for_a_minute(detail: str) -> None:
    async with Queues(refusing(detail)).server() as server, AsyncClient(server.address) as client:
        _, task = worker_of(client)
        for _ in range(5):
            with pytest.raises(errors.QueueNotFound) as error:
                await task.enqueue_async()
            assert error.value.message == REFUSALS[detail]
            assert "`pinlater queue create q`" in error.value.__notes__[0]
        assert len(server.called("ensureQueue")) == 1


async def test_an_original_server_is_not_asked_twice_and_its_error_stays() -> None:
    async with Queues().server(original=True) as server, AsyncClient(server.address) as client:
        worker, task = worker_of(client)
        for _ in range(2):
            with pytest.raises(errors.QueueNotFound) as error:
                await task.enqueue_async()
            assert error.value.message == "Queue not found: q"
        async with running(worker):
            await eventually(lambda: len(server.called("dequeueJobs")) > 3)
        assert len(server.called("ensureQueue")) <= 2


async def test_a_creation_that_is_not_answered_leaves_the_jobs_in_the_rest() -> None:
    answer = asyncio.Event()
    queues = Queues(answer.wait)
    async with queues.server() as server, AsyncClient(server.address, timeout_ms=300) as client:
        _, task = worker_of(client)
        with pytest.raises(errors.DeadlineExceeded, match="ensure_queue on queue q") as error:
            await task.enqueue_many_async([task.job(), task.job()])
        part = partly_enqueued(error.value)
        assert part is not None
        assert part.may_be_stored == 0
        answer.set()
        assert len(await task.enqueue_many_async(part.rest)) == 2


async def test_a_creation_whose_answer_is_lost_is_made_again() -> None:
    """Twice is the same as once."""
    lost = iter([True])
    queues = Queues()

    def hang_up_once(arguments: Any) -> Any:
        queues.exists = True
        return FakeServer.HANG_UP if next(lost, False) else None

    async with queues.server() as server, AsyncClient(server.address) as client:
        server.methods["ensureQueue"] = hang_up_once
        _, task = worker_of(client)
        await task.enqueue_async()
        assert len(server.called("ensureQueue")) == 2


async def test_a_worker_whose_queue_may_not_be_created_goes_on_asking_for_jobs_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An operator may create it meanwhile. Its health check says that it is not ready."""
    queues = Queues(refusing("QUEUE_NOT_FOUND"))
    async with queues.server() as server, AsyncClient(server.address) as client:
        worker, _ = worker_of(client)
        with caplog.at_level(logging.INFO, "pinlater.worker"):
            async with running(worker):
                await eventually(lambda: len(server.called("dequeueJobs")) > 5)
                assert len(server.called("ensureQueue")) == 1
                queues.exists = True
                await eventually(lambda: "queue q: it exists now" in caplog.messages)
    assert [line for line in caplog.messages if "can't claim" in line] == [
        "queue q: can't claim, retrying: Queue not found: q; tasks create no queues here; create it: `pinlater queue create q`"
    ]


async def test_a_worker_creates_its_queue_when_a_server_that_failed_answers_again() -> None:
    failures = iter([True] * 5)

    def fail() -> None:
        if next(failures, False):
            raise t.PinLaterException(502, "not yet", detail="SHARD_UNREACHABLE", retryable=True)

    queues = Queues(fail)
    async with queues.server() as server, AsyncClient(server.address, retries=0) as client:
        worker, _ = worker_of(client)
        async with running(worker):
            await eventually(lambda: queues.exists)
        assert len(server.called("ensureQueue")) == 6


async def test_a_stop_does_not_wait_for_a_creation_that_is_never_answered() -> None:
    never = asyncio.Event()
    async with Queues(never.wait).server() as server, AsyncClient(server.address, timeout_ms=90_000) as client:
        worker = Worker(client, settings=WorkerSettings(grace_ms=100))
        worker.task("q", name="task")(lambda: None)
        run = asyncio.ensure_future(worker.run_async())
        await eventually(lambda: server.called("ensureQueue"))
        worker.request_stop()
        async with asyncio.timeout(30):
            await run
        never.set()


async def test_a_job_that_enqueues_waits_for_the_creation_while_no_shard_can_be_reached() -> None:
    """So an outage costs the running job no attempt, as with the enqueue itself."""
    failures = iter([True] * 3)

    def fail() -> None:
        if next(failures, False):
            raise t.PinLaterException(501, "none", detail="NO_HEALTHY_SHARDS", retryable=True)

    async with (
        Queues(fail).server() as server,
        AsyncClient(server.address, retries=0, wait_for_servers=False) as away,
        serving() as address,
        AsyncClient(address) as client,
    ):
        _, task = worker_of(away)
        worker = Worker(client, settings=FAST)

        @worker.task("own")
        async def hand_over() -> None:
            await task.enqueue_async()

        await hand_over.enqueue_async()
        async with running(worker):
            await eventually(lambda: worker.counts.succeeded == 1)
        assert worker.counts.failed == 0
        assert len(server.called("ensureQueue")) == 4


async def test_workers_that_run_do_not_bring_back_a_queue_that_was_deleted(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(admin_password_hash=hash_password(PASSWORD)) as address, AsyncClient(address) as client:
        first, task = worker_of(client)
        second, _ = worker_of(client)
        caplog.set_level(logging.INFO, "pinlater.worker")
        async with running(first), running(second):
            await task.enqueue_async()
            await eventually(lambda: first.counts.succeeded + second.counts.succeeded == 1)
            await client.delete_queue("q", PASSWORD)
            await eventually(lambda: sum("deleted within the last day" in line for line in caplog.messages) == 2)
            with pytest.raises(errors.QueueNotFound, match="deleted within the last day"):
                await task.enqueue_async()
            assert await client.queue_names() == []
            await first.create_queues_async()  # a program that asks for it may
            await task.enqueue_async()
            await eventually(lambda: first.counts.succeeded + second.counts.succeeded == 2)
