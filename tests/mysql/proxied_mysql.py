"""One shard's database on a real server, with a proxy in between: what the tests of failures work on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest

from pinlater.server.storage.mysql import membership, migration
from pinlater.server.storage.mysql.settings import MysqlEndpoint, MysqlSettings
from pinlater.server.storage.mysql.shard import MysqlShard
from pinlater.server.storage.mysql.statements import Sql
from tests.databases.database import DatabaseServer
from tests.databases.proxy import Proxy
from tests.mysql.consistency import inconsistencies
from tests.shared_shards.proxied_database import ProxiedDatabase

DATABASE = "pinlater_1"
COMMIT = b";COMMIT"  # not that of READ COMMITTED

# Short, so that a test of a limit ends soon; long enough for a slow machine.
LIMITS: dict[str, Any] = {
    "statement_timeout_ms": 3_000,
    "connect_timeout_ms": 5_000,
    "lock_wait_ms": 1_000,
    "retries": 3,
    "retry_pause_ms": 5,
}


class ProxiedMysql(ProxiedDatabase[DatabaseServer, MysqlShard]):
    """A server with one shard, in its database `name`."""

    limits = LIMITS
    time_limit = "statement_timeout_ms"
    claim_read_again = b"SELECT id, attempts_allowed, created_at_ms, body"
    counts_settled_as_lost = False

    def __init__(self, server: DatabaseServer, proxy: Proxy, name: str, stack: AsyncExitStack) -> None:
        super().__init__(server, proxy, stack)
        self.name = name

    def endpoint(self, *, direct: bool = False, **other: Any) -> MysqlEndpoint:
        port = self.server.port if direct else self.proxy.port
        usual = MysqlEndpoint("127.0.0.1", port, self.server.user, self.server.password, self.name)
        return replace(usual, **other)

    def shard(self, *, direct: bool = False, endpoint: MysqlEndpoint | None = None, **settings: Any) -> MysqlShard:
        shard = MysqlShard(endpoint or self.endpoint(direct=direct), MysqlSettings(**{**LIMITS, **settings}))
        self._stack.push_async_callback(shard.close)
        return shard

    @property
    def url(self) -> str:
        return f"mysql://{self.server.user}:{quote(self.server.password, safe='')}@{self.server.address}/{self.name}"

    def packet_of(self, change: str) -> bytes:
        return COMMIT

    async def expire_leases(self) -> None:
        await self.ask("UPDATE servers SET seen_at_ms = seen_at_ms - 3600000")

    async def make_older(self, slot: int) -> None:
        await self.ask("INSERT IGNORE INTO programs (program) VALUES (0)")
        await self.ask(f"UPDATE servers SET program = DEFAULT WHERE slot = {slot}")
        await self.ask(f"UPDATE meta SET value = '{migration.migrations()[-1].number}' WHERE name = 'schema'")

    async def schema(self) -> int:
        [[value]] = await self.ask("SELECT value FROM meta WHERE name = 'schema'")
        return int(value)

    def become_older(self, monkeypatch: pytest.MonkeyPatch) -> None:
        save = membership._SAVE_SERVER
        monkeypatch.setattr(migration, "newest_version", lambda: migration.ORDERED - 2)
        monkeypatch.setattr(membership, "_SAVE_SERVER", lambda **row: save(**{**row, "program": Sql(b"DEFAULT")}))

    async def ahead_ms(self, slot: int) -> int | None:
        found = await self.ask(f"SELECT ahead_ms FROM clocks WHERE slot = {slot}")
        return found[0][0] if found else None

    async def clock_s(self) -> int:
        [[now]] = await self.server.execute("SELECT UNIX_TIMESTAMP()")
        return int(now)

    async def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """One statement by the admin in the shard's database."""
        async with self.server.connect(database=self.name) as connection, connection.cursor() as cursor:
            await cursor.execute(statement)
            return list(await cursor.fetchall() or ())

    async def assert_consistent(self, *, deleted: bool = False) -> None:
        assert await inconsistencies(self.server, self.name, deleted=deleted) == []


@asynccontextmanager
async def proxied(
    server: DatabaseServer, database: str = DATABASE, *, keep: bool = False
) -> AsyncIterator[ProxiedMysql]:
    """The database of that name on a running server, with an empty shard unless it is kept."""
    if not keep:
        await empty(server, database)
    async with AsyncExitStack() as stack:
        yield ProxiedMysql(server, await stack.enter_async_context(Proxy(server.address)), database, stack)


async def empty(server: DatabaseServer, database: str) -> None:
    """Deletes all rows of the shard but the schema's version, if there is one: making the tables anew would cost more than most tests."""
    async with server.connect() as connection, connection.cursor() as cursor:
        await cursor.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = %s", (database,))
        tables = list(await cursor.fetchall())
        await cursor.execute("SET foreign_key_checks = 0")
        for (table,) in tables:
            which = " WHERE name <> 'schema'" if table == "meta" else ""
            await cursor.execute(f"DELETE FROM {database}.{table}{which}")
