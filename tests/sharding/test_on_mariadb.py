"""Three MariaDB servers as shards, under load: one is killed and comes back, one stands still. Nothing acknowledged is lost or doubled."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from itertools import count

import pytest

from pinlater import app as app_module
from pinlater.app import App
from pinlater.config.settings import Settings
from pinlater.config.store import StoreLocation
from pinlater.domain.errors import PinLaterError
from pinlater.http_server.settings import HttpSettings
from pinlater.service.values import AckBatch, AckItem, Caller, DequeueCommand, JobToEnqueue
from pinlater.sharding.reload import DesiredShard
from pinlater.storage.mysql.settings import Endpoint
from pinlater.storage.mysql.shard import MysqlShard
from pinlater.thrift_server.settings import ThriftSettings
from tests.servers.mariadb import MariaDb

CALLER = Caller("tests")
SETTINGS = replace(
    Settings(),
    store=StoreLocation("memory"),
    thrift=ThriftSettings(host="127.0.0.1", port=0),
    http=HttpSettings(host="127.0.0.1", port=0),
)
pytestmark = pytest.mark.crash


def _shard(server: MariaDb, name: str) -> DesiredShard:
    endpoint = Endpoint(server.host, server.port, server.user, server.password, f"pinlater_{name}")
    return DesiredShard(name, lambda: MysqlShard(endpoint, name=name), str(endpoint))


class Load:
    """Producers with request keys, who send again as a repeat where they don't know, and workers, who ack until they are told."""

    def __init__(self, app: App) -> None:
        self._service = app.service
        self._over = asyncio.Event()
        self._numbers = count()
        self.stored: dict[str, bytes] = {}
        self.done = Counter[bytes]()
        self.errors = Counter[str]()

    async def run(self, during: Callable[[], object]) -> None:
        work = [asyncio.create_task(self._produce()) for _ in range(8)]
        work += [asyncio.create_task(self._consume()) for _ in range(8)]
        await during()  # type: ignore[misc]
        self._over.set()
        async with asyncio.timeout(60):
            await asyncio.gather(*work)

    async def _produce(self) -> None:
        while not self._over.is_set():
            body = b"%d" % next(self._numbers)
            repeat = False
            while True:
                try:
                    answer = await self._service.enqueue(
                        CALLER, "q", [JobToEnqueue(body)], request_key=body.decode(), repeat=repeat
                    )
                except PinLaterError as error:
                    self.errors[error.detail] += 1
                    repeat = True
                    await asyncio.sleep(0.02)
                    continue
                self.stored[answer.descriptors[0]] = body
                break

    async def _consume(self) -> None:
        while not self._over.is_set() or sum(self.done.values()) < len(self.stored):
            try:
                dequeued = await self._service.dequeue(CALLER, DequeueCommand("q", 5, wait_ms=200))
            except PinLaterError as error:
                self.errors[error.detail] += 1
                continue
            for job in dequeued.jobs:
                self.done[job.job.body] += 1
                await self._ack(AckItem(job.descriptor, True, job.token))

    async def _ack(self, item: AckItem) -> None:
        while True:
            try:
                await self._service.acknowledge(CALLER, AckBatch("q", [item]))
            except PinLaterError as error:
                self.errors[error.detail] += 1
                await asyncio.sleep(0.05)
            else:
                return


@pytest.fixture
async def farm(
    start_mariadb: Callable[..., MariaDb], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[App, Sequence[MariaDb]]]:
    servers = [start_mariadb() for _ in range(3)]
    desired = [_shard(server, str(number + 1)) for number, server in enumerate(servers)]
    monkeypatch.setattr(app_module, "make_shards", lambda settings: desired)
    app = App(SETTINGS)
    await app.start()
    await app.service.create_queue("q")
    yield app, servers
    await app.stop(0)


async def _until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


def _check(load: Load) -> None:
    assert len(load.stored) > 100
    assert len(set(load.stored.values())) == len(load.stored)
    assert set(load.done) == set(load.stored.values())
    assert {body: times for body, times in load.done.items() if times > 1} == {}


async def test_a_shard_is_killed_and_comes_back(farm: tuple[App, Sequence[MariaDb]]) -> None:
    app, servers = farm
    load = Load(app)
    shard = app.shards.get("2")
    assert shard is not None

    async def during() -> None:
        await _until(lambda: len(load.stored) > 50)
        servers[1].kill()
        await _until(lambda: not shard.healthy)
        so_far = len(load.stored)
        await _until(lambda: len(load.stored) > so_far + 50)
        await asyncio.to_thread(servers[1].restart)
        await _until(lambda: shard.healthy)
        so_far = len(load.stored)
        await _until(lambda: len(load.stored) > so_far + 50)

    await load.run(during)
    _check(load)


async def test_a_shard_stands_still_for_some_seconds(farm: tuple[App, Sequence[MariaDb]]) -> None:
    app, servers = farm
    load = Load(app)
    shard = app.shards.get("3")
    assert shard is not None

    async def during() -> None:
        await _until(lambda: len(load.stored) > 50)
        servers[2].suspend()
        await _until(lambda: not shard.healthy, 6)
        so_far = len(load.stored)
        await _until(lambda: len(load.stored) > so_far + 50)
        servers[2].resume()
        await _until(lambda: shard.healthy)

    await load.run(during)
    _check(load)
