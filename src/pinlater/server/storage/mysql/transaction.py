"""Runs each call in one transaction, retries it if the database requires that, and never executes it twice.

Every transaction that changes something writes its number into its writer's row, usually first, where it must find the last number that
was committed. When a connection is lost between COMMIT and its answer, or the answer is an error that leaves it open, the next connection
ends the old one and reads the number: if it is the transaction's, the transaction was executed; if it is the previous one, it never will
be. A lower one means that the database lacks changes, and proves nothing. So no transaction is executed twice, and none that was executed
counts as failed.

In a cluster, the next connection may lead to another node, which can't end the old one. There the next number is committed into the row:
then the old transaction, which changes the same row, can no longer be committed. Galera rolls a transaction back between two statements
of a packet, and commits the later ones: so a COMMIT is a packet of its own there, which is answered with the error.

The database may keep a lost connection, with its locks. So the next connection is used only after the database has ended the old one.

A transaction takes queues from the queue cache, and fails if one of them is gone: the foreign key of the counters checks the queues that
it counts for, a statement before the COMMIT the others. Then the cache is read again, and the transaction runs again. So the cache
never decides that a queue, or anything in it, is absent.

The numbers are in the range that came with the lease of the server's slot. If the row has another number than expected, another server
has the slot, and the transaction fails. Then this server leases another slot and runs it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import count
from typing import Any, TypeVar

from asyncmy import errors as driver

from pinlater.domain.descriptor import I64_MAX
from pinlater.domain.errors import OutcomeUnknown
from pinlater.domain.queue import queue_of
from pinlater.server.storage.connections import WRITERS, DatabaseConnectionLost, OneConnection, level, now
from pinlater.server.storage.leases import SlotLost
from pinlater.server.storage.mysql.connection import MysqlConnection, Result, code_of, text_of
from pinlater.server.storage.mysql.counters import Counters
from pinlater.server.storage.mysql.errors import (
    DEADLOCKS,
    DUPLICATE,
    FAILED_BEFORE,
    LOCK_WAIT,
    NOT_NULL,
    QUEUE_GONE,
    READ_ONLY,
    ROLLED_BACK,
    is_ours,
    lacks_changes,
    translate,
)
from pinlater.server.storage.mysql.queue_cache import MysqlQueueCache, QueueEntry
from pinlater.server.storage.mysql.settings import MysqlEndpoint, MysqlSettings
from pinlater.server.storage.mysql.statements import JOBS, KEPT_JOBS, STATEMENT_BYTES, Sql, Template, sql
from pinlater.server.storage.mysql.stats import Stats

T = TypeVar("T")
logger = logging.getLogger(__name__)

_MARK_WRITER = sql("mark_writer")
_ALWAYS = Sql(b"TRUE")
_FIND_WRITER = sql("find_writer")
_LIST_NEWEST = sql("list_newest")
_FIND_COMMIT = sql("find_commit")
_CHECK_QUEUES = sql("check_queues")
_FIND_QUEUES = sql("find_queues")
_SELECT_QUEUES = sql("select_queues")
_COMMIT_STEP_S = 0.02
# How many numbers come with each lease of a slot: a million a second for twelve days.
NUMBERS = 2**40


class Transaction:
    """What a call works with. Statements that need no answer are sent with the next one that does, or with the COMMIT.

    `careful`: the call ran before and met something unexpected (a key that already existed, a claim that had changed), so it should read
    first.
    """

    def __init__(
        self, writer: Writer, connection: MysqlConnection, queue_cache: MysqlQueueCache, *, careful: bool
    ) -> None:
        self._writer = writer
        self._connection = connection
        self.queue_cache = queue_cache
        self.careful = careful
        self.counters = Counters()
        self._waiting: list[bytes] = []
        self.marked = False
        self.supposed = False
        self.remembered: Sequence[QueueEntry] = ()
        self._used = False
        self._relied_on: set[int] = set()  # queues that were taken from memory
        self.after_commit: list[Callable[[], object]] = []
        self.ended = False

    @property
    def endpoint(self) -> MysqlEndpoint:
        """The name of the database, for errors."""
        return self._connection.endpoint

    @property
    def node(self) -> str:
        """The machine and port of the database."""
        return self._connection.node

    @property
    def statement_bytes_max(self) -> int:
        """How long one statement may be."""
        return self._connection.packet_bytes_max

    @property
    def row_bytes_max(self) -> int:
        """How long a body and a job's options may be, as literals."""
        return self.statement_bytes_max - STATEMENT_BYTES

    async def queues_named(self, names: Iterable[str]) -> dict[str, QueueEntry]:
        """The named queues that exist. The database is queried for those that are not remembered."""
        known = self.queue_cache.queues
        named = dict.fromkeys(names)  # many requests name one queue
        found = {name: known[name] for name in named if name in known}
        unknown = sorted([name for name in named if name not in found])
        if unknown:
            wanted = [name.encode() for name in unknown]
            found |= {queue.name: queue for queue in await self._learn(_FIND_QUEUES(names=wanted))}
        self._relied_on.update([queue.queue_id for queue in found.values()])
        return found

    async def queues_of(self, ids: Iterable[int]) -> dict[int, QueueEntry]:
        """Returns the queues with these ids, from memory or else from the database. A missing one does not exist."""
        known = self.queue_cache.by_id
        wanted = set(ids)
        found = {queue_id: known[queue_id] for queue_id in wanted if queue_id in known}
        unknown = sorted(wanted - found.keys())
        if unknown:
            found |= {queue.queue_id: queue for queue in await self._learn(_SELECT_QUEUES(ids=unknown))}
        self._relied_on.update(found)
        return found

    async def _learn(self, statement: bytes) -> list[QueueEntry]:
        [found] = await self.select(statement)
        return [
            self.queue_cache.learn(queue_id, queue_of(name.decode(), config, paused=False))
            for queue_id, name, config in found.rows
        ]

    def change(self, statement: bytes) -> None:
        """Adds a change whose answer is not needed."""
        if not self.marked:
            self.marked = True
            self._waiting.append(self._writer.mark())
        self._waiting.append(statement)

    def suppose(self, *statements: bytes, rows: int, remembered: Sequence[QueueEntry] = ()) -> None:
        """Sends the transaction's first changes, of which the last must change exactly `rows` rows. If it does not, nothing happens, and
        the call runs again `careful`ly. `remembered`: queues whose rows were remembered: these rows may be locked, and if they are locked
        or gone, the memory of these queues is not used for a while."""
        self.marked = self.supposed = True
        self.remembered = remembered
        self._waiting += [*statements, self._writer.mark(Sql(b"ROW_COUNT() = %d" % rows))]

    async def change_now(self, statement: bytes) -> int:
        """Executes a change at once. Returns the number of rows that it affected."""
        self.change(statement)
        return (await self._flush([]))[-1].affected

    async def select(self, *statements: bytes) -> list[Result]:
        """Returns the answers of these statements, after all changes so far."""
        return (await self._flush(list(statements)))[-len(statements) :]

    async def select_jobs(self, statement: Template, ids: Sequence[int]) -> list[tuple[Any, ...]]:
        """The rows of a statement about these jobs, whose first column is the id, wherever the jobs are kept."""
        if not ids:
            return []
        [found] = await self.select(statement(jobs=JOBS, ids=ids))
        if len(found.rows) == len(ids):
            return list(found.rows)
        there = {line[0] for line in found.rows}
        missing = [job_id for job_id in ids if job_id not in there]
        [kept] = await self.select(statement(jobs=KEPT_JOBS, ids=missing))
        return [*found.rows, *kept.rows]

    def end_without_a_look(self) -> None:
        """Ends a transaction that changed nothing: the queues that were taken from memory need no check. A transaction with a query is
        committed.
        """
        self._relied_on.clear()
        self.ended = not self._used

    async def commit(self, *last: bytes) -> list[Result]:
        """Sends all pending statements, `last` (selects), and the COMMIT in one round trip. Returns the answers of `last`."""
        self.ended = True
        counted = self.counters.statement(self._writer.number)
        if counted is not None:
            self.change(counted)
        uncounted = self._relied_on - self.counters.queue_ids()
        if uncounted:
            self._waiting.append(_CHECK_QUEUES(ids=sorted(uncounted), count=len(uncounted)))
        if not self._used and not self._waiting and not last:
            return []
        alone, answers = self._connection.commits_alone, list[Result]()
        if alone and (self._waiting or last):
            answers = await self._flush([*last])
        if self.marked:
            self._writer.begin_commit()
        try:
            answers += (await self._flush([b"COMMIT"] if alone else [*last, b"COMMIT"]))[:-1]
        except (DatabaseConnectionLost, driver.MySQLError) as error:
            if not self.marked or not self._leaves_open(error):
                self._writer.end_commit(committed=False)
                raise
            had_long_been_open = self._connection.had_long_been_open
            self._connection.close()  # together with its open transaction
            await self._writer.settle(error, self._connection.node, had_long_been_open=had_long_been_open)
            return await self._writer.ask_again(last, error) if last else []
        if self.marked:
            self._writer.end_commit(committed=True)
        return answers[len(answers) - len(last) :]

    def _leaves_open(self, error: Exception) -> bool:
        """Returns whether the transaction may have been executed in spite of the error."""
        if isinstance(error, DatabaseConnectionLost):
            return code_of(error.__cause__) not in ROLLED_BACK
        return code_of(error) not in (ROLLED_BACK if self._connection.unanswered == 1 else FAILED_BEFORE)

    async def _flush(self, more: list[bytes]) -> list[Result]:
        statements, self._waiting = [*self._waiting, *more], []
        self._used = True
        return await self._connection.run(statements)


