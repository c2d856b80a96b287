"""A database on each kind of database server that several servers share."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

import pytest

from pinlater.server.config.load import load
from pinlater.server.main.app import App
from tests.contract.desk import Desk
from tests.databases.redis import RedisServer
from tests.mysql.proxied_mysql import proxied as proxied_mysql
from tests.redis.proxied_redis import proxied as proxied_redis
from tests.shared_shards.proxied_database import ProxiedDatabase

# The fixture with the session's server of each kind.
SERVERS = {"mariadb": "mariadb", "mysql8": "mysql8", "redis": "redis_server"}

AnyDatabase = ProxiedDatabase[Any, Any]
Start = Callable[[], Awaitable[App]]


def proxied(server: Any) -> AbstractAsyncContextManager[AnyDatabase]:
    """A database on a running server of any kind, with an empty shard."""
    return proxied_redis(server) if isinstance(server, RedisServer) else proxied_mysql(server)


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what a test sets."""
    for name in [name for name in os.environ if name.startswith("PINLATER_")]:
        monkeypatch.delenv(name)


@pytest.fixture(params=list(SERVERS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def database(kind: str, request: pytest.FixtureRequest) -> AsyncIterator[AnyDatabase]:
    """On the session's server, which a test must leave as it is."""
    async with proxied(request.getfixturevalue(SERVERS[kind])) as database:
        yield database


@pytest.fixture
async def desk(database: AnyDatabase) -> Desk:
    """A desk behind the proxy."""
    return await database.desk()


@pytest.fixture
async def start(database: AnyDatabase) -> AsyncIterator[Start]:
    """Starts servers on the database's shard; they stop with the test."""
    async with AsyncExitStack() as running:

        async def one() -> App:
            app = App(load(None, {}, {"store": database.url, "thrift.port": 0, "http.port": 0}).settings)
            await app.start()
            running.push_async_callback(app.stop, 1.0)
            return app

        yield one
