"""The schema's versions: run forward under a lock of the database, one file after the other.

A database commits each change of a table by itself, so a file that was interrupted is run again: its statements must tolerate that.
"""

from __future__ import annotations

from importlib.resources import files
from typing import NamedTuple

from asyncmy import errors as driver

from pinlater.domain.errors import ShardConnectionFailed
from pinlater.server.storage.mysql.connection import MysqlConnection, code_of
from pinlater.server.storage.mysql.errors import COLUMN_EXISTS, NO_TABLE, RIGHTS_MISSING
from pinlater.server.storage.mysql.statements import lock_name, rows, sql
from pinlater.server.storage.schema import check_version

FOLDER = files("pinlater.server.storage.mysql") / "migrations"
LOCK_WAIT_S = 60
ORDERED = 10
"""The schema of a shard with ordering keys, which the first such job or ordered queue brings (`Membership.admit_order`). It has no file."""


class Migration(NamedTuple):
    """A file: its number, its name, its statements."""

    number: int
    name: str
    statements: tuple[str, ...]


def migrations() -> list[Migration]:
    """Returns all migrations that this program knows, in order."""
    found = []
    for file in sorted(FOLDER.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".sql"):
            lines = [line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("--")]
            statements = tuple(part.strip() for part in "\n".join(lines).split(";") if part.strip())
            found.append(Migration(int(file.name[:4]), file.name.removesuffix(".sql"), statements))
    return found


def newest_version() -> int:
    """The schema that this program is written for."""
    return max(ORDERED, migrations()[-1].number)


async def version_of(connection: MysqlConnection) -> int:
    """The database's schema, or 0 for none."""
    try:
        [found] = await connection.run([sql("load_meta")(name="schema")])
    except driver.MySQLError as error:
        if code_of(error) == NO_TABLE:
            return 0
        raise
    return int(found.rows[0][0]) if found.rows else 0


async def _run(connection: MysqlConnection, statement: str) -> None:
    """A column that already exists is from an interrupted run."""
    try:
        await connection.run([statement.encode()])
    except driver.MySQLError as error:
        if code_of(error) != COLUMN_EXISTS:
            raise


async def create_database(connection: MysqlConnection, name: str) -> None:
    """Creates the database if it does not exist. If this user may not, the next step reports what to do."""
    try:
        await connection.run(
            [f"CREATE DATABASE IF NOT EXISTS `{name}` CHARACTER SET utf8mb4 COLLATE utf8mb4_bin".encode()]
        )
    except driver.MySQLError as error:
        if code_of(error) not in RIGHTS_MISSING:
            raise


async def migrate(connection: MysqlConnection, database: str) -> list[str]:
    """Migrates the database. Returns the names of the migrations that were run. `connection` uses the database, with autocommit."""
    version = await version_of(connection)
    check_version(database, version, newest_version())
    if version >= migrations()[-1].number:
        return []
    lock = lock_name("migration", database)
    [held] = await connection.run([b"SELECT GET_LOCK(%b, %d)" % (lock, LOCK_WAIT_S)])
    if held.rows[0][0] != 1:
        raise ShardConnectionFailed(f"{database}: another server migrates it, for over {LOCK_WAIT_S} s")
    done = []
    try:
        version = await version_of(connection)
        for migration in migrations():
            if version < migration.number:
                for statement in migration.statements:
                    await _run(connection, statement)
                await connection.run([sql("save_meta")(rows=rows([("schema", str(migration.number))]))])
                done.append(migration.name)
    finally:
        await connection.run([b"SELECT RELEASE_LOCK(%b)" % lock])
    return done
