"""How connections to MySQL are set, which only they can be asked: the database tells no other client."""

from __future__ import annotations

from typing import Any

from pinlater.server.storage.mysql.connection import MysqlConnection
from tests.databases.database import DatabaseServer
from tests.mysql.proxied_mysql import ProxiedMysql, proxied
from tests.mysql.test_layout import ISOLATION, READ_LIMIT
from tests.mysql.test_odd_servers import odd_server

__all__ = ["odd_server"]  # a fixture


async def test_every_connection_is_set_as_we_need_it(database: ProxiedMysql, kind: str) -> None:
    """READ COMMITTED, strict, in UTC, and with time limits shorter than the database's eight hours and one year."""
    shard = await database.open(direct=True, lock_wait_ms=1_500, statement_timeout_ms=2_500, lease_ms=20_000)
    usual = [b"@@innodb_lock_wait_timeout", b"@@lock_wait_timeout", b"@@time_zone", ISOLATION[kind], b"@@sql_mode"]
    expected = (2, 2, "+00:00", "READ-COMMITTED", "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION")
    assert await settings_of(await shard._connect_writer(), usual) == expected
    assert await settings_of(await shard._connect_reader(), usual) == expected
    assert await settings_of(await shard._connect_writer(), [b"@@wait_timeout"]) == (10,)
    assert await settings_of(await shard._connect_reader(), [READ_LIMIT[kind]]) == (2_500,)


async def settings_of(connection: MysqlConnection, names: list[bytes]) -> tuple[Any, ...]:
    [found] = await connection.run([b"SELECT " + b", ".join(names)])
    await connection.quit()
    return found.rows[0]


async def test_only_our_own_time_limits_hold(odd_server: DatabaseServer, kind: str) -> None:
    """A write may take as long as our settings say, not as long as the server allows its others."""
    async with proxied(odd_server) as database:
        shard = await database.open(direct=True)
        writer = await shard._connect_writer()
        [found] = await writer.run([b"SELECT " + READ_LIMIT[kind]])
        await writer.quit()
        assert found.rows == ((0,),)
