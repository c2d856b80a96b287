"""The schema's versions: one file each in `migrations/`, run in order, each in a transaction of its own, under the file's lock.

To change the schema, add `000N_*.sql`, and keep a dump of a file of the previous version under `tests/sqlite/released/`.
"""

from __future__ import annotations

import sqlite3
from importlib.resources import files
from pathlib import Path

from pinlater.domain.errors import SchemaRefused
from pinlater.server.storage.schema import check_version

FOLDER = files("pinlater.server.storage.sqlite") / "migrations"
APPLICATION_ID = 0x504C5452


def scripts() -> list[tuple[int, str, str]]:
    """Returns (version, name, text) of every migration, ascending."""
    found = [
        (int(entry.name[:4]), entry.name, entry.read_text(encoding="utf-8"))
        for entry in FOLDER.iterdir()
        if entry.name.endswith(".sql")
    ]
    return sorted(found)


def newest_version() -> int:
    """The schema this program is written for."""
    return scripts()[-1][0]


def version_of(connection: sqlite3.Connection) -> int:
    """The schema of the file, or 0 for an empty one."""
    [version] = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def check(connection: sqlite3.Connection, path: Path, newest: int | None = None) -> int:
    """The file's version, if this program may work on it or migrate it; raises `SchemaRefused` if not."""
    newest = newest_version() if newest is None else newest
    version = version_of(connection)
    check_version(path, version, newest)
    [application_id] = connection.execute("PRAGMA application_id").fetchone()
    [tables] = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables and application_id != APPLICATION_ID:
        raise SchemaRefused(f"{path} is an SQLite file of another program")
    return version


def migrate(connection: sqlite3.Connection, path: Path) -> list[str]:
    """Migrates the file to this program's schema. Returns the names of the migrations that were run. Hold the lock."""
    version = check(connection, path)
    done = []
    for number, name, text in scripts():
        if number > version:
            _run(connection, number, text)
            done.append(name)
    return done


def _run(connection: sqlite3.Connection, number: int, text: str) -> None:
    try:
        connection.executescript(f"BEGIN EXCLUSIVE;\n{text}\nPRAGMA user_version = {number};\nCOMMIT;")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
