"""Transactions: what one call does in one, retried where the database says so, and never carried out twice.

Every transaction that changes something begins by writing its number into its writer's row. When a connection is lost between COMMIT
and its answer, the next connection kills the old one, waits for the row's lock and reads the number: it is the transaction's, or the
transaction never was. So a lost answer is no reason to do a thing again, and a thing done is never taken for failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Awaitable, Callable
from itertools import count
from random import Random
from typing import TypeVar

from asyncmy import errors as driver

from pinlater.domain.errors import OutcomeUnknown
from pinlater.storage.mysql.book import Book
from pinlater.storage.mysql.connection import Connection, ConnectionLost, Result, code_of
from pinlater.storage.mysql.counters import Counters
from pinlater.storage.mysql.errors import DEADLOCK, DUPLICATE, LOCK_WAIT, NO_PARENT, is_ours, translate
from pinlater.storage.mysql.settings import Endpoint, MysqlSettings
from pinlater.storage.mysql.statements import sql

T = TypeVar("T")
logger = logging.getLogger(__name__)

_MARK = sql("mark_writer")
_FIND_WRITER = sql("find_writer")
_NUMBERS = 2**62 - 1


class Stats:
    """What a shard's writers did, for the metrics."""

    def __init__(self) -> None:
        self.transactions = 0
        self.changes = 0  # those that changed something
        self.deadlocks = 0
        self.lock_waits = 0
        self.lost_connections = 0
        self.settled = 0  # outcomes that were found out after a lost answer


class Transaction:
    """What a call works with. Statements that need no answer ride with the next that does, or with the COMMIT.

    `careful`: the call ran before and met a key that was there already, so it had better look first.
    """

    def __init__(self, writer: Writer, connection: Connection, book: Book, *, careful: bool) -> None:
        self._writer = writer
        self._connection = connection
        self.book = book
        self.careful = careful
        self.counters = Counters()
        self._waiting: list[bytes] = []
        self.marked = False
        self._used = False
        self.ended = False

    @property
    def statement_bytes_max(self) -> int:
        """How long one statement may be."""
        return self._connection.packet_bytes_max

    def change(self, statement: bytes) -> None:
        """A change whose own answer nobody needs."""
        if not self.marked:
            self.marked = True
            self._waiting.append(self._writer.mark())
        self._waiting.append(statement)

    async def change_now(self, statement: bytes) -> int:
        """A change; how many rows it met."""
        self.change(statement)
        return (await self._flush([]))[-1].affected

    async def select(self, *statements: bytes) -> list[Result]:
        """The answers of these, after all changes so far."""
        return (await self._flush(list(statements)))[-len(statements) :]

    async def commit(self, *last: bytes) -> list[Result]:
        """Everything that waits, `last` (selects), and the COMMIT, in one round trip; the answers of `last`."""
        self.ended = True
        counted = self.counters.statement(self._writer.number)
        if counted is not None:
            self.change(counted)
        if not self._used and not self._waiting and not last:
            return []
        try:
            return (await self._flush([*last, b"COMMIT"]))[-1 - len(last) : -1]
        except ConnectionLost as error:
            if not self.marked:
                raise
            connection = await self._writer.settle(self._connection, error)
            return await connection.run(list(last)) if last else []

    async def _flush(self, more: list[bytes]) -> list[Result]:
        statements, self._waiting = [*self._waiting, *more], []
        self._used = True
        return await self._connection.run(statements)


