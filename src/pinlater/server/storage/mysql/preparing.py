"""Prepares a database before a server uses it: made or migrated, and marked with the name of its shard."""

from __future__ import annotations

import logging
from dataclasses import replace

from pinlater.server.storage.mysql import migration
from pinlater.server.storage.mysql.connection import MysqlConnection, connect
from pinlater.server.storage.mysql.server_requirements import check_server
from pinlater.server.storage.mysql.settings import MysqlEndpoint, MysqlSettings
from pinlater.server.storage.mysql.statements import sql
from pinlater.server.storage.mysql.stats import Stats

logger = logging.getLogger(__name__)

ALTER_MS = 600_000
"""Changes of tables are not limited in time."""


async def prepare(endpoint: MysqlEndpoint, settings: MysqlSettings, stats: Stats, shard: str) -> None:
    """Raises driver errors as they are, and `Unavailable` if the server or the schema is not for this program."""
    server = await connect(endpoint, settings, autocommit=True, database=False, stats=stats)
    try:
        await check_server(server, endpoint)
        await migration.create_database(server, endpoint.database)
    finally:
        await server.quit()
    database = await connect(endpoint, replace(settings, statement_timeout_ms=ALTER_MS), autocommit=True, stats=stats)
    try:
        await migration.migrate(database, endpoint.database)
        await _note_name(database, endpoint, shard)
    finally:
        await database.quit()


async def _note_name(connection: MysqlConnection, endpoint: MysqlEndpoint, shard: str) -> None:
    """Stores the name of the shard in its database. The name is in every descriptor, so a database must not have two."""
    noted = [sql("make_meta")(name="shard", value=shard), sql("load_meta")(name="shard")]
    [*_, found] = await connection.run(noted)
    if found.rows[0][0] != shard:
        logger.warning(
            "%s was shard %s before: the descriptors that it gave out then name nothing here",
            endpoint,
            found.rows[0][0],
            extra={"shard": shard},
        )
