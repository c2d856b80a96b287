"""`--create-queues` while no server answers."""

from __future__ import annotations

import asyncio

from pinlater.client import AsyncClient
from pinlater.domain.clock import SystemClock
from pinlater.worker import Worker, WorkerSettings
from tests.client.fake_server import FakeServer
from tests.databases.ports import free_port
from tests.worker.conftest import eventually
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
