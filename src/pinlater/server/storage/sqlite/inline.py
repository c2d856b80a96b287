"""The writer and the readers of a store in memory: each call runs at once, in its caller's turn of the event loop, on one connection.

A COMMIT waits for no disk, so calls gain nothing by sharing one. Without a thread, a timer or a turn of the loop between a call and
its effect, the same calls in the same order have the same results: the simulator and users' tests depend on that.

Weakness: a long call holds up the event loop.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pinlater.server.storage.sqlite.errors import is_outside_failure, translate
from pinlater.server.storage.sqlite.queue_cache import SqliteQueueCache
from pinlater.server.storage.sqlite.transaction import Transaction
from pinlater.server.storage.sqlite.writer import Steps

T = TypeVar("T")
IN_MEMORY = Path(":memory:")


class InlineWriter:
    """Carries out each call as a transaction of its own. `commits` counts them; a failure leaves nothing to repair, so none is `failed`."""

    failed = False

    def __init__(self, connection: sqlite3.Connection, queue_cache: SqliteQueueCache) -> None:
        self.commits = 0
        self._connection = connection
        self._queue_cache = queue_cache
        self._transaction = Transaction(connection, queue_cache)

    async def carry_out(
        self,
        work: Callable[[Transaction], T],
        *,
        recall: Callable[[SqliteQueueCache], T | None] | None = None,
        linger: bool = False,
    ) -> T:
        """Returns the result of `work`, or what `recall` knows without it."""
        del linger
        known = None if recall is None else recall(self._queue_cache)
        return self._transact(work) if known is None else known

    async def carry_out_in_steps(self, work: Callable[[Transaction], Steps[T]]) -> T:
        """Runs all steps in one turn of the loop: between two, readers on the same connection would see half of the work."""
        return self._transact(lambda transaction: _run(work(transaction)))

    def _transact(self, work: Callable[[Transaction], T]) -> T:
        execute = self._transaction.execute
        execute("BEGIN")
        try:
            self._queue_cache.begin()
            result = work(self._transaction)
            self._queue_cache.write(execute)
            execute("COMMIT")
        except BaseException as error:
            if self._connection.in_transaction:  # SQLite has ended it by itself if memory is full
                execute("ROLLBACK")
            self._queue_cache.reload_changed(execute)
            if isinstance(error, sqlite3.Error) and is_outside_failure(error):
                raise translate(error, IN_MEMORY) from error
            raise
        self.commits += 1
        return result


class InlineReaders:
    """Reads on the writer's connection, which is never within a transaction when a reader gets its turn."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def quick(self, read: Callable[[sqlite3.Connection], T]) -> T:
        """Returns what `read` finds."""
        try:
            return read(self._connection)
        except sqlite3.Error as error:
            raise translate(error, IN_MEMORY) from error

    async def long(self, read: Callable[[sqlite3.Connection], T]) -> T:
        """Returns the same, for code that reads many rows."""
        return self.quick(read)


def _run(steps: Steps[T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
