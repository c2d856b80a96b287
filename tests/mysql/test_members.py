"""Servers on the same shards know each other through the store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from urllib.parse import quote

import pytest

from pinlater.client import AsyncClient, Job
from pinlater.domain.clock import SystemClock
from pinlater.server.config.load import load
from pinlater.server.main.app import App
from tests.databases.mariadb import MariaDb

Start = Callable[..., Awaitable[App]]


@pytest.fixture
async def start(mariadb: MariaDb, mariadb_prefix: str) -> AsyncIterator[Start]:
    """Starts servers on one database; they stop with the test."""
    password = quote(mariadb.password, safe="")
    store = f"mysql://{mariadb.user}:{password}@{mariadb.address}/{mariadb_prefix}jobs"
    async with AsyncExitStack() as running:

        async def one(clock: SystemClock | None = None, **more: object) -> App:
            flags = {"store": store, "thrift.port": 0, "http.port": 0, **more}
            app = App(load(None, {}, flags).settings, clock=clock)
            await app.start()
            running.push_async_callback(app.stop, 1.0)
            return app

        yield one


async def test_a_server_that_stops_is_no_longer_counted(start: Start) -> None:
    one, other = await start(), await start()
    assert other.cluster.members.servers == 2
    await one.stop(1.0)
    await other.cluster.look()
    assert other.cluster.members.servers == 1


async def test_a_server_that_can_not_start_leaves_no_connection_to_the_others(start: Start) -> None:
    one = await start()
    with pytest.raises(OSError, match="Thrift can't listen"):
        await start(**{"thrift.port": one.thrift.port})
    await until(lambda: not [each for each in one.cluster.listener.connections if each.proven])


async def test_a_dequeue_that_waits_here_gets_a_job_enqueued_there(start: Start) -> None:
    """The wake alone brings it: the next look for changes of other servers is far off."""
    hour = {"maintenance.others_interval_ms": 3_600_000}
    one, other = await start(**hour), await start(**hour)
    await one.cluster.look()  # learns of the second; as every few seconds
    async with (
        AsyncClient([f"127.0.0.1:{one.thrift.port}"]) as producer,
        AsyncClient([f"127.0.0.1:{other.thrift.port}"]) as worker,
    ):
        queue = await owned_by(one, other)
        await producer.create_queue(queue)
        await other.core.service.queue_cache.refresh()
        waiting = asyncio.create_task(worker.dequeue(queue, wait_ms=30_000))
        await until(lambda: other.core.dispatcher.waiting(queue) == 1)
        await producer.enqueue(queue, [Job(b"over there")])
        dequeued = await waiting
    assert [job.body for job in dequeued.jobs] == [b"over there"]
    assert other.cluster.wakes.received >= 1


async def owned_by(one: App, other: App) -> str:
    """A queue of which both servers know that the first one owns it: the job is inserted there, and not where a dequeue waits."""
    [here], [there] = one.core.shards, other.core.shards
    found: list[str] = []

    def found_one() -> bool:
        found[:] = [name for name in map(str, range(100)) if here.owns(name) and not there.owns(name)]
        return bool(found)

    await until(found_one)
    return found[0]


async def test_where_no_wake_arrives_a_look_finds_the_job(start: Start) -> None:
    one, other = await start(), await start()
    for app in (one, other):
        app.cluster.listener.take_wakes = lambda _: None
    async with (
        AsyncClient([f"127.0.0.1:{one.thrift.port}"]) as producer,
        AsyncClient([f"127.0.0.1:{other.thrift.port}"]) as worker,
    ):
        await producer.create_queue("q")
        await other.core.service.queue_cache.refresh()
        waiting = asyncio.create_task(worker.dequeue("q", wait_ms=30_000))
        await until(lambda: other.core.dispatcher.waiting("q") == 1)
        await producer.enqueue("q", [Job(b"seen")])
        dequeued = await asyncio.wait_for(waiting, 30)
    assert [job.body for job in dequeued.jobs] == [b"seen"]


async def test_all_servers_go_by_the_databases_time(start: Start, mariadb: MariaDb) -> None:
    """Also one whose own clock is an hour fast, and one that is a minute slow."""
    fast = await start(clock=SystemClock(wall=lambda: time.time() + 3600))
    slow = await start(clock=SystemClock(wall=lambda: time.time() - 60))
    [[there]] = await mariadb.execute("SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)")
    assert abs(fast.clock.now_ms() - slow.clock.now_ms()) < 1_000
    assert abs(fast.clock.now_ms() - there) < 10_000, "the statement above takes its time on a busy machine"


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not true():
            await asyncio.sleep(0)
