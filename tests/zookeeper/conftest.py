"""Ensembles, and servers that they coordinate."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from kazoo.client import KazooClient

from pinlater.server.config.load import load
from pinlater.server.main.app import App
from pinlater.testing.real_server import RealServer
from tests.databases.fixtures import make_zookeeper_or_skip
from tests.databases.redis import RedisServer
from tests.databases.servers import DatabaseServers
from tests.databases.zookeeper import ZooKeeperEnsemble
from tests.redis.proxied_redis import proxied

SESSION_S = 2.0
_NUMBERS = count(1)
Start: TypeAlias = Callable[..., RealServer]
StartHere: TypeAlias = Callable[..., Awaitable[App]]
Nodes: TypeAlias = KazooClient


@pytest.fixture(scope="session")
def shared_ensemble(database_servers: DatabaseServers) -> Iterator[ZooKeeperEnsemble]:
    """One server, for tests that do it no harm. Each may make nodes below `pinlater`, also after one that makes its own for a user."""
    ensemble = make_zookeeper_or_skip(database_servers, 1).start()
    client = KazooClient(ensemble.address)
    client.start()
    client.ensure_path("pinlater")
    client.stop()
    client.close()
    yield ensemble
    ensemble.remove()


@pytest.fixture
def ensemble(database_servers: DatabaseServers) -> Iterator[ZooKeeperEnsemble]:
    """Three servers of the test's own, which can be cut off from each other."""
    ensemble = make_zookeeper_or_skip(database_servers, 3)
    with ensemble.divisible():
        yield ensemble.start()
        ensemble.remove()


@pytest.fixture
def nodes(shared_ensemble: ZooKeeperEnsemble, path: str) -> Iterator[Nodes]:
    """A client at the test's path."""
    client = KazooClient(shared_ensemble.address)
    client.start()
    client.ensure_path(path)
    client.chroot = f"/{path}"
    yield client
    client.stop()
    client.close()


@pytest.fixture
def path() -> str:
    """The test's own path in an ensemble."""
    return f"pinlater/{next(_NUMBERS)}"


@pytest.fixture
def start(start_redis: Callable[..., RedisServer], tmp_path: Path, path: str) -> Iterator[Start]:
    """Starts servers on one Redis. They stop before an ensemble that the test asks for first."""
    redis = start_redis()
    with ExitStack() as running:

        def one(zookeeper: ZooKeeperEnsemble | str, *options: str, within: str = path) -> RealServer:
            address = zookeeper if isinstance(zookeeper, str) else zookeeper.address
            settings = {
                "cluster.coordinator": "zookeeper",
                "cluster.zookeeper": f"{address}/{within}",
                "cluster.session_timeout_s": str(SESSION_S),
                "console": "false",
            }
            words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
            server = RealServer(tmp_path, *words, *options, store=f"redis://{redis.address}/0")
            return running.enter_context(server)

        yield one


@pytest.fixture
async def start_here(redis_server: RedisServer, path: str) -> AsyncIterator[StartHere]:
    """Starts servers in this process on one shard; they stop with the test, before the shared ensemble."""
    async with AsyncExitStack() as running, proxied(redis_server) as database:

        async def one(address: str, **more: Any) -> App:
            settings = {
                "store": database.url,
                "thrift.port": 0,
                "http.port": 0,
                "cluster.coordinator": "zookeeper",
                "cluster.zookeeper": f"{address}/{path}",
                "cluster.session_timeout_s": SESSION_S,
                **more,
            }
            app = App(load(None, {}, settings).settings)
            await app.start()
            running.push_async_callback(app.stop, 1.0)
            return app

        yield one
