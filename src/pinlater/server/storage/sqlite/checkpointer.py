"""Copies the write-ahead log into the file, so that the log starts over and stays short.

SQLite from 3.7.0 to 3.51.2 (except for 3.50.7 and 3.44.6) can damage a file if a checkpoint of one connection begins while a commit of
another makes the log start over. So the writer's connection does both: the writer's thread copies the log between two transactions. No
other connection copies the log, except that SQLite lets the last one that closes the file do it, which is then alone.

While a reader holds an old snapshot, the log grows, because changes that were committed after the snapshot cannot be copied. When the
reader has gone, the log gets its usual length again: SQLite truncates it as it starts over (`journal_size_limit`), and in an idle store
this module does.

Weakness: calls wait while the log is copied. That takes some milliseconds, and after a long read about as long as the disk needs for the
pages that were changed meanwhile.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from pinlater.server.storage.sqlite.connection import kept_log_bytes, log_of, reserve_log
from pinlater.server.storage.sqlite.settings import SqliteSettings

LOOKS_AN_INTERVAL = 4


class Checkpointer:
    """Decides when to copy the log, and copies it."""

    def __init__(self, connection: sqlite3.Connection, path: Path, settings: SqliteSettings) -> None:
        self._connection = connection
        self._path = path
        self._settings = settings
        self._looks = 0
        self._commits_seen = 0
        self._commits_copied = -1
        self._is_held = False  # the last copy is not complete, because of a reader or an error

    def wanted(self, commits: int) -> bool:
        """Returns whether the log is to be copied or cut. Call it `LOOKS_AN_INTERVAL` times in an interval, with the commits so far.

        A log that grows beyond its usual length is copied before the interval is over: many small copies delay calls less.
        """
        self._looks += 1
        self._commits_seen = commits
        if self._looks % LOOKS_AN_INTERVAL == 0:
            return commits != self._commits_copied or self._is_held or self._is_long()
        return commits != self._commits_copied and not self._is_held and self._is_long()

    def _is_long(self) -> bool:
        try:
            return log_of(self._path).stat().st_size > kept_log_bytes(self._settings)
        except OSError:  # it was moved: the next transaction reports that
            return False

    def run(self) -> None:
        """Runs in the writer's thread, outside of transactions. Waits for no reader."""
        cuts = self._commits_seen == self._commits_copied and self._is_long()
        self._is_held = True  # until this copy has succeeded
        mode = "TRUNCATE" if cuts else "PASSIVE"
        _, pages, copied = self._connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        self._is_held = copied < pages
        self._commits_copied = self._commits_seen
        if cuts and not self._is_held:
            reserve_log(self._path, self._settings)
