"""What a worker tells servers of itself, and how often."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from typing import Any

from pinlater.client import AsyncClient, WorkerInfo, WorkerStatus
from pinlater.domain.clock import WallClock
from pinlater.version import __version__
from pinlater.worker import Worker, WorkerSettings
from tests import structs as t
from tests.client.fake_server import FakeServer
from tests.worker.conftest import eventually
from tests.worker.consumer.test_server_trouble import FAST
from tests.worker.report_shards import info
from tests.worker.test_worker import running


async def test_all_of_it_is_said_with_the_first_request_of_a_queue_and_every_ten_seconds() -> None:
    later_s, told = 0.0, list[tuple[str, int, WorkerInfo | None]]()
    clock = WallClock(time.time, lambda: time.monotonic() + later_s)

    async def dequeue(arguments: Any) -> t.DequeueResponse:
        request = arguments.request
        told.append((request.queue, request.process, request.worker))
        await asyncio.sleep(0.01)
        return t.DequeueResponse()

    async with FakeServer(getServerInfo=info, dequeueJobs=dequeue) as server:
        for _ in range(2):
            worker = Worker(server.address, concurrency=5, settings=FAST, clock=clock)
            worker.task("q", name="q")(lambda: None)
            worker.task("r", name="r")(lambda: None)
            async with running(worker):
                for passed_s in (9.0, 1.5, 0.0):
                    until = len(told) + 9
                    await eventually(lambda: len(told) >= until)  # noqa: B023 - called in this turn
                    later_s += passed_s
    numbers = list(dict.fromkeys(number for _, number, _ in told))
    assert len(numbers) == 2  # of each run
    assert all(0 < number < 2**31 for number in numbers)
    for number in numbers:
        for queue in ("q", "r"):
            said = [about for asked, of, about in told if (asked, of) == (queue, number)]
            assert [said[0] is not None, len([about for about in said if about])] == [True, 2]
    whole = next(about for _, _, about in told if about)
    assert (whole.library, whole.version, whole.host, whole.pid, whole.concurrency, whole.running) == (
        "python", __version__, socket.gethostname(), os.getpid(), 5, 0,
    )  # fmt: skip


async def test_servers_know_a_worker_that_runs(client: AsyncClient) -> None:
    worker = Worker(client, settings=WorkerSettings(concurrency=5, wait_ms=50))

    @worker.task("q")
    async def task() -> None: ...

    await task.enqueue_async()
    async with running(worker):

        async def known() -> WorkerStatus | None:
            found = (await client.workers())[0].workers
            return next((each for each in found if each.queues and each.queues[0].handed_out), None)

        status = await eventually(known)
    assert status.process
    assert (status.source, status.info.library, status.info.pid) == ("test", "python", os.getpid())
    assert (status.info.concurrency, status.info.version) == (5, __version__)


async def test_a_worker_that_only_renews_its_claims_is_heard(client: AsyncClient) -> None:
    """All its slots are taken, so that it asks for no jobs."""
    await client.configure_queue("q", (await client.queue_config("q")).config._replace(claim_timeout_ms=600))
    worker = Worker(client, settings=WorkerSettings(concurrency=1, prefetch_max=0, grace_ms=0))

    @worker.task("q")
    async def task() -> None:
        await eventually(lambda: False, 60)

    await task.enqueue_async()
    async with running(worker):

        async def heard_after_the_claim() -> WorkerStatus | None:
            for status in (await client.workers())[0].workers:
                asked_ms = status.queues[0].asked_ms
                if status.heard_ms is not None and asked_ms is not None and asked_ms > status.heard_ms + 400:
                    return status
            return None

        status = await eventually(heard_after_the_claim)
    assert status.info is not None
