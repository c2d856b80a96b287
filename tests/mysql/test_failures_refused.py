"""The database says no: each kind of no is understood, said so that an operator can act on it, and over as soon as its reason is.

What a user needs on a shard's database, and no more: SELECT, INSERT, UPDATE and DELETE for the work; CREATE and REFERENCES
(a foreign key; MySQL only) to make the tables; ALTER and DROP for new versions and for partitions, which come and go. Nothing global.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from asyncmy import errors as driver

from pinlater.domain.errors import OutcomeUnknown, PinLaterError, SchemaRefused, ShardConnectionFailed, StoreFull
from pinlater.domain.job import Outcome
from pinlater.server.storage.commands import create_queues
from pinlater.server.storage.connections import DatabaseConnectionLost
from pinlater.server.storage.mysql import connection
from pinlater.server.storage.mysql.errors import translate
from pinlater.server.storage.mysql.migration import newest_version
from pinlater.server.storage.mysql.settings import MysqlEndpoint, MysqlSettings
from pinlater.server.storage.mysql.shard import MysqlShard
from tests.contract.desk import Desk
from tests.databases.database import DatabaseServer
from tests.databases.mysql import MySql8
from tests.databases.ports import free_port
from tests.databases.proxy import Proxy
from tests.mysql.proxied_mysql import ProxiedMysql, proxied
from tests.shared_shards.proxied_database import QUEUE, until

NEEDED = ["SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "DROP", "REFERENCES"]
OTHER = "pinlater_other"


@pytest.fixture
async def other(database: ProxiedMysql) -> AsyncIterator[str]:
    """A database's name that nothing has yet."""
    yield OTHER
    await database.server.drop_databases(OTHER)


@asynccontextmanager
async def user(server: DatabaseServer, *grants: str) -> AsyncIterator[dict[str, Any]]:
    """A user with these rights on `OTHER` and none else."""
    await server.execute("CREATE USER 'narrow'@'%%' IDENTIFIED BY 'secret word'")
    try:
        if grants:
            await server.execute(f"GRANT {', '.join(grants)} ON {OTHER}.* TO 'narrow'@'%%'")
        yield {"user": "narrow", "password": "secret word"}
    finally:
        await server.execute("DROP USER 'narrow'@'%%'")


async def refused(database: ProxiedMysql, endpoint: MysqlEndpoint) -> PinLaterError:
    """Why it can't be opened."""
    with pytest.raises(ShardConnectionFailed) as failed:
        await database.shard(endpoint=endpoint).open(0)
    assert "secret word" not in failed.value.message
    assert database.server.password not in failed.value.message
    return failed.value