class _Misjudged(Exception):
    """An assumption of the transaction was wrong. Nothing was changed."""


class Writer(OneConnection[MysqlConnection]):
    """Runs one transaction after the other on one connection. `number` is this writer's row in `writers` and in the counters.

    `rejoin` takes another slot if the one with which this writer had its number is lost.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[MysqlConnection]],
        endpoint: MysqlEndpoint,
        queue_cache: MysqlQueueCache,
        refresh: Callable[[], Awaitable[None]],
        rejoin: Callable[[int], Awaitable[None]],
        settings: MysqlSettings,
        stats: Stats,
    ) -> None:
        super().__init__(connect, settings)
        self._endpoint = endpoint
        self._queue_cache = queue_cache
        self._refresh = refresh
        self._rejoin = rejoin
        self._settings = settings
        self._stats = stats
        self._numbers = (0, 0)
        self._newest = 0
        self._open: int | None = None  # the number of a transaction with an open outcome
        self._exact = False  # the row must have the number `committed`
        self.committed = 0  # the highest number of this writer that is known to be committed
        self.number = 0

    async def become(self, number: int, first: int) -> None:
        """Becomes another writer from the next transaction on, with numbers from `first` on."""
        async with self._turn:
            self.number = number
            self._newest = self.committed = first
            self._numbers = (first, first + NUMBERS - 1)
            self._open, self._exact = None, True

    async def become_unnumbered(self, number: int) -> None:
        """A writer whose row others may share: with random numbers, whatever the row says."""
        async with self._turn:
            self.number = number
            self._newest = secrets.randbits(62)
            self._numbers = (0, I64_MAX)

    async def carry_out(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Runs `work` and commits. It may run several times, so it must change nothing but its transaction.

        Raises the errors of `work`, an `Unavailable` if the database failed, `OutcomeUnknown` if the outcome can't be determined. No new
        attempt begins once a statement's time limit has passed since the first began.
        """
        try:
            return await self._in_turn(work)
        except SlotLost as lost:
            self._stats.slots_lost += 1
            await self._rejoin(lost.slot)
        return await self._in_turn(work)

    def mark(self, condition: Sql = _ALWAYS) -> bytes:
        """The statement that numbers a transaction. It fails if `condition` doesn't hold."""
        self._newest += 1
        known = Sql(b"newest = %d" % self.committed) if self._exact else _ALWAYS
        return _MARK_WRITER(writer=self.number, newest=self._newest, known=known, condition=condition)

    def begin_commit(self) -> None:
        """The COMMIT of the transaction with the newest number is about to be sent."""
        self._open = self._newest

    def end_commit(self, *, committed: bool) -> None:
        """Notes that the outcome of that transaction is known."""
        if committed and self._open is not None:
            self.committed = self._open
        self._open = None

    async def _in_turn(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        async with self._turn:
            careful = False
            give_up_at = now() + self._settings.statement_timeout_ms / 1000
            for attempt in count():
                last = attempt >= self._settings.retries
                try:
                    return await self._once(work, careful=careful)
                except _Misjudged:
                    careful = True
                    continue
                except DatabaseConnectionLost as error:
                    self._stats.lost_connections += 1
                    if last or now() >= give_up_at:
                        raise translate(error, self._endpoint) from error
                except driver.MySQLError as error:
                    careful = careful or code_of(error) == DUPLICATE
                    may_retry = await self._may_retry(error)
                    if last or not may_retry or now() >= give_up_at:
                        if is_ours(error):
                            raise translate(error, self._endpoint, attempt + 1) from error
                        raise
                await self._pause(attempt)
        raise AssertionError  # `count` never ends

    async def _once(self, work: Callable[[Transaction], Awaitable[T]], *, careful: bool) -> T:
        connection = await self._usable_connection()
        if self._open is not None:  # the call that committed was cancelled, or could not ask
            await self._find_number(connection)
        transaction = Transaction(self, connection, self._queue_cache, careful=careful)
        began = time.perf_counter()
        try:
            result = await work(transaction)
            if not transaction.ended:
                await transaction.commit()
        except BaseException as error:
            self._stats.changes += transaction.marked  # it may have been executed
            self._queue_cache.forget_floors()  # the claimed jobs wait again
            await self._roll_back(connection, error)
            if isinstance(error, driver.MySQLError) and self._misjudged(transaction, code_of(error)):
                raise _Misjudged from error
            raise
        for note in transaction.after_commit:
            note()
        self._stats.transactions += 1
        self._stats.transaction_s += time.perf_counter() - began
        self._stats.changes += transaction.marked
        return result

    def _misjudged(self, transaction: Transaction, code: int) -> bool:
        """Returns whether an error with this code means that an assumption of the transaction was wrong."""
        if (code == NOT_NULL and transaction.supposed) or (code == LOCK_WAIT and transaction.remembered):
            self._queue_cache.ready_memory.stale_claims += len(transaction.remembered)
            for queue in transaction.remembered:
                queue.ready.distrust(self._queue_cache.now_s())
            return True
        return False

    # --- connections ------------------------------------------------------------------------------------------------------------

    async def _usable_connection(self) -> MysqlConnection:
        """Returns the connection, or a new one if it was lost or has been idle for so long that the database is about to close it."""
        old = self._connection
        if old is not None and old.usable:
            return old
        if old is not None:
            await old.quit()
        connection = await self._connect()
        if old is not None:
            try:
                await self._end(old, connection)
            except BaseException:
                connection.close()
                raise
        self._connection = connection
        return connection

    async def _end(self, old: MysqlConnection, connection: MysqlConnection) -> None:
        """Ends the old connection in the database, if it still lives: its uncommitted changes are rolled back then.

        A COMMIT under way is awaited instead: MySQL ends itself if a connection is killed that waits for disk space for the binary log.
        """
        held = f"'{old.name}'"
        give_up_at = now() + self._settings.lock_wait_ms / 1000
        while True:
            [alive] = await connection.run([f"SELECT IS_USED_LOCK({held})".encode()])
            if alive.rows[0][0] is None:
                return
            [commits] = await connection.run([_FIND_COMMIT(id=alive.rows[0][0])])
            if not commits.rows:
                break
            if now() >= give_up_at:
                raise DatabaseConnectionLost(
                    f"{self._endpoint}: a COMMIT does not end (state: {commits.rows[0][0] or 'none'}); is its disk full, "
                    "or does it wait for a semi-synchronous replica or another node of its cluster?"
                )
            await asyncio.sleep(_COMMIT_STEP_S)
        with contextlib.suppress(driver.MySQLError):
            await connection.run([b"KILL %d" % alive.rows[0][0]])
        [gone] = await connection.run([f"SELECT GET_LOCK({held}, {self._settings.lock_wait_s})".encode()])
        if gone.rows[0][0] != 1:
            raise DatabaseConnectionLost(f"{self._endpoint}: the old connection does not end")
        await connection.run([f"SELECT RELEASE_LOCK({held})".encode()])

    async def settle(self, cause: Exception, node: str, *, had_long_been_open: bool) -> None:
        """Settles a COMMIT without an answer, or with an ambiguous error: returns if it was executed, raises `DatabaseConnectionLost`, or
        that error, if it was not. `node`: where it was sent. `had_long_been_open`: a new connection may lead to another server.

        A database that refuses connections may be restarting: it is queried repeatedly for `connect_timeout_ms`.

        Raises `OutcomeUnknown` if the database can't be queried in that time, or another server has overwritten the number.
        """
        give_up_at = self._settle_until()
        asked = self._open
        for attempt in count():
            try:
                newest = await self._find_number(await self._usable_connection(), node)
                break
            except (DatabaseConnectionLost, driver.MySQLError) as error:
                logger.log(
                    level(attempt),
                    "%s: the outcome of a transaction can't be asked for yet: %s",
                    self._endpoint,
                    error,
                )
                if now() >= give_up_at:
                    unknown = f"{text_of(cause)}; whether the transaction was carried out could not be asked: {error}"
                    raise OutcomeUnknown(unknown) from cause
            await self._pause(attempt)
        if newest is None:
            raise OutcomeUnknown(f"{text_of(cause)}; meanwhile another server took this one's slot") from cause
        if newest != asked:
            left_replica = had_long_been_open and code_of(cause) in READ_ONLY
            if isinstance(cause, DatabaseConnectionLost) or left_replica:
                raise DatabaseConnectionLost(f"{text_of(cause)}; the transaction was not carried out") from cause
            raise cause
        self._stats.settled += 1
        if not isinstance(cause, DatabaseConnectionLost):
            logger.warning(
                "%s: a COMMIT was answered with an error and carried out: %s", self._endpoint, text_of(cause)
            )

    async def _find_number(self, connection: MysqlConnection, node: str = "") -> int | None:
        """Finds out, and notes, which number this writer committed last, and makes sure that the open transaction is never committed if
        it wasn't. None if another server has the slot. Raises `DatabaseConnectionLost` if this database lacks committed changes.

        A read-only server refuses the lock. If it is the one that got the COMMIT (`node`), it has ended the old connection, and nothing
        comes after that: then a read is enough."""
        try:
            found, _ = await connection.run([_FIND_WRITER(writer=self.number), b"COMMIT"])
        except driver.MySQLError as error:
            if code_of(error) not in READ_ONLY or connection.node != node or connection.several_nodes:
                raise
            _, found, _ = await connection.run(
                [b"ROLLBACK", _LIST_NEWEST(first=self.number, last=self.number), b"ROLLBACK"]
            )
            found = found._replace(rows=[(newest,) for _, newest in found.rows])
        first, last = self._numbers
        newest = int(found.rows[0][0]) if found.rows else first
        if not first <= newest <= last:
            self._open = None
            return None
        if self._exact and newest < self.committed:
            connection.close()
            raise lacks_changes(self._endpoint)
        if self._exact and newest == self.committed and connection.several_nodes:
            await connection.run([self.mark()])
            await connection.run([b"COMMIT"])
            newest = self._newest
        self.committed, self._open = newest, None
        return newest

    async def ask_again(self, selects: Sequence[bytes], cause: Exception) -> list[Result]:
        """Returns the answers of a transaction that was executed. Raises `OutcomeUnknown` if the database can't be queried within the
        time of `settle`.
        """
        give_up_at = self._settle_until()
        for attempt in count():
            try:
                connection = await self._usable_connection()
                return (await connection.run([*selects, b"COMMIT"]))[:-1]
            except (DatabaseConnectionLost, driver.MySQLError) as error:
                logger.log(
                    level(attempt), "%s: the answer of a transaction can't be asked for yet: %s", self._endpoint, error
                )
                if now() >= give_up_at:
                    unknown = f"{text_of(cause)}; the transaction was carried out, but its answer is lost"
                    raise OutcomeUnknown(unknown) from cause
            await self._pause(attempt)
        raise AssertionError  # `count` never ends

    async def _roll_back(self, connection: MysqlConnection, error: BaseException) -> None:
        if isinstance(error, asyncio.CancelledError):
            connection.close()
        elif connection.open and connection is self._connection:
            # Galera reports a rollback of its own to the next command, even to this one, and then this one does nothing.
            for _ in range(2):
                try:
                    await connection.run([b"ROLLBACK"])
                except DatabaseConnectionLost:
                    return
                except driver.MySQLError:
                    continue
                return
            connection.close()

    async def _may_retry(self, error: driver.MySQLError) -> bool:
        code = code_of(error)
        if code == NOT_NULL:
            raise SlotLost(self._endpoint, self.number // WRITERS) from error
        if code in DEADLOCKS:
            self._stats.deadlocks += 1
        elif code == LOCK_WAIT:
            self._stats.lock_waits += 1
        elif code in QUEUE_GONE:
            await self._refresh()
        elif code in READ_ONLY:
            return self._leave_replica()
        elif code != DUPLICATE:
            return False
        return True

    def _leave_replica(self) -> bool:
        """Closes a connection to a replica: after a failover, a new one may lead to the new primary."""
        connection = self._connection
        if connection is None:
            return False
        connection.close()
        return connection.had_long_been_open
