"""Hands out due jobs: for each priority that has any, one read in the order of `ready`'s key and one delete of exactly that range.

The rows handed out are always the first ones of the key, so the range up to the last of them contains nothing else; a job that does not
fit into the bytes of a call ends the read and stays.

A claim of queues in which nothing is due is answered from the counters in memory, without a transaction (`_recall`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from pinlater.domain.errors import PinLaterError, QueueNotFound
from pinlater.domain.job import HandedOutJob
from pinlater.server.storage.claim_bytes import BytesTogether, header_bytes
from pinlater.server.storage.options import NONE, Options, has_expired, has_only_order, options_of
from pinlater.server.storage.record import HAS_ORDER, later
from pinlater.server.storage.relational import bulk, sweeping
from pinlater.server.storage.relational.claim_options import claim_flags, claim_timeout_ms, freed_by_claim
from pinlater.server.storage.sqlite.dialect import SqliteDialect, at_once
from pinlater.server.storage.sqlite.queue_cache import NEVER_MS, Counter, QueueEntry, SqliteQueueCache
from pinlater.server.storage.sqlite.statements import Execute, Rows, sql
from pinlater.server.storage.sqlite.transaction import Transaction
from pinlater.server.storage.sqlite.writer import Work
from pinlater.server.storage.values import ClaimCall, Claimed, ClaimOrder

# An order reads at most this many expired or lost jobs; the caller asks again, as the next due time is then in the past.
_PASSED_OVER_MAX = 1_000
_READ_MAX = 1_000
# If one call has at least this many jobs whose claims have the same flags, they are inserted by one statement over a list of ids.
_LIST_MIN = 6

_LIMIT, _JOBS = attrgetter("limit"), attrgetter("jobs")
_SELECT_DUE = sql("select_due")
_SELECT_PROGRESS = sql("select_progress")
_DELETE_READY_THROUGH = sql("delete_ready_through")
_SELECT_FIRST_READY = sql("select_first_ready")
_INSERT_CLAIMS = Rows("insert_claims")
_INSERT_CLAIMS_OF = sql("insert_claims_of")
_FREE_UNIQUE_KEY = sql("free_unique_key")


def claim(orders: Sequence[ClaimOrder], now_ms: int) -> Work[Sequence[Claimed | PinLaterError]]:
    """Returns the work of these orders."""
    return Work(partial(_claim, orders=orders, now_ms=now_ms), recall=partial(_recall, orders=orders, now_ms=now_ms))


def _claim(transaction: Transaction, orders: Sequence[ClaimOrder], now_ms: int) -> list[Claimed | PinLaterError]:
    """Claims jobs, one order after the other."""
    results: list[Claimed | PinLaterError] = []
    together = BytesTogether(orders)
    for order in orders:
        queue = transaction.queue_cache.queues.get(order.queue)
        if queue is None:
            results.append(QueueNotFound.of(order.queue))
        else:
            results.append(_OpenOrder(transaction, queue, order, now_ms, together).run())
    return results


def _recall(queue_cache: SqliteQueueCache, orders: Sequence[ClaimOrder], now_ms: int) -> list[Claimed] | None:
    """Returns the answer of `_claim`, if the counters show that nothing is due in any of these queues, or None if a claim has to read.

    `_claim` refuses a queue that memory lacks.
    """
    answers: list[Claimed] = []
    for order in orders:
        queue = queue_cache.queues.get(order.queue)
        next_ms = None if queue is None or not order.from_memory else queue.next_due_ms(now_ms)
        if next_ms is None:
            return None
        wanted = next_ms != NEVER_MS and any([call.limit > 0 for call in order.calls])  # noqa: C419 a list is quicker
        answers.append(Claimed([[] for _ in order.calls], next_ms if wanted else None))
    queue_cache.claims += len(answers)
    return answers


def _first_due(execute: Execute, queue: QueueEntry, now_ms: int) -> tuple[int | None, tuple[int, int] | None]:
    """Returns the earliest run-after of all that wait, and the first job that is due now (`Claimed.head`).

    If nothing is due, the counters usually know it without a read, and learn it otherwise.
    """
    first, head = NEVER_MS, None
    for counter in queue.counters.values():
        if counter.pending == 0:
            continue
        if counter.future_from_exact and not counter.may_have_due(now_ms):
            first = min(first, counter.future_from_ms)
            continue
        row = execute(_SELECT_FIRST_READY, (queue.queue_id, counter.priority)).fetchone()
        if row is not None:
            first = min(first, row[0])
            if head is None and row[0] <= now_ms:
                head = counter.priority, row[0]
            if counter.pending == counter.future:
                counter.future_from_ms, counter.future_from_exact = row[0], True
    return None if first == NEVER_MS else first, head


class _Share:
    """The jobs of one dequeue call."""

    __slots__ = ("bytes_left", "holder", "jobs", "limit", "ordered", "plain")

    def __init__(self, call: ClaimCall) -> None:
        self.limit, self.holder, self.bytes_left = call
        self.jobs: list[HandedOutJob] = []
        self.plain: list[int] = []
        self.ordered: list[int] = []


class _OpenOrder:
    """The jobs collected so far for one order."""

    def __init__(
        self, transaction: Transaction, queue: QueueEntry, order: ClaimOrder, now_ms: int, together: BytesTogether
    ) -> None:
        self._transaction = transaction
        self._execute = transaction.execute
        self._queue = queue
        self._now_ms = now_ms
        self._timeout_ms = order.claim_timeout_ms
        self._through = order.through_priority
        self._until_ms = later(now_ms, order.claim_timeout_ms)
        self._shares = list(map(_Share, order.calls))
        wanting = [share for share in self._shares if share.limit > 0]
        self._open = iter(wanting)
        self._share = next(self._open, None)
        self._wanted = sum(map(_LIMIT, wanting))
        self._rows: list[object] = []
        self._expired: list[tuple[int, int, int]] = []  # the rest of their rows of `ready`
        self._ended = 0  # expired jobs that have become FAILED
        self._lost: list[int] = []
        self._call_full_by_bytes = False  # so due jobs may be left
        self._together = together
        self._bytes_ran_out = False  # those of all orders together, before a due job

    def run(self) -> Claimed:
        for counter in list(self._queue.counters.values()):
            if self._share is None or self._bytes_ran_out:
                break
            if self._through is not None and counter.priority > self._through:
                break
            if counter.may_have_due(self._now_ms):
                self._take(counter)
        if self._rows:
            _INSERT_CLAIMS.run(self._execute, self._rows)
        if self._lost:
            dialect = SqliteDialect(self._transaction)
            dialect.delete("progress", self._lost)
            dialect.count_lost(len(self._lost))
            at_once(bulk.leave_places(dialect, self._lost))
        a_call_wants_more = self._call_full_by_bytes or self._share is not None
        due_ms, head = _first_due(self._execute, self._queue, self._now_ms) if a_call_wants_more else (None, None)
        return Claimed(list(map(_JOBS, self._shares)), due_ms, self._ended, self._bytes_ran_out, head)

    def _take(self, counter: Counter) -> None:
        """Takes as many jobs of one priority as possible."""
        self._transaction.queue_cache.touch(counter).move_mark(self._now_ms)
        more = True
        while more and self._share is not None and self._ended + len(self._lost) < _PASSED_OVER_MAX:
            asked = min(self._wanted, _READ_MAX)
            where = (counter.queue_id, counter.priority, self._now_ms, asked)
            rows = self._transaction.connection.execute(_SELECT_DUE, where)
            try:
                used, last = self._hand_out(counter, rows)
            finally:
                rows.close()
            if self._share is not None:
                self._store_plain(self._share, counter.priority)
            if last is None:
                return
            self._execute(_DELETE_READY_THROUGH, (counter.queue_id, counter.priority, *last))
            if self._expired:
                self._expire(counter)
            more = used == asked

    def _expire(self, counter: Counter) -> None:
        """Ends expired jobs that the claim found. Their rows of `ready` are put back first: the next job of an ordering key may become
        ready within the range that the claim has read, and must not be deleted with it."""
        dialect = SqliteDialect(self._transaction)
        dialect.insert("insert_ready", [(counter.queue_id, counter.priority, *row) for row in self._expired])
        at_once(sweeping.expire(dialect, [job_id for _, job_id, _ in self._expired], self._now_ms))
        self._ended += len(self._expired)
        self._expired.clear()

    def _hand_out(self, counter: Counter, rows: Iterable[Any]) -> tuple[int, tuple[int, int] | None]:
        """Distributes the rows: one iteration per job. Measured, and specific to SQLite: it reads bodies row by row and stops when the
        bytes are used up.

        Returns how many rows were used, and the last one's key.
        """
        share = self._share
        assert share is not None  # noqa: S101 the caller looked
        priority = counter.priority
        until_ms = self._until_ms
        make = tuple.__new__
        take_waiting = counter.take_waiting
        claimed = used = 0
        bytes_together = self._together.left
        run_after_ms = job_id = 0
        options = NONE
        for row in rows:
            if bytes_together <= 0:
                self._bytes_ran_out = True
                break
            if row[6] is None:  # its own row is gone
                run_after_ms, job_id = row[0], row[1]
                take_waiting(run_after_ms, job_id)
                self._lost.append(job_id)
                used += 1
                continue
            text = row[5]
            if row[2] or (text is not None and not has_only_order(text)):  # changed before, or with options
                options = options_of(text)
                job = self._special(priority, row, options)
                if job is None:
                    run_after_ms, job_id = row[0], row[1]
                    used += 1
                    continue
                body = job.body
                size = len(body) + header_bytes(job.headers)
            else:
                body = row[6]
                job = None
                size = len(body)
            if size > share.bytes_left and share.jobs:
                self._call_full_by_bytes = True
                next_share = self._next_share(share, priority)
                if next_share is None:
                    break
                share = next_share
            run_after_ms, job_id, _, allowed, created_ms, _, _ = row
            if job is None:
                (share.plain if text is None else share.ordered).append(job_id)
                job = make(
                    HandedOutJob,
                    (job_id, priority, body, allowed, allowed, 1, None, created_ms, run_after_ms, until_ms),
                )
            else:
                self._store_special(share, job, options, has_progress=bool(row[2]))
            share.bytes_left -= size
            bytes_together -= size
            share.jobs.append(job)
            take_waiting(run_after_ms, job_id)
            claimed += 1
            used += 1
            if len(share.jobs) == share.limit:
                next_share = self._next_share(share, priority)
                if next_share is None:
                    break
                share = next_share
        counter.in_progress += claimed
        counter.claimed_total += claimed
        self._wanted -= claimed
        self._together.left = bytes_together
        return used, (run_after_ms, job_id) if used else None

    def _next_share(self, share: _Share, priority: int) -> _Share | None:
        self._store_plain(share, priority)
        self._share = next(self._open, None)
        return self._share

    def _store_plain(self, share: _Share, priority: int) -> None:
        """The claims of one call's plain jobs of one priority, and of those that have only an ordering key."""
        descriptor, source, token = share.holder
        about = (self._queue.queue_id, priority, self._now_ms, self._until_ms, self._timeout_ms)
        for ids, flags in ((share.plain, 0), (share.ordered, HAS_ORDER)):
            if not ids:
                continue
            if len(ids) >= _LIST_MIN:
                self._execute(_INSERT_CLAIMS_OF, (*about, flags, token, source, descriptor, str(ids)))
            else:
                for job_id in ids:
                    self._rows.extend((job_id, *about, flags, token, source, descriptor))
        share.plain, share.ordered = [], []

    def _special(self, priority: int, row: tuple[Any, ...], options: Options) -> HandedOutJob | None:
        """A job with options or a past, or None if it is past its expiry, which ends it instead."""
        run_after_ms, job_id, changed, allowed, created_ms, _, body = row
        if has_expired(options, self._now_ms):
            self._expired.append((run_after_ms, job_id, changed))
            return None
        remaining, ended = allowed, 0
        if changed:
            progress = self._execute(_SELECT_PROGRESS, (job_id,)).fetchone()
            if progress is not None:
                allowed, remaining, ended, new_body = progress
                body = body if new_body is None else new_body
        until_ms = later(self._now_ms, claim_timeout_ms(options, self._timeout_ms))
        return HandedOutJob(
            job_id, priority, body, allowed, remaining, ended + 1, options.headers, created_ms, run_after_ms, until_ms
        )

    def _store_special(self, share: _Share, job: HandedOutJob, options: Options, *, has_progress: bool) -> None:
        """Its claim; a key of scope PENDING ends with the first claim."""
        flags = claim_flags(options, has_progress=has_progress)
        freed = freed_by_claim(options)
        if freed is not None:
            self._execute(_FREE_UNIQUE_KEY, (self._queue.queue_id, freed, job.id))
        if not flags and options.timeout_ms is None:
            share.plain.append(job.id)
            return
        descriptor, source, token = share.holder
        until_ms = job.claim_deadline_ms
        about = (self._queue.queue_id, job.priority, self._now_ms, until_ms, until_ms - self._now_ms)
        self._rows.extend((job.id, *about, flags, token, source, descriptor))
