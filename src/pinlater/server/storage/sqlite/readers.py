"""Connections that only read, beside the writer: a few in threads for what may take long, one on the loop for what doesn't."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from pinlater.domain.errors import ShardConnectionFailed, TooManyWaiting
from pinlater.server.storage.sqlite.connection import connect, wait_for_locks
from pinlater.server.storage.sqlite.errors import translate
from pinlater.server.storage.sqlite.settings import SqliteSettings

T = TypeVar("T")
# A reader waits for a writer only while another process repairs the log, or empties it.
_ON_LOOP_WAIT_MS = 20


class Readers:
    """The connections for reads, opened and closed with the shard."""

    def __init__(self, path: Path, settings: SqliteSettings) -> None:
        self._path = path
        self._waiting_max = settings.waiting_reads_max
        self._pool = ThreadPoolExecutor(settings.reader_threads, thread_name_prefix="sqlite-read")
        self._free: SimpleQueue[sqlite3.Connection] = SimpleQueue()
        self._all: list[sqlite3.Connection] = []
        self._waiting = 0
        self._closed = False
        for _ in range(settings.reader_threads):
            self._all.append(connect(path, settings, reader=True))
            self._free.put(self._all[-1])
        self._on_loop = connect(path, settings, reader=True)
        wait_for_locks(self._on_loop, _ON_LOOP_WAIT_MS)
        self._all.append(self._on_loop)

    def quick(self, read: Callable[[sqlite3.Connection], T]) -> T:
        """Reads on the loop, for a few seeks, which cost less than a hand-over to a thread."""
        if self._closed:
            raise ShardConnectionFailed(f"{self._path} is closed")
        try:
            return read(self._on_loop)
        except sqlite3.Error as error:
            raise translate(error, self._path) from error

    async def long(self, read: Callable[[sqlite3.Connection], T]) -> T:
        """Reads in a thread, for statements that read many rows."""
        if self._closed:
            raise ShardConnectionFailed(f"{self._path} is closed")
        if self._waiting >= self._waiting_max:
            raise TooManyWaiting(f"{self._waiting} reads wait for the store already", retry_after_ms=100)
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, self._read, read)
        finally:
            self._waiting -= 1

    def _read(self, read: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._free.get()
        try:
            return read(connection)
        except sqlite3.Error as error:
            raise translate(error, self._path) from error
        finally:
            self._free.put(connection)

    async def close(self) -> None:
        """Waits for reads under way."""
        if self._closed:
            return
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(None, self._pool.shutdown)
        for connection in self._all:
            connection.close()