@pytest.mark.parametrize("error", [ConnectionResetError(), RuntimeError("Transport does not expose socket instance")])
async def test_a_connection_that_goes_while_it_is_made_is_lost(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """As the driver says it, the latter on uvloop: a reset that came the moment after the connection, too rare to wait for."""

    async def connect(**_: object) -> None:
        raise error

    monkeypatch.setattr("asyncmy.connect", connect)
    with pytest.raises(DatabaseConnectionLost, match="nowhere"):
        await connection.connect(MysqlEndpoint("nowhere", 1, "u"), MysqlSettings(), autocommit=True)


# --- who may come in -----------------------------------------------------------------------------------------------------------


async def test_a_wrong_password_is_said_and_not_retried(database: ProxiedMysql) -> None:
    error = await refused(database, database.endpoint(password="secret word"))
    assert not error.retryable
    assert "check user, password and grants" in error.message


async def test_a_right_password_that_needs_tls_is_not_called_a_wrong_one(start_mysql8: Callable[..., MySql8]) -> None:
    """Without TLS, caching_sha2_password needs the server's RSA keys for the first login of a user."""
    async with proxied(start_mysql8(caching_sha2_password_private_key_path="none", skip_ssl=True)) as database:
        error = await refused(database, database.endpoint())
    assert "1045" in error.message
    assert "or use TLS (mysql.tls): without it, a MySQL that has no RSA keys" in error.message


async def test_a_proxy_without_a_database_behind_it_is_asked_about() -> None:
    """It takes the connection and ends it at once; the driver calls that a lost query."""
    async with Proxy(f"127.0.0.1:{free_port()}") as proxy:
        endpoint = MysqlEndpoint(proxy.host, proxy.port, "pinlater", "password")
        with pytest.raises(ShardConnectionFailed, match="is it a proxy without a database behind it") as failed:
            await MysqlShard(endpoint).open(0)
    assert failed.value.retryable


async def test_a_login_without_a_password_is_said_to_lack_one(database: ProxiedMysql) -> None:
    error = await refused(database, database.endpoint(password=""))
    assert not error.retryable
    assert "no password is configured; set PINLATER_MYSQL_PASSWORD or mysql.password_file" in error.message


async def test_a_database_that_is_not_there_and_may_not_be_made(database: ProxiedMysql, other: str) -> None:
    async with user(database.server, "SELECT", "INSERT", "UPDATE", "DELETE") as login:
        error = await refused(database, database.endpoint(database=other, **login))
    assert not error.retryable
    assert "make it, or grant CREATE" in error.message


async def test_the_rights_of_the_manual_are_enough(database: ProxiedMysql, other: str) -> None:
    async with user(database.server, *NEEDED) as login:
        desk = Desk(lambda: database.shard(endpoint=database.endpoint(database=other, **login)))
        await desk.open()
        await desk.shard.submit(create_queues([QUEUE], desk.now))
        held = await desk.put_and_take()
        assert (await desk.succeed(held.key)).outcome is Outcome.APPLIED
        await desk.shard.close()


@pytest.mark.parametrize("missing", [right for right in NEEDED if right not in ("ALTER", "DROP")])
async def test_a_right_that_is_missing_is_named(database: ProxiedMysql, other: str, missing: str) -> None:
    """ALTER and DROP are for partitions, without which a shard serves, with a warning. MariaDB asks for no REFERENCES."""
    if missing == "REFERENCES" and database.server.kind == "mariadb":
        pytest.skip("MariaDB does without")
    await database.server.execute(f"CREATE DATABASE {other}")
    async with user(database.server, *[right for right in NEEDED if right != missing]) as login:
        error = await refused(database, database.endpoint(database=other, **login))
    assert not error.retryable
    assert missing in error.message or "grants" in error.message


async def test_without_rights_to_change_tables_a_shard_that_is_made_serves(database: ProxiedMysql, other: str) -> None:
    """An operator may keep those for `pinlater server migrate`."""
    await database.open(direct=True)
    async with user(database.server) as login:
        await database.server.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {database.name}.* TO 'narrow'@'%%'")
        desk = Desk(lambda: database.shard(endpoint=database.endpoint(**login)))
        await desk.open()
        await desk.shard.submit(create_queues([QUEUE], desk.now))
        assert (await desk.put_and_take()).job.body == b"hello"
        await desk.shard.close()


# --- the schema ----------------------------------------------------------------------------------------------------------------


async def test_a_schema_that_is_newer_by_one_is_used(database: ProxiedMysql) -> None:
    await database.open()
    try:
        await database.ask(f"UPDATE meta SET value = '{newest_version() + 1}' WHERE name = 'schema'")
        desk = await database.desk()
        assert (await desk.put_and_take()).job.body == b"hello"
    finally:
        await database.ask(f"UPDATE meta SET value = '{newest_version()}' WHERE name = 'schema'")


async def test_a_schema_that_is_newer_by_two_is_refused_with_both_numbers(database: ProxiedMysql) -> None:
    await database.open()
    try:
        await database.ask(f"UPDATE meta SET value = '{newest_version() + 2}' WHERE name = 'schema'")
        with pytest.raises(SchemaRefused, match=f"schema {newest_version() + 2}.*schema {newest_version()}"):
            await database.open()
    finally:
        await database.ask(f"UPDATE meta SET value = '{newest_version()}' WHERE name = 'schema'")


async def test_servers_that_start_on_a_new_database_at_once_make_it_once(database: ProxiedMysql, other: str) -> None:
    shards = [database.shard(endpoint=database.endpoint(database=other), statement_timeout_ms=20_000) for _ in range(3)]
    await asyncio.gather(*[shard.open(0) for shard in shards])
    assert sorted(shard.slot for shard in shards) == [0, 1, 2]
    for shard in shards:
        await shard.close()


async def test_a_migration_that_was_cut_off_is_run_again(killable: ProxiedMysql) -> None:
    """The database is killed in its middle."""
    await killable.server.drop_databases(OTHER)
    endpoint = killable.endpoint(database=OTHER)
    trap = killable.proxy.lose_request(b"CREATE TABLE IF NOT EXISTS ready")
    with pytest.raises(ShardConnectionFailed):
        await killable.shard(endpoint=endpoint).open(0)
    assert trap.sprung
    killable.server.kill()
    killable.server.start()
    [[made]] = await killable.server.execute(
        "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = %s", OTHER
    )
    assert made
    desk = Desk(lambda: killable.shard(endpoint=endpoint))
    await desk.open()
    await desk.shard.submit(create_queues([QUEUE], desk.now))
    assert (await desk.put_and_take()).job.body == b"hello"
    await desk.shard.close()
    await killable.server.drop_databases(OTHER)


# --- a server that takes no writes, or no connections any more ---------------------------------------------------------------------------


@asynccontextmanager
async def globally(server: DatabaseServer, name: str, value: object) -> AsyncIterator[None]:
    """A variable of the server, as it was afterwards."""
    [[before]] = await server.execute(f"SELECT @@global.{name}")
    await server.execute(f"SET GLOBAL {name} = {value}")
    try:
        yield
    finally:
        await server.execute(f"SET GLOBAL {name} = {before}")


async def test_a_server_that_became_a_replica_takes_no_writes_and_says_so(killable: ProxiedMysql) -> None:
    """Reads continue; and as soon as it takes writes again, so do we."""
    desk = await killable.desk()
    key = await desk.put()
    async with globally(killable.server, "read_only", 1):
        for call in (desk.put, desk.claim, desk.shard.ping):
            with pytest.raises(ShardConnectionFailed, match="takes no writes now") as failed:
                await call()
            assert failed.value.retryable
            assert not isinstance(failed.value, OutcomeUnknown)
        assert (await desk.look(key)).body == b"hello"
        with pytest.raises(ShardConnectionFailed, match="takes no writes now"):
            await killable.open()
    assert [held.key for held in await desk.claim()] == [key]
    await killable.assert_consistent()


async def test_after_a_failover_behind_one_address_connections_are_made_anew(killable: ProxiedMysql) -> None:
    """The address leads to another server now; an old connection would stay with the old one for ever."""
    desk = await killable.desk()
    await desk.put()
    before = killable.proxy.connections
    async with globally(killable.server, "read_only", 1):
        with pytest.raises(ShardConnectionFailed):
            await desk.put()
    await desk.put()
    assert killable.proxy.connections > before


@pytest.mark.parametrize(
    ("code", "kind", "word"),
    [
        (1290, ShardConnectionFailed, "takes no writes"),
        (1792, ShardConnectionFailed, "takes no writes"),
        (1836, ShardConnectionFailed, "takes no writes"),
        (1021, StoreFull, "is full"),
        (1114, StoreFull, "is full"),
        (3, StoreFull, "is full"),
        (1040, ShardConnectionFailed, "max_connections"),
        (1203, ShardConnectionFailed, "max_connections"),
        (1153, PinLaterError, "max_allowed_packet"),
        (1205, PinLaterError, "nothing was changed"),
        (1213, PinLaterError, "nothing was changed"),
        (1317, PinLaterError, "interrupted"),
        (1036, ShardConnectionFailed, "takes no writes"),
        (1146, ShardConnectionFailed, "does not have all tables"),
        (1862, ShardConnectionFailed, "refuses our login"),
        (4151, ShardConnectionFailed, "refuses our login"),
    ],
)
def test_errors_are_told_apart(code: int, kind: type[PinLaterError], word: str) -> None:
    """Those too that are hard to bring about."""
    error = translate(
        driver.OperationalError(code, "it was interrupted"), MysqlEndpoint("db", 3306, "user", "secret word")
    )
    assert isinstance(error, kind)
    assert word in error.message
    assert str(code) in error.message
    assert "secret word" not in error.message


async def test_a_database_with_too_many_connections_gives_an_error_that_names_the_setting(
    killable: ProxiedMysql,
) -> None:
    """Open connections continue to work, and new ones succeed as soon as the server takes them."""
    desk = await killable.desk()
    await desk.put()
    async with globally(killable.server, "max_connections", 12), AsyncExitStack() as crowd:
        with contextlib.suppress(driver.OperationalError):
            while True:
                await crowd.enter_async_context(
                    killable.server.connect(user=killable.server.user, database=killable.name)
                )
        await desk.put()
        with pytest.raises(ShardConnectionFailed, match="raise max_connections") as failed:
            await desk.claim()  # is the first
        assert failed.value.retryable
        with pytest.raises(ShardConnectionFailed, match="raise max_connections"):
            await killable.open()

    async def claimed() -> bool:
        return len(await desk.claim(10)) == 2

    await until(claimed)
    await killable.assert_consistent()
