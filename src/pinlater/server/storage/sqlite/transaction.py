"""A transaction of the writer, as the code of one call sees it."""

from __future__ import annotations

import sqlite3

from pinlater.server.storage.sqlite.queue_cache import SqliteQueueCache


class Transaction:
    """What a call works with: statements on the writer's connection, and the queue cache.

    `execute` and `executemany` use one cursor, because making one takes as long as a short statement: the rows of a statement must be
    read before the next. `connection.execute` makes a cursor for code that runs other statements between two rows.
    """

    __slots__ = ("connection", "cursor", "execute", "executemany", "queue_cache")

    def __init__(self, connection: sqlite3.Connection, queue_cache: SqliteQueueCache) -> None:
        self.connection = connection
        self.cursor = connection.cursor()
        self.execute = self.cursor.execute
        self.executemany = self.cursor.executemany
        self.queue_cache = queue_cache
