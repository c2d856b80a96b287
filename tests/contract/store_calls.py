"""How much a store asks its database, counted by the database: by SQLite, by the server of MySQL or MariaDB, or by Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from pinlater.server.storage.interface import Shard
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.server.storage.sqlite.shard import SqliteShard
from tests.contract.stores import REDIS, SERVERS
from tests.databases.database import DatabaseServer
from tests.databases.redis import RedisServer

CallsSince = Callable[[], Awaitable[int]]


@asynccontextmanager
async def counted_calls(kind: str, shard: Shard) -> AsyncIterator[CallsSince]:
    """Gives a function that tells how many statements or commands there were since it was last called, or since the beginning.

    No other client may use the database meanwhile. An embedded shard must be open.
    """
    if isinstance(shard, SqliteShard):
        yield _of_sqlite(shard)
    elif kind in SERVERS:
        async with _of_mysql(SERVERS[kind]) as calls_since:
            yield calls_since
    else:
        async with _of_redis(REDIS[kind]) as calls_since:
            yield calls_since


def traced_statements(shard: SqliteShard) -> list[str]:
    """Grows by what SQLite executes for an open shard, BEGIN, COMMIT and PRAGMA included; checkpoints in the background are left out."""
    executed: list[str] = []
    opened = shard._open
    readers = [] if isinstance(shard, MemoryShard) else opened.readers._all
    for connection in (opened.connection, *readers):
        connection.set_trace_callback(executed.append)
    return executed


def _of_sqlite(shard: SqliteShard) -> CallsSince:
    executed = traced_statements(shard)

    async def calls_since() -> int:
        number = len(executed)
        executed.clear()
        return number

    return calls_since


@asynccontextmanager
async def _of_mysql(server: DatabaseServer) -> AsyncIterator[CallsSince]:
    async with server.connect() as connection, connection.cursor() as cursor:

        async def total() -> int:
            await cursor.execute("SHOW GLOBAL STATUS LIKE 'Questions'")
            [(_, number)] = await cursor.fetchall()
            return int(number)

        yield await _differences(total)


@asynccontextmanager
async def _of_redis(server: RedisServer) -> AsyncIterator[CallsSince]:
    with server.session() as ask:

        async def total() -> int:
            return int(ask("INFO", "stats")["total_commands_processed"])

        yield await _differences(total)


async def _differences(total: Callable[[], Awaitable[int]]) -> CallsSince:
    """By how much `total` grows, without the call that asks for it."""
    before = await total()

    async def calls_since() -> int:
        nonlocal before
        last, before = before, await total()
        return before - last - 1

    return calls_since
