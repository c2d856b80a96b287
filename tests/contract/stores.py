"""The stores that must pass the contract suite. A new one adds a function and a line in `STORES`.

A function is given an empty folder of the test's own, and a clock, and makes an unopened shard on it. Called again with the same folder,
it gives a shard on the same data: that is how durable stores are opened again. A store with a server makes its database's name from the
folder's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

from pinlater.server.storage.interface import Shard
from pinlater.server.storage.mysql.settings import MysqlEndpoint
from pinlater.server.storage.mysql.shard import MysqlShard
from pinlater.server.storage.redis.settings import RedisEndpoint
from pinlater.server.storage.redis.shard import RedisShard
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.server.storage.sqlite.settings import SqliteSettings
from pinlater.server.storage.sqlite.shard import SqliteShard
from tests.databases.database import DatabaseServer
from tests.databases.fixtures import OTHER_REDIS_SERVERS
from tests.databases.redis import RedisServer

Monotonic = Callable[[], float]
Make = Callable[[Path, Monotonic], Shard]


def _memory(folder: Path, monotonic: Monotonic) -> Shard:
    return MemoryShard()


def _sqlite(folder: Path, monotonic: Monotonic) -> Shard:
    # Hundreds of stores are opened in a run: each log of the usual length would write gigabytes in all.
    return SqliteShard(folder / "jobs.db", SqliteSettings(wal_reserve_kib=64), monotonic=monotonic)


def _mysql(kind: str) -> Make:
    def make(folder: Path, monotonic: Monotonic) -> Shard:
        server = SERVERS[kind]
        if _last_folder.get(kind) != folder:  # another test's: it begins with an empty shard
            _last_folder[kind] = folder
            _empty(server)
        endpoint = MysqlEndpoint(server.host, server.port, server.user, server.password, _DATABASE)
        return MysqlShard(endpoint, monotonic=monotonic)

    return make


def _empty(server: DatabaseServer) -> None:
    """Deletes all rows but the schema's version, in one transaction: making the tables anew would cost more than most tests."""

    async def delete() -> None:
        rows = await server.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = %s",
            _DATABASE,
        )
        # The rows of `counters` refer to rows of other tables.
        tables = sorted((name for (name,) in rows), key="counters".__ne__)
        await server.execute_together(
            f"DELETE FROM {_DATABASE}.{table}" + (" WHERE name <> 'schema'" if table == "meta" else "")
            for table in tables
        )

    with ThreadPoolExecutor(1) as thread:  # the caller's thread may run a loop already
        thread.submit(asyncio.run, delete()).result()


def _redis(kind: str) -> Make:
    def make(folder: Path, monotonic: Monotonic) -> Shard:
        server = REDIS[kind]
        if _last_folder.get(kind) != folder:  # another test's: it begins with an empty shard
            _last_folder[kind] = folder
            server.execute("FLUSHALL")
        return RedisShard(RedisEndpoint(server.host, server.port), monotonic=monotonic)

    return make


_DATABASE = "contract"
_last_folder: dict[str, Path] = {}
# Running servers by kind of store; a test on such a store puts its server here first (`needs_server`).
SERVERS: dict[str, DatabaseServer] = {}
REDIS: dict[str, RedisServer] = {}

STORES: dict[str, Make] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "mariadb": _mysql("mariadb"),
    "mysql8": _mysql("mysql8"),
    "redis": _redis("redis"),
    **{kind: _redis(kind) for kind in OTHER_REDIS_SERVERS},
}
# The stores that several servers use at once.
SHARED = [kind for kind in STORES if kind not in {"memory", "sqlite"}]


def needs_server(kind: str, request: pytest.FixtureRequest) -> None:
    """Starts the server that a kind of store needs, if it needs one; skips or fails the test where there is none."""
    if kind in {"mariadb", "mysql8"}:
        SERVERS[kind] = request.getfixturevalue(kind)
    elif kind == "redis":
        REDIS[kind] = request.getfixturevalue("redis_server")
    elif kind in OTHER_REDIS_SERVERS:
        REDIS[kind] = request.getfixturevalue("other_redis_servers")(kind)


def never_old() -> Monotonic:
    """A clock on which an hour passes between any two looks at it: nothing that a shard remembers for some time is still good."""
    return count(step=3_600).__next__


def make_store(kind: str, folder: Path, monotonic: Monotonic = time.monotonic) -> Shard:
    """An unopened shard on `folder`."""
    return STORES[kind](folder, monotonic)
