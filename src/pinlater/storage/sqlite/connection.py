"""Connections to the file, all set up alike, and the plain text of why one can't be had."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from pinlater.storage.sqlite.settings import SqliteSettings

PAGE_BYTES = 4096
_STATEMENTS_CACHED = 256


def connect(path: Path, settings: SqliteSettings, *, reader: bool = False) -> sqlite3.Connection:
    """A connection that several threads may use one after the other, without the driver's own transactions."""
    connection = sqlite3.connect(
        path,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=_STATEMENTS_CACHED,
        timeout=settings.busy_timeout_ms / 1000,
    )
    try:
        _set_up(connection, settings, reader=reader)
    except BaseException:
        connection.close()
        raise
    return connection


def _set_up(connection: sqlite3.Connection, settings: SqliteSettings, *, reader: bool) -> None:
    if not reader:
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")  # only a new file takes it
        connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")  # the checkpointer does it, off the hot path
    connection.execute("PRAGMA secure_delete = OFF")  # Debian's build zeroes freed pages unless told not to
    connection.execute(f"PRAGMA cache_size = -{settings.cache_kib}")
    connection.execute("PRAGMA temp_store = MEMORY")
    if reader:
        connection.execute("PRAGMA query_only = ON")
