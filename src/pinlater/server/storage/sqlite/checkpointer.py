"""Keeps the write-ahead log short without delaying calls.

Each interval a PASSIVE checkpoint on a connection of its own copies what it can; it can never finish beside a writer that goes on, so
if much is left in the log the writer is asked for a short one of its own between two transactions, after which the log starts over.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

from pinlater.server.storage.sqlite.connection import connect
from pinlater.server.storage.sqlite.settings import SqliteSettings

logger = logging.getLogger(__name__)


class Checkpointer:
    """A thread. `commits` tells how many transactions there were, `restart` asks the writer (called on the loop)."""

    def __init__(
        self, path: Path, settings: SqliteSettings, commits: Callable[[], int], restart: Callable[[], None]
    ) -> None:
        self._path = path
        self._settings = settings
        self._commits = commits
        self._restart = restart
        self._loop = asyncio.get_running_loop()
        self._connection = connect(path, settings)
        self._stopped = Event()
        self._seen = -1
        self._thread = Thread(target=self._run, name="sqlite-checkpoint", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        while not self._stopped.wait(self._settings.checkpoint_interval_ms / 1000):
            commits = self._commits()
            if commits == self._seen:
                continue
            self._seen = commits
            try:
                _, pages, _ = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            except sqlite3.Error as error:
                logger.warning("store %s: checkpoint failed, the log goes on growing: %s", self._path, error)
                continue
            if pages > self._settings.wal_restart_pages and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._restart)
