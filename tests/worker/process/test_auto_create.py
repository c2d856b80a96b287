"""`--create-queues` while no server answers, or one refuses."""

from __future__ import annotations

import asyncio
import logging

import pytest

from pinlater.client import AsyncClient, errors
from pinlater.domain.clock import SystemClock
from pinlater.worker import Worker, WorkerSettings
from pinlater.worker._consumer import outage
from tests import structs as t
from tests.client.fake_server import FakeServer
from tests.databases.ports import free_port
from tests.worker.conftest import eventually
from tests.worker.consumer.test_server_trouble import info
from tests.worker.process.test_operations import answered, asked
from tests.worker.test_worker import running

worker_clock = SystemClock().monotonic


async def test_a_worker_that_waits_for_a_server_is_healthy() -> None:
    port = free_port()
    worker = Worker("127.0.0.1:1", settings=WorkerSettings(create_queues=True, stuck_ms=300, health_port=port))

    @worker.task("q")
    async def task() -> None: ...

    async with running(worker):
        await eventually(lambda: answered(port, "/healthz", 200))
        marked_s = worker_clock()
        while worker_clock() - marked_s < 1.0:  # for longer than a loop may be stuck
            assert (await asked(port, "/healthz"))[0] == 200


async def test_a_stop_does_not_wait_for_a_server_that_never_answers() -> None:
    never = asyncio.Event()

    async def hang(_: object) -> None:
        await never.wait()

    async with FakeServer(createQueue=hang) as server, AsyncClient(server.address, timeout_ms=90_000) as client:
        worker = Worker(client, settings=WorkerSettings(create_queues=True, grace_ms=100))

        @worker.task("q")
        async def task() -> None: ...

        run = asyncio.ensure_future(worker.run_async())
        await eventually(lambda: server.calls)
        worker.request_stop()
        async with asyncio.timeout(30):
            await run
        never.set()


async def test_a_refusal_to_create_a_queue_ends_the_worker_with_that_error() -> None:
    def refuse(_: object) -> None:
        raise t.PinLaterException(500, "too many", detail="TOO_MANY_QUEUES", retryable=False)

    async with FakeServer(createQueue=refuse) as server, AsyncClient(server.address) as client:
        worker = Worker(client, settings=WorkerSettings(create_queues=True))

        @worker.task("q")
        async def task() -> None: ...

        with pytest.raises(errors.TooManyQueues):
            await worker.run_async()


async def test_a_worker_that_is_cancelled_while_it_creates_queues_leaves_no_task_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They would retry on a closed client for ever."""
    before = asyncio.all_tasks()
    worker = Worker("127.0.0.1:1", settings=WorkerSettings(create_queues=True))

    @worker.task("q")
    async def task() -> None: ...

    run = asyncio.ensure_future(worker.run_async())
    await eventually(lambda: "can't create queues" in caplog.text)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert asyncio.all_tasks() == before


async def test_cron_entries_fire_when_their_queue_exists() -> None:
    """A firing before that would be refused and made again a second later."""
    refusals = 10

    def create(_: object) -> None:
        nonlocal refusals
        refusals -= 1
        if refusals >= 0:
            raise t.PinLaterException(502, "not yet", retryable=True)

    def enqueue(_: object) -> t.Enqueued:
        return t.Enqueued(descriptors=["cron:s1:p1:1"])

    methods = {"createQueue": create, "enqueueJobs": enqueue, "getServerInfo": info}
    async with FakeServer(**methods) as server, AsyncClient(server.address, retries=0) as client:
        worker = Worker(client, settings=WorkerSettings(create_queues=True, backoff_first_ms=5, backoff_max_ms=20))

        @worker.cron("* * * * *")
        async def tick() -> None: ...

        async with running(worker):
            await eventually(lambda: server.called("enqueueJobs"))
        changes = [method for method, _ in server.calls if method in ("createQueue", "enqueueJobs")]
    assert changes == ["createQueue"] * 11 + ["enqueueJobs"]


async def test_the_log_names_the_queues_that_were_created(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pinlater.worker")
    methods = {"createQueue": lambda _: None, "getQueueNames": lambda _: {"old"}, "getServerInfo": info}
    async with FakeServer(**methods) as server:
        worker = Worker(server.address, settings=WorkerSettings(create_queues=True))
        for queue in ("old", "mails", "reports"):
            worker.task(queue, name=queue)(lambda: None)
        async with running(worker):
            await eventually(lambda: "worker started" in caplog.messages)
    assert caplog.messages[0] == "created queues: mails, reports"


async def test_the_log_says_again_that_no_server_creates_the_queues(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outage, "_SAID_EVERY_S", 0.2)
    worker = Worker("127.0.0.1:1", settings=WorkerSettings(create_queues=True, backoff_max_ms=100))

    @worker.task("q")
    async def task() -> None: ...

    async with running(worker):
        await eventually(lambda: "no server reached for " in caplog.text)
    assert caplog.messages[0].startswith("can't create queues, retrying: Server 127.0.0.1:1 can't be reached")
