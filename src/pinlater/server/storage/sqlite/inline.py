"""The writer and the readers of a store in memory: each call runs at once, in one turn of the event loop, on one connection.

A COMMIT waits for no disk, so calls gain nothing by sharing one. Without a thread, a timer or a turn of the loop between a call and
its effect, the same calls in the same order have the same results: the simulator and users' tests depend on that.

Weakness: a long call blocks the event loop.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

from msgspec.structs import astuple

from pinlater.server.storage.interface import WaitingBatch
from pinlater.server.storage.sqlite.errors import is_outside_failure, translate
from pinlater.server.storage.sqlite.queue_cache import SqliteQueueCache
from pinlater.server.storage.sqlite.transaction import Transaction
from pinlater.server.storage.sqlite.writer import Steps, Work, Works

T = TypeVar("T")
IN_MEMORY = Path(":memory:")


class InlineWriter:
    """Executes each call as a transaction of its own. `commits` counts them; a failure leaves nothing to repair, so none is `failed`."""

    failed = False

    def __init__(self, connection: sqlite3.Connection, queue_cache: SqliteQueueCache) -> None:
        self.commits = 0
        self._connection = connection
        self._queue_cache = queue_cache
        self._transaction = Transaction(connection, queue_cache)
        self._batches: list[tuple[WaitingBatch, Works]] = []

    async def carry_out(self, work: Work[T]) -> T:
        """Returns the result of `work`, or the result from memory without it."""
        return self._carry_out(work)

    def join(self, batch: WaitingBatch, works: Works) -> None:
        """Executes the waiting calls of a batch, from the next turn of the loop on."""
        if not self._batches:
            asyncio.get_running_loop().call_soon(self._turn)
        self._batches.append((batch, works))

    def _turn(self) -> None:
        batches, self._batches = self._batches, []
        for batch, begun, works in [(batch, batch.begin(), works) for batch, works in batches]:
            if begun is None:
                continue
            try:
                result = self._carry_out(works[type(begun.command)](*astuple(begun.command)))
            except Exception as error:  # noqa: BLE001 a bug: it must reach its own callers and no other
                others_wait = batch.failed(error)
            else:
                others_wait = batch.done(result)
            if others_wait:
                self.join(batch, works)

    def _carry_out(self, work: Work[T]) -> T:
        """Runs all steps in one turn of the loop: between two of them, readers on the same connection would see half of the work."""
        known = None if work.recall is None else work.recall(self._queue_cache)
        if known is not None:
            return known
        if work.in_steps:
            return self._transact(lambda transaction: _run(cast("Steps[T]", work.run(transaction))))
        return self._transact(work.run)

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
    """Reads on the writer's connection, which is never within a transaction when a reader runs."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def quick(self, read: Callable[[sqlite3.Connection], T]) -> T:
        """Returns the result of `read`."""
        try:
            return read(self._connection)
        except sqlite3.Error as error:
            raise translate(error, IN_MEMORY) from error

    async def long(self, read: Callable[[sqlite3.Connection], T]) -> T:
        """Does the same, for code that reads many rows."""
        return self.quick(read)


def _run(steps: Steps[T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
