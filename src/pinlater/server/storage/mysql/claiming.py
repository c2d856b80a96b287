"""Hands out due jobs: rows that no other transaction has locked, moved from `ready` to `claims` and read in one packet.

Two round trips, however many queues and jobs: one that searches, one that moves. If all due jobs are remembered (`ready_jobs`), the first
is omitted. The second then assumes that their rows are still there; if one isn't, the call runs again with a search.

The narrow row of a waiting job tells how long its body is, so that only bodies that are handed out are read; and whether the job is
plain, so that the claim need not read the job itself.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, cast

from pinlater.domain.errors import PinLaterError, QueueNotFound
from pinlater.domain.job import HandedOutJob
from pinlater.server.storage.claim_bytes import BytesTogether, header_bytes
from pinlater.server.storage.mysql.dialect import CHANGED, FUTURE, OPTIONS, MysqlDialect
from pinlater.server.storage.mysql.partitions import kept_before
from pinlater.server.storage.mysql.queue_cache import LOWEST_MS, QueueEntry
from pinlater.server.storage.mysql.ready_jobs import NEVER_MS, JobContent, ReadyRow
from pinlater.server.storage.mysql.statements import (
    JOBS,
    KEPT_JOBS,
    Sql,
    Template,
    delete_ready,
    delete_remembered,
    in_statements,
    literal,
    row,
    sql,
)
from pinlater.server.storage.mysql.transaction import Transaction
from pinlater.server.storage.options import NONE, Options, has_expired, options_of
from pinlater.server.storage.record import later
from pinlater.server.storage.relational import sweeping
from pinlater.server.storage.relational.claim_options import claim_flags, claim_timeout_ms, freed_by_claim
from pinlater.server.storage.values import ClaimCall, Claimed, ClaimOrder

logger = logging.getLogger(__name__)

SPECIAL = CHANGED | OPTIONS
# An order reads no more rows than this; the caller asks again, as the next due time is then in the past.
_READ_MAX = 2_000
# A search that wants more jobs reads no rows beyond them: remembering these costs more than the round trip that they would save.
_READ_ON_MAX = 100
# Due jobs that were skipped are locked by another transaction: soon they are claimed or free.
_LOOK_AGAIN_MS = 20
# How often a call searches again to replace expired jobs.
_ROUNDS_MAX = 10

_LOCK_DUE = sql("lock_due")
_SELECT_DUE = sql("select_due")
_SELECT_FIRST_READY = sql("select_first_ready")
_SELECT_BODIES = sql("select_bodies")
_SELECT_SPECIAL = sql("select_special")
_SELECT_NEWEST_BODIES = sql("select_newest_bodies")
_INSERT_CLAIMS = sql("insert_claims")
_LOAD_CLAIMS = sql("load_claims")
_LOAD_DONE = sql("load_done")
_FREE_UNIQUE_KEY = sql("free_unique_key")


class Claims(NamedTuple):
    """The answers to orders, and the ids of jobs that were claimed although their own rows were missing: for `delete_lost`."""

    answers: list[Claimed | PinLaterError]
    lost: list[int]


async def claim(transaction: Transaction, orders: Sequence[ClaimOrder], now_ms: int) -> Claims:
    """Executes all orders at once."""
    results: list[Claimed | PinLaterError] = [QueueNotFound.of(order.queue) for order in orders]
    claims: list[tuple[int, _OpenOrder]] = []
    together = BytesTogether(orders)
    queues = await transaction.queues_named([order.queue for order in orders])
    for index, order in enumerate(orders):
        queue = queues.get(order.queue)
        if queue is not None:
            claims.append((index, _OpenOrder(transaction, queue, order, now_ms, together)))
    if claims:
        searching = [one for _, one in claims if not one.remembers_all]
        if searching:
            await _find(searching, transaction, now_ms)
        if searching or any(one.plain or one.special for _, one in claims):
            await _store([one for _, one in claims], transaction, now_ms)
        else:
            _find_nothing([one for _, one in claims], transaction)
        transaction.queue_cache.ready_memory.claims += len(claims) - len(searching)
    for index, one in claims:
        results[index] = one.result()
    return Claims(results, [job_id for _, one in claims for job_id in one.lost])


async def _find(claims: Sequence[_OpenOrder], transaction: Transaction, now_ms: int) -> None:
    """Locks rows and divides them among the orders. Repeats this for orders that met expired jobs, to replace these."""
    unfilled = claims
    for _ in range(_ROUNDS_MAX):
        began = time.perf_counter()
        found = await transaction.select(*[one.wanted() for one in unfilled])
        for one in unfilled:
            one.queue.took(time.perf_counter() - began)
        if transaction.careful and await _delete_placed(transaction, unfilled, [answer.rows for answer in found]):
            continue
        special = [job_id for answer in found for _, _, job_id, flags, _ in answer.rows if flags & SPECIAL]
        about: dict[int, _SpecialJob] = {}
        if special:
            make, lines = tuple.__new__, await transaction.select_jobs(_SELECT_SPECIAL, special)
            about = dict.fromkeys(special, _GONE) | {
                job_id: make(
                    _SpecialJob, (allowed, remaining, ended, created_at_ms, options_of(text), bool(only_moved))
                )
                for job_id, allowed, remaining, ended, created_at_ms, text, only_moved in lines
            }
        expired: list[int] = []
        for one, answer in zip(unfilled, found, strict=True):
            expired += one.hand_out(answer.rows, about)
        if not expired:
            return
        await sweeping.expire(MysqlDialect(transaction), expired, now_ms)
        unfilled = [one for one in unfilled if one.met_expired and one.left and not one.bytes_ran_out]
        if not unfilled:
            return
        _move(claims, transaction)


async def _delete_placed(
    transaction: Transaction, orders: Sequence[_OpenOrder], found: Sequence[Sequence[tuple[Any, ...]]]
) -> bool:
    """Deletes the rows of jobs that are already claimed or finished. Returns whether there were any.

    No transaction leaves such rows, but a manual change or a partial restore may, and then the previous claim has failed.
    """
    ids = sorted({row[2] for rows in found for row in rows})
    if not ids:
        return False
    answers = await transaction.select(_LOAD_CLAIMS(ids=ids), _LOAD_DONE(ids=ids))
    placed = {line[0] for answer in answers for line in answer.rows}
    gone: list[tuple[int, int, int, int]] = []
    for one, rows in zip(orders, found, strict=True):
        for priority, run_after_ms, job_id, flags, _ in rows:
            if job_id in placed:
                gone.append((one.queue.queue_id, priority, run_after_ms, job_id))
                counter = transaction.counters.of(one.queue.queue_id, priority)
                counter.pending -= 1
                counter.future -= bool(flags & FUTURE)
    if gone:
        transaction.change(delete_ready(gone))
        logger.error("%s: %d jobs waited that were claimed or finished already", transaction.endpoint, len(gone))
    return bool(gone)


def _move(claims: Sequence[_OpenOrder], transaction: Transaction) -> None:
    """Moves the divided rows from `ready` to `claims`. Does nothing if remembered rows are gone."""
    for one in claims:
        one.take()
    found = [key for one in claims if not one.remembers_all for key in one.taken]
    remembered = [key for one in claims if one.remembers_all for key in one.taken]
    if found:
        transaction.change(delete_ready(found))
    if remembered:
        queues = [one.queue for one in claims if one.remembers_all]
        transaction.suppose(delete_remembered(remembered), rows=len(remembered), remembered=queues)
    for part in in_statements([line for one in claims for line in one.rows], transaction.statement_bytes_max):
        transaction.change(_INSERT_CLAIMS(rows=part))
    for one in claims:
        one.taken.clear()
        one.rows.clear()


async def _store(claims: Sequence[_OpenOrder], transaction: Transaction, now_ms: int) -> None:
    """Moves the rows; reads the bodies, and if there were fewer jobs than requested when there will be more, in the same packet."""
    _move(claims, transaction)
    plain = sorted(job_id for one in claims for job_id in one.plain_without_body())
    special = sorted(job_id for one in claims if not one.remembers_all for job_id in one.special)
    looks = [look for one in claims for look in one.looks()]
    plain_reads = _reads(_SELECT_BODIES, plain, kept_before(now_ms))
    special_reads = _reads(_SELECT_NEWEST_BODIES, special, kept_before(now_ms))
    answers = iter(await transaction.commit(*plain_reads, *special_reads, *looks))
    jobs = {
        job_id: (allowed, created_at_ms, body)
        for answer in islice(answers, len(plain_reads))
        for job_id, allowed, created_at_ms, body in answer.rows
    }
    bodies = {job_id: body for answer in islice(answers, len(special_reads)) for job_id, body in answer.rows}
    found = (answer.rows for answer in answers)
    now_s = transaction.queue_cache.now_s()
    for one in claims:
        one.finish(jobs, bodies, found, now_s)


def _find_nothing(claims: Sequence[_OpenOrder], transaction: Transaction) -> None:
    """Answers without a query, since nothing is due as far as this server knows. A deleted queue is noticed at the next
    search.
    """
    transaction.end_without_a_look()
    for one in claims:
        one.finish({}, {}, iter(()), 0.0)


def _reads(statement: Template, ids: Sequence[int], below: int) -> list[bytes]:
    """Queries these jobs, which are in order; also in the table of those that were kept when a partition was dropped."""
    if not ids:
        return []
    reads = [statement(jobs=JOBS, ids=ids)]
    if ids[0] < below:
        reads.append(statement(jobs=KEPT_JOBS, ids=[job_id for job_id in ids if job_id < below]))
    return reads


class _SpecialJob(NamedTuple):
    """A job with options or a past, except for its body: the columns of `select_special`."""

    attempts_allowed: int
    attempts_remaining: int
    attempts_ended: int
    created_at_ms: int
    options: Options
    only_moved: bool  # its progress is another run-after and nothing else


# Replaces a job whose own row is gone. That is known only after the claim, as for a plain job: its body is missing.
_GONE = _SpecialJob(1, 1, 0, 0, NONE, only_moved=False)


class _Share:
    """The jobs of one dequeue call: first rows of `ready`, in the end jobs."""

    __slots__ = ("bytes_left", "full_by_bytes", "holder", "jobs", "limit", "moved", "picked")

    def __init__(self, call: ClaimCall) -> None:
        self.limit, self.holder, self.bytes_left = call
        self.picked: list[tuple[int, int, int, int]] = []  # priority, run-after, id, flags
        self.full_by_bytes = False  # it gets no more
        self.moved = 0  # how many of them have left `ready`
        self.jobs: list[HandedOutJob] = []

    @property
    def left(self) -> int:
        """How many jobs it can still take."""
        return 0 if self.full_by_bytes else max(0, self.limit - len(self.picked))


class _OpenOrder:
    """The jobs collected so far for one order."""

    def __init__(
        self, transaction: Transaction, queue: QueueEntry, order: ClaimOrder, now_ms: int, together: BytesTogether
    ) -> None:
        self._transaction = transaction
        self.queue = queue
        self._priorities = tuple(queue.priorities)  # there may be more of them before the answers come
        self._now_ms = now_ms
        self._timeout_ms = order.claim_timeout_ms
        through = order.through_priority
        self._searched = self._priorities if through is None else tuple(p for p in self._priorities if p <= through)
        self._through = None if len(self._searched) == len(self._priorities) else through
        self._shares = [_Share(call) for call in order.calls]
        self._due_jobs_left = False  # there may be more, since it stopped at a bound: of bytes or of rows read
        self._a_call_lacks_jobs = False
        self._together = together
        self.bytes_ran_out = False  # those of all orders together, before a due job
        self._about: dict[int, HandedOutJob] = {}
        self.taken: list[tuple[int, int, int, int]] = []
        self.rows: list[bytes] = []
        self.plain: list[int] = []
        self.special: list[int] = []
        self.expired = 0
        self.met_expired = False  # in the last round
        self.lost: list[int] = []  # claimed, but neither content nor body was found
        self._due_ms: int | None = None
        self._head: tuple[int, int] | None = None  # the best of the due jobs that stay
        self._contents: Mapping[int, JobContent] = {}  # of remembered jobs, by id
        now_s = transaction.queue_cache.now_s()
        self.remembers_all = order.from_memory and queue.ready.has_next(self.left, now_ms, now_s, self._through)
        # A claim from memory doesn't count as a search from the start.
        self._floors = {} if self.remembers_all else transaction.queue_cache.floors(queue)
        self._reads_on = False
        if self.remembers_all:
            self._take_remembered()
        elif order.from_memory:
            queue.ready.search_begins(self.left, now_ms, now_s, self._through)
            self._reads_on = self.left <= _READ_ON_MAX and queue.ready.wants_rows(now_s)
        else:
            queue.ready.forget()

    @property
    def left(self) -> int:
        """How many jobs the calls still lack."""
        return sum([share.left for share in self._shares])

    def _take_remembered(self) -> None:
        """Distributes remembered jobs; those for which no call has space stay."""
        ready = self.queue.ready
        rows, self._contents = ready.take(min(self.left, _READ_MAX), self._through)
        about = {
            job_id: _SpecialJob(allowed, allowed, 0, created_at_ms, options, only_moved=False)
            for job_id, (allowed, created_at_ms, _, options) in self._contents.items()
            if options is not None
        }
        self.hand_out(rows, about)
        if len(self.plain) + len(self.special) < len(rows):
            taken = {*self.plain, *self.special}
            for row in rows:
                if row[2] not in taken:
                    ready.add(row, self._contents.get(row[2]))

    def plain_without_body(self) -> list[int]:
        """The plain jobs whose body is to be read."""
        return [job_id for job_id in self.plain if job_id not in self._contents] if self._contents else self.plain

    def wanted(self) -> bytes:
        """The statement that finds and locks the rows."""
        limit = min(self.left, _READ_MAX)
        return _LOCK_DUE(queue_id=self.queue.queue_id, ranges=self._due_ranges(self._searched), limit=limit)

    def _due_ranges(self, priorities: Sequence[int]) -> Sql:
        ranges = [
            b"(priority=%d AND run_after_ms BETWEEN %d AND %d)"
            % (priority, self._floors.get(priority, LOWEST_MS), self._now_ms)
            for priority in priorities
        ]
        return Sql(b" OR ".join(ranges) or b"FALSE")

    def hand_out(self, rows: Sequence[tuple[Any, ...]], about: dict[int, _SpecialJob]) -> list[int]:
        """Distributes the rows by the sizes in `ready`, before any body is read: the first call gets the first rows, as far as its bytes
        allow.

        Measured, and specific to MySQL: it knows only sizes, and no body yet. Returns the ids of expired jobs.
        """
        shares = iter([share for share in self._shares if share.left])
        share = next(shares, None)
        expired: list[int] = []
        used = 0
        for priority, run_after_ms, job_id, flags, size in rows:
            if share is None:
                break
            if flags & SPECIAL:
                options = about[job_id].options
                if has_expired(options, self._now_ms):
                    expired.append(job_id)
                    continue
                size += header_bytes(options.headers)
            while share is not None and size > share.bytes_left and share.picked:
                self._due_jobs_left = share.full_by_bytes = True
                share = next(shares, None)
            if share is None:
                break
            if self._together.left <= 0:
                self._due_jobs_left = self.bytes_ran_out = True
                break
            self._together.left -= size
            share.picked.append((priority, run_after_ms, job_id, flags))
            share.bytes_left -= size
            if flags & SPECIAL:
                self._take_special(share, priority, run_after_ms, job_id, flags, about[job_id])
            else:
                self.plain.append(job_id)
            used += 1
            self._floors[priority] = run_after_ms
            if len(share.picked) >= share.limit:
                share = next(shares, None)
        self._a_call_lacks_jobs = share is not None
        self._due_jobs_left = self._due_jobs_left or used == _READ_MAX
        self.met_expired = bool(expired)
        self.expired += len(expired)
        return expired

    def _take_special(
        self, share: _Share, priority: int, run_after_ms: int, job_id: int, ready_flags: int, about: _SpecialJob
    ) -> None:
        """A job with options or a past, except for its body; and its claim. A key of scope PENDING ends with the first claim."""
        allowed, remaining, ended, created_ms, options, only_moved = about
        until_ms = later(self._now_ms, claim_timeout_ms(options, self._timeout_ms))
        self.special.append(job_id)
        self._about[job_id] = HandedOutJob(
            job_id, priority, b"", allowed, remaining, ended + 1, options.headers, created_ms, run_after_ms, until_ms
        )
        waited_behind = only_moved and options.ordering_key is not None
        flags = claim_flags(options, has_progress=bool(ready_flags & CHANGED) and not waited_behind)
        queue_id = self.queue.queue_id
        freed = freed_by_claim(options)
        if freed is not None:
            self._transaction.change(_FREE_UNIQUE_KEY(queue_id=queue_id, key=freed, id=job_id))
        descriptor, source, token = share.holder
        held = (queue_id, priority, self._now_ms, until_ms, until_ms - self._now_ms)
        self.rows.append(row((job_id, *held, flags, token, source, descriptor)))

    def take(self) -> None:
        """Counts, and returns which rows to delete and which claims to make of plain jobs."""
        queue_id = self.queue.queue_id
        counters = self._transaction.counters
        middle = b"%d,%d,%d,0" % (self._now_ms, later(self._now_ms, self._timeout_ms), self._timeout_ms)
        for share in self._shares:
            descriptor, source, token = share.holder
            tail = middle + b"," + b",".join([literal(token), literal(source), literal(descriptor)]) + b")"
            for priority, run_after_ms, job_id, flags in share.picked[share.moved :]:
                counter = counters.of(queue_id, priority)
                counter.pending -= 1
                counter.in_progress += 1
                counter.claimed_total += 1
                if flags & FUTURE:
                    counter.future -= 1
                self.taken.append((queue_id, priority, run_after_ms, job_id))
                if not flags & SPECIAL:
                    self.rows.append(b"(%d,%d,%d,%b" % (job_id, queue_id, priority, tail))
            share.moved = len(share.picked)

    def looks(self) -> list[bytes]:
        """Returns further queries: when the next job is due, if calls got too few jobs."""
        if self.remembers_all:
            return []
        if self._reads_follow:
            limit, ranges = self.queue.ready.rows_wanted, self._due_ranges(self._priorities)
            follow = _SELECT_DUE(queue_id=self.queue.queue_id, ranges=ranges, limit=limit)
            return [follow, *self._first_from([self._now_ms + 1] * len(self._priorities))]
        if not (self._a_call_lacks_jobs or self._due_jobs_left):
            return []
        floors = [self._floors.get(priority, LOWEST_MS) for priority in self._priorities]
        return [*self._first_from(floors), *self._first_from([self._now_ms + 1] * len(floors))]

    @property
    def _reads_follow(self) -> bool:
        """Whether the search reads the rows behind those that it takes: it found enough, or all of the priorities that it may take."""
        if not self._reads_on or self._due_jobs_left:
            return False
        return not self._a_call_lacks_jobs or (self._through is not None and not self.met_expired)

    def _first_from(self, times_ms: Sequence[int]) -> list[bytes]:
        """Returns when the first row from these times on is due, for each priority."""
        return [
            _SELECT_FIRST_READY(queue_id=self.queue.queue_id, priority=priority, from_ms=from_ms)
            for priority, from_ms in zip(self._priorities, times_ms, strict=True)
        ]

    def finish(
        self,
        jobs: dict[int, tuple[int, int, bytes]],
        bodies: dict[int, bytes],
        found: Iterator[Sequence[tuple[Any, ...]]],
        now_s: float,
    ) -> None:
        """Jobs from rows, and from attempts, creation times and bodies of the plain `jobs`, or the `bodies` of the others.

        A job that is in neither has lost its own row; or another server has deleted it, if the answer was lost and this server asked again.
        """
        now_ms = self._now_ms
        until_ms = later(now_ms, self._timeout_ms)
        make = tuple.__new__
        if self.remembers_all:
            bodies = {job_id: content.body for job_id, content in self._contents.items()}
            jobs = jobs | {job_id: content[:3] for job_id, content in self._contents.items()}
        for share in self._shares:
            add = share.jobs.append
            for priority, run_after_ms, job_id, flags in share.picked:
                if flags & SPECIAL:
                    if job_id in bodies:
                        add(self._about[job_id]._replace(body=bodies[job_id]))
                    else:
                        self.lost.append(job_id)
                elif job_id not in jobs:
                    self.lost.append(job_id)
                else:
                    allowed, created_ms, body = jobs[job_id]
                    add(
                        make(
                            HandedOutJob,
                            (job_id, priority, body, allowed, allowed, 1, None, created_ms, run_after_ms, until_ms),
                        )
                    )
        if self.remembers_all:
            if self._a_call_lacks_jobs or self._due_jobs_left:
                heads = self.queue.ready.heads()
                self._head = min(heads, default=None)
                self._due_ms = min([due_ms for _, due_ms in heads]) if heads else self._next_remembered()
        elif self._reads_follow:
            self._read_on(found, now_s)
        elif self._a_call_lacks_jobs or self._due_jobs_left:
            self._learn_of_others(found, now_s)
        else:
            self.queue.ready.search_found_enough({*self.plain, *self.special}, now_s)

    def _read_on(self, found: Iterator[Sequence[tuple[Any, ...]]], now_s: float) -> None:
        """Remembers the rows that follow, unless another transaction has locked the first of them."""
        ready = self.queue.ready
        rows = cast("Sequence[ReadyRow]", next(found))
        coming_ms = min(self._times(found).values(), default=None)
        if not self._a_call_lacks_jobs:
            ready.search_read_on({*self.plain, *self.special}, rows, ready.rows_wanted, coming_ms, now_s)
            return
        beyond = [row for row in rows if self._is_beyond(row[0])]
        if beyond:
            self._head = beyond[0][:2]
            self._due_ms = min([due_ms for _, due_ms, *_ in beyond])
        else:
            self._due_ms = self._now_ms + _LOOK_AGAIN_MS if rows else coming_ms
        if len(beyond) == len(rows):
            ready.search_read_on({*self.plain, *self.special}, rows, ready.rows_wanted, coming_ms, now_s)
        else:
            ready.forget()

    def _is_beyond(self, priority: int) -> bool:
        """Returns whether the claim takes no jobs of this priority."""
        return self._through is not None and priority > self._through

    def _times(self, found: Iterator[Sequence[tuple[Any, ...]]]) -> dict[int, int]:
        """Returns the answers to `_first_from` by priority, without the priorities that have no row."""
        times = {priority: line[0] for priority in self._priorities for line in next(found)}
        return {priority: time_ms for priority, time_ms in times.items() if time_ms is not None}

    def _next_remembered(self) -> int | None:
        next_ms = self.queue.ready.elsewhere_ms
        return None if next_ms == NEVER_MS else next_ms

    def _learn_of_others(self, found: Iterator[Sequence[tuple[Any, ...]]], now_s: float) -> None:
        """Derives from the answers to `looks` when there will be more jobs, and whether all that are due now have been found."""
        now_ms, ready = self._now_ms, self.queue.ready
        due, coming = self._times(found), list(self._times(found).values())
        cut = (
            self._due_jobs_left or self.met_expired
        )  # otherwise, jobs that are due and not beyond are locked by another transaction
        heads = [(p, time_ms) for p, time_ms in due.items() if time_ms <= now_ms and (cut or self._is_beyond(p))]
        self._head = min(heads, default=None)
        if due:
            self._due_ms = min(due.values())
            if self._due_ms <= now_ms and self._head is None and not cut:
                self._due_ms = now_ms + _LOOK_AGAIN_MS
        if cut or self._head is not None or not ready.tracks(now_s):
            ready.forget()
            return
        # A due row that was not found is locked by another transaction, or has been stored since: then it is remembered.
        if self._due_ms == now_ms + _LOOK_AGAIN_MS and not len(ready):
            coming.append(self._due_ms)
        ready.search_found_all({*self.plain, *self.special}, min(coming, default=None), now_s)

    def result(self) -> Claimed:
        due_ms = self._now_ms if self.lost else self._due_ms
        cut_short = self.bytes_ran_out or bool(self.lost)
        return Claimed([share.jobs for share in self._shares], due_ms, self.expired, cut_short, self._head)
