"""One shard's database on a real server, with a proxy in between: what the tests of failures work on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

from pinlater.server.storage.mysql.settings import Endpoint, MysqlSettings
from pinlater.server.storage.mysql.shard import MysqlShard
from tests.contract.desk import Desk
from tests.mysql.consistency import inconsistencies
from tests.servers.database import DatabaseServer
from tests.servers.proxy import Proxy

DATABASE = "pinlater_1"
QUEUE = "emails"
PATIENCE_S = 30.0

# Short, so that a test of a limit ends soon; long enough for a slow machine.
LIMITS: dict[str, Any] = {
    "statement_timeout_ms": 3_000,
    "connect_timeout_ms": 2_000,
    "lock_wait_ms": 1_000,
    "retries": 3,
    "retry_pause_ms": 5,
}


class Rig:
    """A server with one empty shard, reached through `proxy`. Shards and desks made here are closed with it."""

    def __init__(self, server: DatabaseServer, proxy: Proxy, database: str, stack: AsyncExitStack) -> None:
        self.server = server
        self.proxy = proxy
        self.database = database
        self._stack = stack

    def endpoint(self, *, direct: bool = False, **other: Any) -> Endpoint:
        port = self.server.port if direct else self.proxy.port
        usual = Endpoint("127.0.0.1", port, self.server.user, self.server.password, self.database)
        return replace(usual, **other)

    def shard(self, *, direct: bool = False, endpoint: Endpoint | None = None, **settings: Any) -> MysqlShard:
        """A shard that is not open yet. `direct`: past the proxy."""
        shard = MysqlShard(endpoint or self.endpoint(direct=direct), MysqlSettings(**{**LIMITS, **settings}))
        self._stack.push_async_callback(shard.close)
        return shard

    async def open(self, *, direct: bool = False, **settings: Any) -> MysqlShard:
        """An open one."""
        shard = self.shard(direct=direct, **settings)
        await shard.open(0)
        return shard

    async def desk(self, *, direct: bool = False, **settings: Any) -> Desk:
        """An open desk with the queue `emails`."""
        desk = Desk(lambda: self.shard(direct=direct, **settings))
        await desk.open()
        await desk.shard.create_queues([QUEUE], desk.now)
        return desk

    async def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """One statement by the admin in the shard's database."""
        async with self.server.connect(database=self.database) as connection, connection.cursor() as cursor:
            await cursor.execute(statement)
            return list(await cursor.fetchall() or ())

    async def assert_consistent(self, *, deleted: bool = False) -> None:
        assert await inconsistencies(self.server, self.database, deleted=deleted) == []


@asynccontextmanager
async def rig_on(server: DatabaseServer, database: str = DATABASE, *, keep: bool = False) -> AsyncIterator[Rig]:
    """A rig on a running server, with an empty shard unless it is kept."""
    if not keep:
        await empty(server, database)
    async with AsyncExitStack() as stack:
        yield Rig(server, await stack.enter_async_context(Proxy(server.address)), database, stack)


def stats_of(desk: Desk) -> Any:
    """The transactions' figures of a desk's shard."""
    assert isinstance(desk.shard, MysqlShard)
    return desk.shard.stats


async def empty(server: DatabaseServer, database: str) -> None:
    """Deletes all rows of the shard but the schema's version, if there is one: making the tables anew would cost more than most tests."""
    async with server.connect() as connection, connection.cursor() as cursor:
        await cursor.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = %s", (database,))
        for (table,) in list(await cursor.fetchall()):
            which = " WHERE name <> 'schema'" if table == "meta" else ""
            await cursor.execute(f"DELETE FROM {database}.{table}{which}")


async def until(condition: Callable[[], Awaitable[bool]], every_s: float = 0.01) -> None:
    """Polls until it is so; fails after `PATIENCE_S`."""
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():
            await asyncio.sleep(every_s)


async def gathered(calls: Iterable[Awaitable[Any]]) -> list[Any]:
    """What became of each, errors as values."""
    return await asyncio.gather(*calls, return_exceptions=True)
