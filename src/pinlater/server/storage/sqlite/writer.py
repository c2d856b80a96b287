"""Group commit on the event loop: the calls that arrive while one commit is under way share the next transaction.

A batch's statements run on the loop: the driver acquires the interpreter lock for each row, and a thread would wait for it too long
while the loop is busy. Only COMMIT, which waits for the disk without that lock, is handed to a thread; and not even that if the
disk has lately been quick (`inline_commit_us`), because a hand-over there and back costs more than such a flush. A call gets its
result after the COMMIT, never before.

Calls that wait in the lanes join as batches: when a transaction is about to begin, each batch is asked for its command, which contains
all calls so far, and takes its answer itself. If a call in the transaction has woken a dequeue (the ack of a job with an ordering key, for
the next one of its key), the transaction stays open for two turns of the loop, so that the claim joins it.

A call that raises fails its transaction: everything is rolled back, the queue cache is read again, and the calls are run again one by
one, so that only the faulty one fails. That costs the normal path nothing; savepoints would cost each call two statements. So a call's
work may run twice and must depend on nothing but its arguments, the file and the queue cache.

A call that memory alone can answer (a claim of queues in which nothing is due) needs no transaction. It is answered in its turn, after
the calls before it, when no transaction is open: then memory equals the file, except for changes of another connection (an operator's).
So memory is trusted for a second after a transaction that looked for such changes, and not after one that failed.

If another process has the file locked, nothing here blocks: the transaction is retried for at most `busy_timeout_ms`, and the loop runs
meanwhile.

A long call (an enqueue of thousands of jobs) is executed in steps, each in a turn of the loop of its own, in a transaction of its own:
the transaction stays open meanwhile, other calls wait for the next one, and the thread commits it. Readers see nothing of it before its
COMMIT, since they have connections of their own. Until then the queue cache is ahead of the file, as it is while the thread commits: code
that reads it on the loop takes it for a hint.

Weakness: any other call blocks the loop for as long as its statements take; its caller bounds it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sqlite3
from collections import deque
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar, cast

from msgspec.structs import astuple

from pinlater.domain.errors import ShardConnectionFailed, TooManyWaiting
from pinlater.server.storage.commands import Command
from pinlater.server.storage.interface import WaitingBatch
from pinlater.server.storage.sqlite.checkpointer import LOOKS_AN_INTERVAL, Checkpointer
from pinlater.server.storage.sqlite.commit import CommitPace, CommitThread, FileIdentity
from pinlater.server.storage.sqlite.errors import is_busy, is_damage, is_outside_failure, translate
from pinlater.server.storage.sqlite.queue_cache import SqliteQueueCache
from pinlater.server.storage.sqlite.settings import SqliteSettings
from pinlater.server.storage.sqlite.transaction import Transaction

T = TypeVar("T")
Steps = Generator[None, None, T]
logger = logging.getLogger(__name__)

_COMPLAINT_EVERY_S = 10.0
_TURNS_LINGERED = 2
# The store counts as idle if nothing was committed for this long, and at most this many rows change now (those of one job).
_IDLE_S, _IDLE_ROWS_MAX = 0.002, 20
# Pauses between two attempts while another process has the file locked: each twice as long as the one before, up to the second value.
_BUSY_PAUSES_S = (0.001, 0.025)
# How long after a check for changes of other connections memory alone may answer calls.
_TRUSTED_S = 1.0


class Work(NamedTuple, Generic[T]):
    """The work of a call within a transaction. `recall`: returns the result of a `run` that would change nothing if memory knows it,
    otherwise None. `in_steps`: `run` returns steps, between which the loop runs.
    """

    run: Callable[[Transaction], T]
    recall: Callable[[SqliteQueueCache], T | None] | None = None
    in_steps: bool = False


def in_steps(run: Callable[[Transaction], Steps[T]]) -> Work[T]:
    """Returns long work, whose result is that of its steps."""
    return Work(cast("Callable[[Transaction], T]", run), in_steps=True)


Works: TypeAlias = Mapping[type[Command[Any]], Callable[..., Work[Any]]]
"""Makes the work of each command that batches have."""
_NO_WORK: Work[None] = Work(lambda _: None)


class _WriterCall:
    """A call of one caller, which waits for `future`."""

    __slots__ = ("alone", "future", "work")

    def __init__(self, work: Work[Any], future: asyncio.Future[Any]) -> None:
        self.work = work
        self.future = future
        self.alone = work.in_steps

    def answer(self, result: Any) -> bool:
        """Passes the result to the caller. Returns False: a call is not a batch, in which others may wait."""
        if not self.future.done():
            self.future.set_result(result)
        return False

    def refuse(self, error: BaseException) -> bool:
        """Passes the error to the caller. Returns False as `answer`."""
        if not self.future.done():
            self.future.set_exception(error)
        return False


class _BatchCall:
    """A batch of calls, which take their results themselves. It has no work before its turn."""

    __slots__ = ("alone", "answer", "batch", "refuse", "work", "works")
    future = None

    def __init__(self, batch: WaitingBatch, works: Works) -> None:
        self.batch = batch
        self.works = works
        self.work = _NO_WORK
        self.alone = False
        self.answer = batch.done
        self.refuse = batch.failed


_Call: TypeAlias = _WriterCall | _BatchCall
# The calls of a transaction, with their results.
_Carried: TypeAlias = list[tuple[_Call, Any]]


class Writer:
    """The one writer. `commits` counts transactions with changes; `failed`: the last transaction with changes was not committed."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path,
        queue_cache: SqliteQueueCache,
        settings: SqliteSettings,
        monotonic: Callable[[], float],
        file_identity: FileIdentity,
        checkpointer: Checkpointer,
    ) -> None:
        self._connection = connection
        self._file_identity = file_identity
        self._path = path
        self._queue_cache = queue_cache
        self._settings = settings
        self._monotonic = monotonic
        self._loop = asyncio.get_running_loop()
        self._transaction = Transaction(connection, queue_cache)
        self._cursor = self._transaction.cursor
        [self._version] = connection.execute("PRAGMA data_version").fetchone()
        self._thread = CommitThread(self._loop)
        self._pace = CommitPace(settings.inline_commit_us / 1e6)
        self._waiting: deque[_Call] = deque()
        self._unbegun: list[_BatchCall] = []  # asked for their commands in the next turn, after the calls that wait
        self._scheduled = False
        self._connection_in_use = False  # by the thread, or by a call in steps: nothing else may use it
        self._checkpointer = checkpointer
        self._checkpoint_wanted = False
        self._closed = False
        self._idle: asyncio.Future[None] | None = None
        self._stale = False
        self._crowded = False  # the last transaction had several calls
        self._busy_since: float | None = None
        self._busy_pause_s = 0.0
        self._last_commit = -math.inf
        self._looked_at = -math.inf
        self._complained_at = -math.inf
        self._unsaid = 0
        self.commits = 0
        self.failed = False
        self._tick_later()

    async def carry_out(self, work: Work[T]) -> T:
        """The result of `work`, once its changes are on the disk. Work in steps has a transaction for itself."""
        self._check_accepts()
        recall = work.recall
        if recall is not None and not self._waiting and not self._unbegun and not self._connection_in_use:
            known = self._recalled(recall)
            if known is not None:
                return known
            work = work._replace(recall=None)  # the call is first in the next turn, where memory would give the same
        future: asyncio.Future[T] = self._loop.create_future()
        self._waiting.append(_WriterCall(work, future))
        self._schedule()
        return await future

    def join(self, batch: WaitingBatch, works: Works) -> None:
        """Executes the waiting calls of a batch, which is asked for its command when a transaction is about to begin."""
        self._check_accepts()
        self._unbegun.append(_BatchCall(batch, works))
        self._schedule()

    def _begin_batches(self) -> bool:
        """Asks batches for their commands. Returns whether a claim follows one of them."""
        unbegun, self._unbegun = self._unbegun, []
        claim_follows = False
        for call in unbegun:
            try:
                begun = call.batch.begin()
                if begun is None:
                    continue
                call.work = call.works[type(begun.command)](*astuple(begun.command))
            except Exception as error:  # noqa: BLE001 a bug: it must reach its own callers and no other
                self._refuse([(call, None)], error)
                continue
            call.alone = call.work.in_steps
            claim_follows |= begun.claim_follows
            self._waiting.append(call)
        return claim_follows

    def _check_accepts(self) -> None:
        if self._closed:
            raise ShardConnectionFailed(f"{self._path} is closed")
        if len(self._waiting) >= self._settings.waiting_calls_max:
            raise TooManyWaiting(f"{len(self._waiting)} calls wait for the store already", retry_after_ms=100)

    async def close(self) -> None:
        """Refuses new calls, finishes those that wait, ends the thread."""
        self._closed = True
        self._next_tick.cancel()
        while self._waiting or self._unbegun or self._connection_in_use or self._scheduled:
            self._idle = self._loop.create_future()
            await self._idle
        self._thread.stop()

    # --- turns ------------------------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        """Waits for a turn of the loop under load: calls that arrive in it share the transaction, which costs more than the turn."""
        if not self._scheduled and not self._connection_in_use:
            self._turn_after(1 if self._crowded else 0)

    def _turn_after(self, turns: int) -> None:
        """The transaction, in the turn of the loop that follows `turns` others."""
        self._scheduled = True
        if turns:
            self._loop.call_soon(self._turn_after, turns - 1)
        else:
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Runs one transaction of the waiting calls, or the checkpoint that was requested."""
        self._scheduled = False
        if self._checkpoint_wanted:
            self._checkpoint_wanted = False
            self._connection_in_use = True
            self._thread.run(self._checkpoint, self._checkpointed)
            return
        if self._unbegun and self._begin_batches():
            self._turn_after(_TURNS_LINGERED)
            return
        self._answer_from_memory()
        if self._waiting:
            self._transact()
        self._rest()

    def _rest(self) -> None:
        if self._connection_in_use:
            return
        if self._waiting or self._unbegun or self._checkpoint_wanted:
            self._schedule()
        elif self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def _answer_from_memory(self) -> None:
        """Answers the first calls, up to the first one that needs a transaction."""
        waiting = self._waiting
        while waiting and (recall := waiting[0].work.recall) is not None:
            try:
                result = self._recalled(recall)
            except Exception as error:  # noqa: BLE001 a bug: it must reach its own caller and no other
                self._refuse([(waiting.popleft(), None)], error)
                continue
            if result is None:
                return
            self._answer([(waiting.popleft(), result)])

    def _recalled(self, recall: Callable[[SqliteQueueCache], T | None]) -> T | None:
        """Returns the result from memory, while it is trusted. Call it when no transaction is open."""
        return recall(self._queue_cache) if self._monotonic() - self._looked_at < _TRUSTED_S else None

    def _transact(self) -> None:
        carried: _Carried = []
        try:
            self._file_identity.check()
            if self._stale:
                self._queue_cache.reload(self._cursor.execute)
                self._stale = False
            self._cursor.execute("BEGIN IMMEDIATE")
            self._busy_since = None
            self._queue_cache.begin()
            self._look_for_others()
            before = self._connection.total_changes
            self._run_calls(carried)
        except Exception as error:  # noqa: BLE001 whatever it is, it must be rolled back and raised in its call
            if carried or not is_busy(error):
                self._take_back(carried, error)
            else:
                self._wait_for_lock(error)
            return
        if carried and carried[0][0].work.in_steps:
            self._begin_steps(*carried[0], before)
        elif self._queue_cache.claim_follows and not self._waiting:  # the claim would have its turn after those
            self._connection_in_use = True
            self._linger(carried, before, _TURNS_LINGERED)
        else:
            self._end_transaction(carried, before)

    def _linger(self, carried: _Carried, before: int, turns: int) -> None:
        """Keeps the transaction open for some turns, for the claim of a dequeue that a call in it has woken."""
        if turns:
            self._loop.call_soon(self._linger, carried, before, turns - 1)
            return
        self._connection_in_use = False
        self._begin_batches()
        try:
            self._file_identity.check()  # again: turns of the loop may take long
            self._run_calls(carried)
        except Exception as error:  # noqa: BLE001 as in `_transact`
            self._take_back(carried, error)
        else:
            self._end_transaction(carried, before)
        self._rest()

    def _end_transaction(self, carried: _Carried, before: int) -> None:
        """Commits. `before`: the connection's changes before the transaction."""
        try:
            self._queue_cache.write(self._cursor.execute)
        except Exception as error:  # noqa: BLE001 as in `_transact`
            self._take_back(carried, error)
            return
        changed = self._connection.total_changes - before
        self._crowded = changed > _IDLE_ROWS_MAX or len(carried) > 1
        if not changed:
            self._commit_now(carried, changed=False)
            return
        self.commits += 1
        started = self._monotonic()
        idle = changed <= _IDLE_ROWS_MAX and started - self._last_commit > _IDLE_S
        if self._pace.inline(idle=idle):
            self._commit_now(carried, changed=True)
            self._last_commit = self._monotonic()
            self._pace.took(self._last_commit - started, inline=True)
        else:
            self._connection_in_use = True
            self._thread.run(self._commit, lambda took, error: self._committed(carried, took, error))

    # --- calls in steps -------------------------------------------------------------------------------------------------------

    def _begin_steps(self, call: _Call, steps: Steps[Any], before: int) -> None:
        self._connection_in_use = True
        self._loop.call_soon(self._step, call, steps, before)

    def _step(self, call: _Call, steps: Steps[Any], before: int) -> None:
        """The next step; after the last one the thread commits. `before`: the connection's changes before the transaction."""
        try:
            next(steps)
        except StopIteration as end:
            self._end_steps([(call, end.value)], before)
        except Exception as error:  # noqa: BLE001 whatever it is, it must be rolled back and raised in its call
            self._connection_in_use = False
            self._take_back([(call, None)], error)
            self._rest()
        else:
            self._loop.call_soon(self._step, call, steps, before)

    def _end_steps(self, carried: _Carried, before: int) -> None:
        try:
            self._file_identity.check()  # again, as in `_linger`
            self._queue_cache.write(self._cursor.execute)
        except Exception as error:  # noqa: BLE001 as in `_step`
            self._connection_in_use = False
            self._take_back(carried, error)
            self._rest()
            return
        if self._connection.total_changes != before:
            self.commits += 1
            self._thread.run(self._commit, lambda took, error: self._committed(carried, took, error))
            return
        self._connection_in_use = False
        self._commit_now(carried, changed=False)
        self._rest()

    def _look_for_others(self) -> None:
        """Refreshes the queue cache if another connection (an operator's) has changed the file. Costs a microsecond."""
        [version] = self._cursor.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self._queue_cache.reload(self._cursor.execute)
            self._version = version
        self._looked_at = self._monotonic()

    def _run_calls(self, carried: _Carried) -> None:
        """Runs waiting calls until none is left or the transaction is long enough."""
        waiting = self._waiting
        transaction = self._transaction
        ends = 0.0
        while waiting:
            call = waiting[0]
            if call.alone and carried:
                return
            waiting.popleft()
            if call.future is not None and call.future.done():
                continue  # its caller has gone before anything happened
            carried.append((call, None))  # before it runs: if it raises, it is among those to roll back
            carried[-1] = (call, call.work.run(transaction))
            if call.alone or not waiting:
                return
            now = self._monotonic()
            if not ends:
                ends = now + self._settings.transaction_ms_max / 1000
            elif now > ends:
                return

    def _wait_for_lock(self, error: Exception) -> None:
        """Handles a file that another process has locked: retries soon, or refuses the waiting calls if that has lasted too long."""
        now = self._monotonic()
        shortest_s, longest_s = _BUSY_PAUSES_S
        if self._busy_since is None:
            self._busy_since, self._busy_pause_s = now, shortest_s
        if now - self._busy_since >= self._settings.busy_timeout_ms / 1000:
            self._busy_since = None
            waiting = [(call, None) for call in self._waiting]
            self._waiting.clear()
            self._fail(waiting, error)
            return
        self._scheduled = True
        self._loop.call_later(self._busy_pause_s, self._turn)
        self._busy_pause_s = min(longest_s, 2 * self._busy_pause_s)

    # --- ends of a transaction ----------------------------------------------------------------------------------------------

    def _commit_now(self, carried: _Carried, *, changed: bool) -> None:
        try:
            self._cursor.execute("COMMIT")
        except sqlite3.Error as error:
            self._fail(carried, error)
        else:
            if changed and self.failed:  # a transaction without writes does not show whether writing works again
                self._works_again()
            self._answer(carried)

    def _commit(self) -> float:
        """Commits in the thread. Returns how long it took, in seconds."""
        started = self._monotonic()
        self._cursor.execute("COMMIT")
        return self._monotonic() - started

    def _committed(self, carried: _Carried, took: float | None, error: BaseException | None) -> None:
        self._connection_in_use = False
        self._last_commit = self._monotonic()
        if took is None:
            self._fail(carried, error or RuntimeError("commit without a result"))
        else:
            self._pace.took(took, inline=False)
            if self.failed:
                self._works_again()
            self._answer(carried)
        if self._waiting or self._unbegun:
            self._turn()
        else:
            self._rest()

    def _answer(self, carried: _Carried) -> None:
        for call, result in carried:
            try:
                others_wait = call.answer(result)
            except Exception as bug:  # noqa: BLE001 it must not keep back the other answers, nor stop the writer
                others_wait = self._untold(call, bug)
            if others_wait:
                self._unbegun.append(cast("_BatchCall", call))

    def _untold(self, call: _Call, bug: Exception) -> bool:
        """Returns whether other calls may wait. Asks a batch that has not reported it."""
        logger.error("store %s: an answer can't be given out", self._path, exc_info=bug)
        return isinstance(call, _BatchCall)

    def _take_back(self, carried: _Carried, error: Exception) -> None:
        """A call raised: a failure of the file fails all calls of the transaction, a bug only its own call."""
        if is_outside_failure(error) or not carried:
            self._fail(carried, error)
            return
        self._roll_back()
        if len(carried) == 1:
            self._refuse(
                carried,
                translate(error, self._path) if isinstance(error, sqlite3.Error) and is_damage(error) else error,
            )
            return
        for call, _ in reversed(carried):
            call.alone = True
            self._waiting.appendleft(call)

    def _fail(self, carried: _Carried, error: BaseException) -> None:
        self.failed = True
        self._complain(error)
        if not carried and self._waiting:  # not even BEGIN worked: the first call gets the error
            carried = [(self._waiting.popleft(), None)]
        self._roll_back()
        self._refuse(carried, translate(error, self._path) if isinstance(error, sqlite3.Error) else error)

    def _complain(self, error: BaseException) -> None:
        """Logs a failure now and then: a broken store fails thousands of times a second."""
        now = self._monotonic()
        if now - self._complained_at < _COMPLAINT_EVERY_S:
            self._unsaid += 1
            return
        more = f" ({self._unsaid} more since the last such line)" if self._unsaid else ""
        logger.error("store %s: a transaction failed: %s%s", self._path, error, more)
        self._complained_at, self._unsaid = now, 0

    def _works_again(self) -> None:
        self.failed = False
        self._complained_at = -math.inf
        logger.warning("store %s: transactions work again", self._path)

    def _refuse(self, carried: _Carried, error: BaseException) -> None:
        for call, _ in carried:
            try:
                others_wait = call.refuse(error)
            except Exception as bug:  # noqa: BLE001 as in `_answer`
                others_wait = self._untold(call, bug)
            if others_wait:
                self._unbegun.append(cast("_BatchCall", call))

    def _roll_back(self) -> None:
        """Rolls back file and memory. If even reading fails, the next transaction begins with another attempt, or fails with it.

        After such a failure memory may lack any queue or counter, also of queues that this transaction did not change.
        """
        reload = self._queue_cache.reload if self._stale else self._queue_cache.reload_changed
        self._stale = True
        self._looked_at = -math.inf
        try:
            if self._connection.in_transaction:
                self._cursor.execute("ROLLBACK")
            reload(self._cursor.execute)
            self._stale = False
        except sqlite3.Error as error:
            logger.error("store %s: can't be read after a rollback: %s", self._path, error)  # noqa: TRY400 no stack needed

    # --- checkpoints ----------------------------------------------------------------------------------------------------------

    def _tick_later(self) -> None:
        pause_s = self._settings.checkpoint_interval_ms / 1000 / LOOKS_AN_INTERVAL
        self._next_tick = self._loop.call_later(pause_s, self._tick)

    def _tick(self) -> None:
        self._tick_later()
        if self._checkpointer.wanted(self.commits):
            self._checkpoint_wanted = True
            self._schedule()

    def _checkpoint(self) -> float:
        self._checkpointer.run()
        return 0.0

    def _checkpointed(self, took: float | None, error: BaseException | None) -> None:
        self._connection_in_use = False
        if error is not None:
            logger.warning("store %s: checkpoint failed, the log goes on growing: %s", self._path, error)
        self._rest()