class Writer:
    """One after the other, transactions on one connection. `number` is this writer's row in `writers` and in the counters."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[Connection]],
        endpoint: Endpoint,
        book: Book,
        refresh: Callable[[], Awaitable[None]],
        settings: MysqlSettings,
        stats: Stats,
    ) -> None:
        self._connect = connect
        self._endpoint = endpoint
        self._book = book
        self._refresh = refresh
        self._settings = settings
        self._stats = stats
        self._random = Random()  # noqa: S311 spreads retries, guards nothing
        self._turn = asyncio.Lock()
        self._connection: Connection | None = None
        self._newest = secrets.randbits(62)
        self.number = 0

    async def carry_out(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Runs `work` and commits. It may run several times, so it must change nothing but its transaction.

        Raises what `work` raises, a `WorldError` for what the database could not do, `OutcomeUnknown` where nobody knows.
        """
        async with self._turn:
            careful = False
            for attempt in count():
                try:
                    return await self._once(work, careful=careful)
                except ConnectionLost as error:
                    self._stats.lost_connections += 1
                    if attempt >= self._settings.retries:
                        raise translate(error, self._endpoint) from error
                except driver.MySQLError as error:
                    careful = careful or code_of(error) == DUPLICATE
                    if attempt >= self._settings.retries or not await self._may_retry(error):
                        if is_ours(error):
                            raise translate(error, self._endpoint) from error
                        raise
                pause_ms = self._settings.retry_pause_ms * 2**attempt * self._random.random()
                await asyncio.sleep(pause_ms / 1000)
        raise AssertionError  # `count` never ends

    async def close(self) -> None:
        """Waits for what is under way."""
        async with self._turn:
            if self._connection is not None:
                await self._connection.quit()

    def mark(self) -> bytes:
        """The statement that begins a transaction's changes."""
        self._newest = (self._newest + 1) & _NUMBERS
        return _MARK(writer=self.number, newest=self._newest)

    async def _once(self, work: Callable[[Transaction], Awaitable[T]], *, careful: bool) -> T:
        if self._connection is None or not self._connection.open:
            self._connection = await self._connect()
        connection = self._connection
        transaction = Transaction(self, connection, self._book, careful=careful)
        try:
            result = await work(transaction)
            if not transaction.ended:
                await transaction.commit()
        except BaseException as error:
            await self._roll_back(connection, error)
            raise
        self._stats.transactions += 1
        self._stats.changes += transaction.marked
        return result

    async def settle(self, old: Connection, cause: ConnectionLost) -> Connection:
        """After a COMMIT without an answer: a new connection if it was carried out; raises `ConnectionLost` if it was not.

        Raises `OutcomeUnknown` where the database can't be asked.
        """
        for attempt in range(self._settings.retries + 1):
            try:
                connection = await self._connect()
                if await self._was_carried_out(connection, old):
                    self._connection = connection
                    self._stats.settled += 1
                    return connection
            except (ConnectionLost, driver.MySQLError):
                logger.warning("%s: the outcome of a transaction can't be asked for yet", self._endpoint, exc_info=True)
                await asyncio.sleep(self._settings.retry_pause_ms / 1000 * 2**attempt * self._random.random())
                continue
            self._connection = connection
            raise ConnectionLost(f"{cause}; the transaction was not carried out") from cause
        raise OutcomeUnknown(f"{cause}; whether the transaction was carried out could not be asked") from cause

    async def _was_carried_out(self, connection: Connection, old: Connection) -> bool:
        """Ends the old connection in the database, where it still lives, and looks at the number it left."""
        held = f"'{old.name}'"
        [alive] = await connection.run([f"SELECT IS_USED_LOCK({held})".encode()])
        if alive.rows[0][0] is not None:
            with contextlib.suppress(driver.MySQLError):
                await connection.run([b"KILL %d" % alive.rows[0][0]])
        [gone] = await connection.run([f"SELECT GET_LOCK({held}, {self._settings.lock_wait_s})".encode()])
        if gone.rows[0][0] != 1:
            raise ConnectionLost(f"{self._endpoint}: the old connection does not end")
        found, *_ = await connection.run(
            [_FIND_WRITER(writer=self.number), f"SELECT RELEASE_LOCK({held})".encode(), b"COMMIT"]
        )
        return bool(found.rows) and found.rows[0][0] == self._newest

    async def _roll_back(self, connection: Connection, error: BaseException) -> None:
        if isinstance(error, asyncio.CancelledError):
            connection.close()
        elif connection.open and connection is self._connection:
            with contextlib.suppress(ConnectionLost, driver.MySQLError):
                await connection.run([b"ROLLBACK"])

    async def _may_retry(self, error: driver.MySQLError) -> bool:
        code = code_of(error)
        if code == DEADLOCK:
            self._stats.deadlocks += 1
        elif code == LOCK_WAIT:
            self._stats.lock_waits += 1
        elif code in NO_PARENT:
            await self._refresh()
        elif code != DUPLICATE:
            return False
        return True
