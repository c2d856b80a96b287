"""Works on a file that no server has open: migrates its schema by hand."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from pinlater.domain.errors import ShardConnectionFailed
from pinlater.server.storage.sqlite import migration
from pinlater.server.storage.sqlite.connection import connect
from pinlater.server.storage.sqlite.errors import translate
from pinlater.server.storage.sqlite.lock import FileLock
from pinlater.server.storage.sqlite.settings import SqliteSettings


def migrate_file(path: Path) -> tuple[int, int, Sequence[str]]:
    """Migrates the file to this program's schema, and creates it if it does not exist. Returns (version before, version after, migrations
    that were run).

    Raises `Unavailable` if a server has the file, or if it is not for this program.
    """
    if not path.parent.is_dir():
        raise ShardConnectionFailed(f"The folder of {path} does not exist", retryable=False)
    lock = FileLock(path)
    lock.take()
    try:
        with closing(connect(path, SqliteSettings())) as connection:
            before = migration.check(connection, path)
            done = migration.migrate(connection, path)
            return before, migration.version_of(connection), done
    except sqlite3.Error as error:
        raise translate(error, path) from error
    finally:
        lock.drop()
