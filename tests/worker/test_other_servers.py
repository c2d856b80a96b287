"""A run on other servers than the worker's own: the worker's tasks enqueue there too."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pinlater.client import AsyncClient, Client
from pinlater.client.errors import ServerUnreachable
from pinlater.worker import Worker, WorkerSettings
from pinlater.worker.envelope import TASK_HEADER
from tests.worker import process_tasks
from tests.worker.conftest import eventually, idle_worker, serving
from tests.worker.test_worker import running

_FAST = WorkerSettings(backoff_first_ms=10, backoff_max_ms=50)


@pytest.fixture
async def own() -> AsyncIterator[AsyncClient]:
    """A client of the worker's own server, with a queue `q`."""
    async with serving() as address, AsyncClient(address) as client:
        await client.create_queue("q")
        yield client


@pytest.mark.parametrize("as_client", [False, True], ids=["addresses", "client"])
async def test_tasks_enqueue_where_the_run_claims_and_a_client_of_their_own_stays_where_it_is(
    own: AsyncClient, client: AsyncClient, as_client: bool
) -> None:
    address = str(own.servers[0])
    worker = Worker(address, settings=_FAST)
    ran = []

    @worker.task("q", default=True)
    async def first() -> None:
        ran.append("first")
        await second.enqueue_async()

    @worker.task("q")
    def second() -> None:
        ran.append("second")
        third.enqueue()
        with Client(address) as apart:
            apart.enqueue("q", [b"of a client of its own"])

    @worker.task("q")
    async def third() -> None:
        ran.append("third")
        worker.request_stop()

    await client.enqueue("q", [b""])
    given = client if as_client else str(client.servers[0])
    await asyncio.wait_for(worker.run_async(client=given), 30)
    assert ran == ["first", "second", "third"]
    assert [job.body for job in (await own.dequeue("q", 9)).jobs] == [b"of a client of its own"]
    await first.enqueue_async()  # the run is over: on the worker's own servers again
    assert len((await own.dequeue("q", 9)).jobs) == 1
    assert not (await client.dequeue("q", 9)).jobs


async def test_tasks_and_cron_entries_enqueue_at_the_servers_for_enqueues(
    own: AsyncClient, client: AsyncClient
) -> None:
    """Here these have a store of their own, which shows where jobs went."""
    worker = Worker(str(own.servers[0]), enqueue_servers=str(client.servers[0]), settings=_FAST)

    @worker.task("q", default=True)
    async def first() -> None:
        await second.enqueue_async()

    @worker.task("q")
    def second() -> None: ...

    @worker.cron("* * * * *", queue="q")  # at once, since the firings of the last hour were missed
    async def tick() -> None: ...

    await first.enqueue_async()
    await asyncio.to_thread(first.enqueue)
    assert len((await client.dequeue("q", 9)).jobs) == 2
    await own.enqueue("q", [b""])
    async with running(worker):
        seen = set[str]()
        while seen != {"second", "tick"}:
            seen |= {(job.headers or {})[TASK_HEADER] for job in (await client.dequeue("q", wait_ms=10_000)).jobs}
    assert worker.counts.succeeded == 1


async def test_a_run_on_other_servers_enqueues_there_and_not_at_the_own_servers_for_enqueues(
    own: AsyncClient, client: AsyncClient
) -> None:
    worker = Worker("127.0.0.1:1", enqueue_servers=str(own.servers[0]), settings=_FAST)

    @worker.task("q", default=True)
    async def shrink(left: int) -> None:
        if left:
            await shrink.enqueue_async(left - 1)

    await client.enqueue("q", [b'{"left": 2}'])
    await worker.run_until_idle(client=client)
    assert worker.counts.succeeded == 3


async def test_cron_entries_fire_where_the_run_claims(client: AsyncClient) -> None:
    worker = Worker("127.0.0.1:1", settings=_FAST)

    @worker.cron("* * * * *", queue="q")  # at once, since the firings of the last hour were missed
    async def tick() -> None:
        worker.request_stop()

    await asyncio.wait_for(worker.run_async(client=client), 30)
    assert worker.counts.succeeded == 1


@pytest.mark.parametrize("as_client", [False, True], ids=["addresses", "client"])
async def test_tasks_in_child_processes_enqueue_where_the_run_claims(
    client: AsyncClient, tmp_path: Path, as_client: bool
) -> None:
    """Their module names a server that is not there."""
    await client.create_queue("p")
    await client.enqueue("p", [process_tasks.enqueue_a_note.job(str(tmp_path))])
    given = client if as_client else str(client.servers[0])
    running = asyncio.create_task(process_tasks.worker.run_async(client=given, settings=_FAST))
    try:
        await eventually((tmp_path / "pids").exists)
    finally:
        process_tasks.worker.request_stop()
        await asyncio.wait_for(running, 30)


async def test_a_run_that_ends_leaves_the_tasks_on_unreachable_servers_of_their_own(client: AsyncClient) -> None:
    async with AsyncClient("127.0.0.1:1", timeout_ms=100) as unreachable:
        worker = Worker(unreachable, settings=_FAST)

        @worker.task("q")
        async def run() -> None: ...

        await worker.run_until_idle(client=client)
        with pytest.raises(ServerUnreachable):
            await run.enqueue_async()


@pytest.mark.parametrize(
    ("variable", "in_code", "level"),
    [
        ("jobs1:9010,jobs2:9010", "127.0.0.1:1", "WARNING"),
        ("file:/etc/jobs", "127.0.0.1:1", "WARNING"),
        ("127.0.0.1:1 127.0.0.1:2", ["127.0.0.1:2", "127.0.0.1:1"], "INFO"),
        ("jobs1:9010", None, None),
        ("", "127.0.0.1:1", None),
    ],
)
async def test_a_worker_says_once_that_its_code_overrides_the_servers_of_the_environment(
    variable: str,
    in_code: str | list[str] | None,
    level: str | None,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.INFO, "pinlater.worker")
    monkeypatch.setenv("PINLATER_SERVERS", variable)
    worker = idle_worker(in_code, settings=_FAST)
    async with running(worker):
        await eventually(lambda: "worker started" in caplog.text)
    said = [record for record in caplog.records if "is set but not used" in record.getMessage()]
    assert [record.levelname for record in said] == ([level] if level else [])


async def test_servers_of_the_command_line_override_those_of_the_environment_without_a_warning(
    server: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "pinlater.worker")
    monkeypatch.setenv("PINLATER_SERVERS", "jobs1:9010")
    worker = idle_worker("127.0.0.1:1", settings=_FAST)
    run = asyncio.ensure_future(worker.run_async(client=server))
    await eventually(lambda: "worker started" in caplog.text)
    worker.request_stop()
    await asyncio.wait_for(run, 30)
    assert "is set but not used" not in caplog.text
