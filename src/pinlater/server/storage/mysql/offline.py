"""Works on a shard without serving it: migrates its schema by hand, reads its state, and gives up keys. Takes no slot and changes
no job."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from asyncmy import errors as driver

from pinlater.server.storage.connections import WRITERS, DatabaseConnectionLost
from pinlater.server.storage.mysql import migration, reading
from pinlater.server.storage.mysql.connection import MysqlConnection, code_of, connect
from pinlater.server.storage.mysql.dialect import MysqlReader
from pinlater.server.storage.mysql.errors import NO_DATABASE, is_ours, translate
from pinlater.server.storage.mysql.membership import Membership
from pinlater.server.storage.mysql.server_requirements import check_server, verdict_on
from pinlater.server.storage.mysql.settings import MysqlEndpoint, MysqlSettings
from pinlater.server.storage.mysql.statements import body_bytes_max, sql
from pinlater.server.storage.offline import LiveJobs, Look, find_live
from pinlater.server.storage.relational import reading as relational

_ALTER_MS = 600_000
_KEYS_A_PIECE = 10_000


async def migrate_shard(endpoint: MysqlEndpoint, settings: MysqlSettings, _name: str) -> tuple[int, int, Sequence[str]]:
    """Migrates the database to this program's schema, and creates it if it does not exist. Returns (version before, version after,
    migrations that were run).

    Raises `Unavailable` if that can't be done, or if the database is not for this program.
    """
    lasting = replace(settings, statement_timeout_ms=_ALTER_MS)
    async with _connection(endpoint, lasting, database=False) as connection:
        await check_server(connection, endpoint)
        await migration.create_database(connection, endpoint.database)
    async with _connection(endpoint, lasting) as connection:
        before = await migration.version_of(connection)
        done = await migration.migrate(connection, endpoint.database)
        return before, await migration.version_of(connection), done


async def look_at_shard(endpoint: MysqlEndpoint, settings: MysqlSettings, _name: str, now_ms: int) -> Look:
    """Returns schema, servers, counts and keys. Raises `Unavailable` if it can't be asked."""
    try:
        async with _connection(endpoint, settings) as connection:
            schema = await migration.version_of(connection)
            refused, warnings = await verdict_on(connection)
            said = warnings if refused is None else (refused,)
            look = Look(schema, body_bytes_max=body_bytes_max(connection.packet_bytes_max), warnings=said)
            if not schema:
                return look
            found = await Membership(settings.lease_ms, WRITERS).members(connection)
            keys = await relational.timed_keys(MysqlReader(connection, ""), now_ms)
            rows, _ = await reading.all_counts(connection)
            size = await reading.size(connection)
            return look._replace(members=found, counts=rows, timed_keys=keys, size=size)
    except _NotThere:
        return Look(0)


async def live_jobs(endpoint: MysqlEndpoint, settings: MysqlSettings, name: str, now_ms: int, limit: int) -> LiveJobs:
    """Returns some of the jobs that wait or run. Raises `Unavailable`."""
    async with _connection(endpoint, settings) as connection:
        counts, _ = await reading.all_counts(connection)
        reader = MysqlReader(connection, name)
        jobs = await find_live(lambda page: relational.scan(reader, page), counts, now_ms, limit)
        return LiveJobs(jobs, {queue.name: queue for queue in await relational.list_queues(reader)})


async def forget_timed_keys(endpoint: MysqlEndpoint, settings: MysqlSettings, _name: str, now_ms: int) -> int:
    """Deletes the unique keys that only time would free. Returns how many there were. Raises `Unavailable`."""
    forgotten = 0
    async with _connection(endpoint, settings) as connection:
        while True:
            statement = sql("delete_timed_keys")(now_ms=now_ms, limit=_KEYS_A_PIECE)
            [done] = await connection.run([statement])
            forgotten += done.affected
            if done.affected < _KEYS_A_PIECE:
                return forgotten


class _NotThere(Exception):
    """The database does not exist."""


@asynccontextmanager
async def _connection(
    endpoint: MysqlEndpoint, settings: MysqlSettings, *, database: bool = True
) -> AsyncIterator[MysqlConnection]:
    """Opens a connection. Translates the errors of the database, also those of the work in the block."""
    try:
        connection = await connect(endpoint, settings, autocommit=True, database=database)
        try:
            yield connection
        finally:
            await connection.quit()
    except (DatabaseConnectionLost, driver.MySQLError) as error:
        if code_of(error) == NO_DATABASE:
            raise _NotThere from error
        if is_ours(error):
            raise translate(error, endpoint) from error
        raise
