"""Databases of MariaDB as the benchmark's stores: private servers of its own, which end with the run, however it ends.

They run as the documentation advises (a flush at every commit) and no configuration file of the machine is read. A fresh store is a
fresh database, or several, on servers that run already: what the row before left to flush or to purge is still about.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from bench import bare_mysql
from bench.servers import cpu_seconds
from bench.stores import BenchmarkStore
from pinlater.server.storage.interface import Shard
from pinlater.server.storage.mysql.settings import MysqlEndpoint, MysqlSettings
from pinlater.server.storage.mysql.shard import MysqlShard
from tests.databases.guard import Guard
from tests.databases.mariadb import MariaDb
from tests.databases.server_process import Option

T = TypeVar("T")

OPTIONS: Mapping[str, Option] = {"innodb_buffer_pool_size": "1G", "innodb_log_file_size": "512M"}
# Filling sends what no request would: five thousand jobs at a time.
_FILLING = MysqlSettings(statement_timeout_ms=120_000)
_SETTLED_SECONDS_MAX = 300.0
_DIRTY_PAGES_LEFT, _HISTORY_LEFT = 200, 2_000
_LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class MysqlStore:
    """A database for each shard: shard `n` is on the n-th of `servers`, and its database is called after it."""

    servers: tuple[MariaDb, ...]
    prefix: str
    folder: Path
    is_kept: bool = False

    @property
    def arguments(self) -> tuple[str, ...]:
        """A shard file, which is how several shards are named, and one as well."""
        entries = {
            f"shard{number}": {
                "master": {"host": server.host, "port": server.port},
                "user": server.user,
                "passwd": server.password,
            }
            for number, server in enumerate(self.servers, 1)
        }
        path = self.folder / f"{self.prefix}.json"
        path.touch(mode=0o600)
        path.write_text(json.dumps(entries))
        return "--store", f"mysql:{path}", "--set", f"mysql.database_prefix={self.prefix}"

    def shard(self) -> Shard:
        """Its first."""
        return self.first_shard()

    def first_shard(self) -> MysqlShard:
        """The same, with what only this kind of shard can do."""
        [server, *_] = self.servers
        endpoint = MysqlEndpoint(server.host, server.port, server.user, server.password, f"{self.prefix}_1")
        return MysqlShard(endpoint, _FILLING)

    def remove(self) -> None:
        """Its databases are dropped. One that is kept stays as the last use left it."""
        if not self.is_kept:
            for server in set(self.servers):
                asyncio.run(server.drop_databases(f"{self.prefix}_"))

    def settle(self) -> None:
        """Waits until its servers have flushed and purged what came before."""
        _settle_all(self.servers)


class MysqlStores:
    """Stores on MariaDB. The n-th server starts when a store first needs it."""

    kind = "mysql"

    def __init__(self, folder: Path, *, quick: bool) -> None:
        self._where = folder.resolve()
        self._quick = quick
        self._options = {} if quick else dict(OPTIONS)
        self._guard: Guard | None = None
        self._all: list[MariaDb] = []
        self._servers: list[MariaDb] = []
        self._prepared: dict[str, MysqlStore] = {}
        self._number = 0

    def __enter__(self) -> MysqlStores:
        MariaDb.command()  # says at once where there is none
        # A short name: it begins the path of a socket, which has a hundred signs.
        self._folder = Path(tempfile.mkdtemp(prefix="db-", dir=self._where))
        self._guard = Guard(self._folder)
        MariaDb.make_template(self._folder / "template")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self._all:
            server.remove()
        assert self._guard is not None
        self._guard.end()

    def facts(self) -> dict[str, str]:
        [(version,)] = asyncio.run(self._nth(0).execute("SELECT VERSION()"))
        settings = {"innodb_flush_log_at_trx_commit": 1, **self._options}
        words = ", ".join(f"{name}={value}" for name, value in settings.items())
        return {"store": self.kind, "database": version, "database_settings": words}

    def new(self) -> MysqlStore:
        return self.spread(1)

    def spread(self, shards: int, *, servers: int = 1, first: int = 0) -> MysqlStore:
        """A new store of several shards, distributed over this number of database servers, from the one of that number on."""
        return self._store(tuple(self._nth(first + number % servers) for number in range(shards)))

    def prepared(self, name: str, fill: Callable[[BenchmarkStore], None]) -> MysqlStore:
        """On a database server of its own, so that its size is no other store's matter. Not copied: each use works on what the last
        one left, which matters little where it takes and adds a small part of what is there."""
        if name not in self._prepared:
            store = self._store((self._start(),), is_kept=True)
            fill(store)
            store.settle()
            self._prepared[name] = store
        return self._prepared[name]

    def rest(self) -> None:
        if not self._quick:
            _settle_all(self._all)

    def cpu_seconds(self) -> float:
        return sum(cpu_seconds(server.pid) for server in self._all)

    def bare(self, rows_per_commit: int, seconds: float) -> float:
        return asyncio.run(bare_mysql.insert_rate(self._nth(0), rows_per_commit, seconds))

    def statements_during(self, work: Callable[[], T]) -> tuple[T, int]:
        """What `work` gives, and how many statements the database servers were sent meanwhile, by their own counts."""
        return asyncio.run(_statements_during(self._all, work))

    def _nth(self, number: int) -> MariaDb:
        while len(self._servers) <= number:
            self._servers.append(self._start())
        return self._servers[number]

    def _start(self) -> MariaDb:
        server = MariaDb(self._folder / f"{len(self._all) + 1}", self._folder / "template", self._options)
        self._all.append(server)
        return server.start()

    def _store(self, servers: tuple[MariaDb, ...], *, is_kept: bool = False) -> MysqlStore:
        self._number += 1
        return MysqlStore(servers, f"bench{self._number}", self._folder, is_kept)


async def _statements_during(servers: Sequence[MariaDb], work: Callable[[], T]) -> tuple[T, int]:
    async with AsyncExitStack() as stack:
        cursors = [
            await stack.enter_async_context((await stack.enter_async_context(server.connect())).cursor())
            for server in servers
        ]
        before = [await _status(cursor, "Questions") for cursor in cursors]
        answer = work()
        own = 1  # the second look
        after = [await _status(cursor, "Questions") for cursor in cursors]
        return answer, sum(after) - sum(before) - own * len(cursors)


def _settle_all(servers: Iterable[MariaDb]) -> None:
    """One after the other: at rest they are all in the end, and they share a disk."""
    for server in dict.fromkeys(servers):
        asyncio.run(_settle(server))


async def _settle(server: MariaDb) -> None:
    deadline = time.monotonic() + _SETTLED_SECONDS_MAX
    async with server.connect() as connection, connection.cursor() as cursor:
        usual, capacity, capacity_max = await _row(
            cursor,
            "SELECT @@GLOBAL.innodb_max_dirty_pages_pct, @@GLOBAL.innodb_io_capacity, @@GLOBAL.innodb_io_capacity_max",
        )
        await cursor.execute(f"SET GLOBAL innodb_max_dirty_pages_pct = 0, GLOBAL innodb_io_capacity = {capacity_max}")
        while (
            await _status(cursor, "Innodb_buffer_pool_pages_dirty") > _DIRTY_PAGES_LEFT
            or await _status(cursor, "Innodb_history_list_length") > _HISTORY_LEFT
        ):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the database did not come to rest within {_SETTLED_SECONDS_MAX:.0f} s")
            await asyncio.sleep(_LOOK_SECONDS)
        await cursor.execute(f"SET GLOBAL innodb_max_dirty_pages_pct = {usual}, GLOBAL innodb_io_capacity = {capacity}")


async def _status(cursor: Any, name: str) -> int:
    return int((await _row(cursor, f"SHOW GLOBAL STATUS LIKE '{name}'"))[1])


async def _row(cursor: Any, statement: str) -> tuple[Any, ...]:
    await cursor.execute(statement)
    [row] = await cursor.fetchall()
    return tuple(row)
