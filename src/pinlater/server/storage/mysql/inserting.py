"""Stores new jobs: all of a request or none of it, all requests of a call in one packet.

The usual call sends its rows without reading first: a request key or an id that already exists ends the packet with an error, and the
call runs again `careful`ly, reading first. Unique keys are always looked up, since they often exist already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from pinlater.domain.errors import OrderElsewhere, PinLaterError, QueueNotFound
from pinlater.domain.ids import slot_of
from pinlater.server.storage.leases import SlotLost
from pinlater.server.storage.mysql.dialect import FUTURE, OPTIONS, MysqlDialect
from pinlater.server.storage.mysql.errors import BodyTooLong
from pinlater.server.storage.mysql.membership import Membership
from pinlater.server.storage.mysql.queue_cache import QueueEntry
from pinlater.server.storage.mysql.ready_jobs import JobContent, ReadyJobs, ReadyRow
from pinlater.server.storage.mysql.statements import (
    Sql,
    escaped,
    in_statements,
    json_ids,
    keys_in_statements,
    literal,
    row,
    sql,
)
from pinlater.server.storage.mysql.transaction import Transaction
from pinlater.server.storage.options import BEHIND_MS, Options, options_text
from pinlater.server.storage.relational.dialect import OrderedRow, OrderingKey
from pinlater.server.storage.relational.insert_answers import answer_of, new_jobs, queue_full, unique_until_ms
from pinlater.server.storage.relational.ordering import EnteringJob, LastPlaces, last_places
from pinlater.server.storage.request_keys import REQUEST_KEY_KEPT_MS, InsertAge, KeyedAnswer
from pinlater.server.storage.values import (
    Inserted,
    InsertRequest,
    KeyHolder,
    NewJob,
    has_order,
    out_of_order,
)

_INSERT_JOBS = sql("insert_jobs")
_INSERT_READY = sql("insert_ready")
_INSERT_FUTURE = sql("insert_future")
_INSERT_EXPIRIES = sql("insert_expiries")
_INSERT_REQUEST_KEYS = sql("insert_request_keys")
_LOCK_REQUEST_KEYS = sql("lock_request_keys")
_DELETE_REQUEST_KEYS = sql("delete_request_keys")
_LOCK_UNIQUE_KEYS = sql("lock_unique_keys")
_DELETE_UNIQUE_KEYS = sql("delete_unique_keys")
_SAVE_UNIQUE_KEY = sql("save_unique_key")
_SELECT_KNOWN_IDS = sql("select_known_ids")
_SUM_PENDING = sql("sum_pending")
_FIND_UNFINISHED = sql("find_unfinished")

_STATEMENT_BYTES_MAX = 1_000_000
# Jobs whose rows are made in one turn of the event loop: with all options a job takes about 8 µs.
_JOBS_A_TURN = 1_000


async def insert(
    transaction: Transaction,
    requests: Sequence[InsertRequest],
    now_ms: int,
    age: InsertAge,
    membership: Membership,
) -> list[Inserted | PinLaterError]:
    """Decides request by request, then stores the rows of all of them. Ids of a lost slot may belong to another server's jobs by now."""
    queues = await transaction.queues_named([request.queue for request in requests])
    batch = _Batch(transaction, queues, now_ms, membership)
    await batch.look(requests)
    results = []
    for request in requests:
        results.append(batch.add(request))
        if batch.jobs_left:
            await batch.add_jobs_left()
    batch.store()
    age.check(requests)
    await transaction.commit()
    return results


class _Batch:
    """The rows of one call."""

    def __init__(
        self, transaction: Transaction, queues: Mapping[str, QueueEntry], now_ms: int, membership: Membership
    ) -> None:
        self._transaction = transaction
        self._membership = membership
        self._slots_lost = membership.lost
        self._order_refused: PinLaterError | None = None
        self._row_bytes_max = transaction.row_bytes_max
        self._queues = queues
        self._now_ms = now_ms
        self._jobs: list[bytes] = []
        self._ready: list[bytes] = []
        self._future: list[bytes] = []
        self._expiries: list[bytes] = []
        self._known: set[int] = set()
        self._pending: dict[int, int] = {}
        self._answers: dict[tuple[int, str], KeyedAnswer] = {}
        self._old_keys: list[tuple[int, bytes]] = []
        self._new_keys: list[bytes] = []
        self._held: dict[tuple[int, str], KeyHolder] = {}  # the job that has each unique key now
        self._outlived: list[tuple[int, bytes]] = []
        self._unique_keys: dict[tuple[int, str], bytes] = {}
        self._has_keys = False
        self._dialect = MysqlDialect(transaction)
        self._places: LastPlaces | None = None  # of the ordering keys of these requests
        self._ordered: list[OrderedRow] = []
        self.jobs_left: list[tuple[QueueEntry, Sequence[NewJob]]] = []  # of a long request, to be added in turns
        self._stored: list[tuple[ReadyJobs, Sequence[NewJob]]] = []

    # --- looking before -------------------------------------------------------------------------------------------------------

    async def look(self, requests: Sequence[InsertRequest]) -> None:
        known = [(queue, request) for request in requests if (queue := self._queues.get(request.queue)) is not None]
        full = {queue.queue_id for queue, request in known if request.max_backlog is not None}
        if full:
            await self._count(full)
        unique: list[tuple[int, str]] = []
        ordering_keys: set[OrderingKey] = set()
        for queue, request in known:
            for job in request.jobs:
                if (options := job.options) is not None:
                    if options.unique is not None:
                        unique.append((queue.queue_id, options.unique.key))
                    if options.ordering_key is not None:
                        ordering_keys.add((queue.queue_id, options.ordering_key))
        if unique:
            self._has_keys = True
            await self._find_holders(unique)
        if ordering_keys and not self._membership.keeps_order:
            self._order_refused = await self._membership.admit_order(self._transaction)
        if ordering_keys and self._order_refused is None:  # all requests together: one round trip
            self._places = await last_places(self._dialect, ordering_keys)
        away = self._places.away if self._places is not None else ()
        if self._transaction.careful or any(
            queue.queue_id in away
            or (
                request.max_backlog is not None
                and self._pending.get(queue.queue_id, 0) + len(request.jobs) > request.max_backlog
            )
            for queue, request in known
        ):
            await self._recall(known)  # an earlier answer is repeated, even by a queue that is full now

    async def _count(self, queue_ids: set[int]) -> None:
        [found] = await self._transaction.select(_SUM_PENDING(ids=sorted(queue_ids)))
        self._pending = {queue_id: int(pending) for queue_id, pending in found.rows}

    async def _find_holders(self, keys: Sequence[tuple[int, str]]) -> None:
        wanted = self._conditions("unique_key", [(queue_id, key.encode()) for queue_id, key in keys])
        answers = await self._transaction.select(*[_LOCK_UNIQUE_KEYS(keys=some) for some in wanted])
        found = [line for answer in answers for line in answer.rows]
        holders = sorted({job_id for _, _, job_id, _, until_ms in found if until_ms is None})
        unfinished = {job_id for (job_id,) in await self._transaction.select_jobs(_FIND_UNFINISHED, holders)}
        for queue_id, key, job_id, priority, until_ms in found:
            if job_id in unfinished if until_ms is None else until_ms > self._now_ms:
                self._held[queue_id, key.decode()] = KeyHolder(job_id, priority)
            else:
                self._outlived.append((queue_id, key))

    def _conditions(self, column: str, keys: Iterable[tuple[int, bytes]]) -> list[Sql]:
        return keys_in_statements(column, keys, self._transaction.statement_bytes_max)

    async def _recall(self, known: Sequence[tuple[QueueEntry, InsertRequest]]) -> None:
        keys = [(queue.queue_id, request.request_key) for queue, request in known if request.request_key is not None]
        if keys:
            wanted = self._conditions("request_key", [(queue_id, key.encode()) for queue_id, key in keys])
            for found in await self._transaction.select(*[_LOCK_REQUEST_KEYS(keys=some) for some in wanted]):
                for queue_id, key, seen_ms, fingerprint, answer, existing in found.rows:
                    if seen_ms + REQUEST_KEY_KEPT_MS < self._now_ms:
                        self._old_keys.append((queue_id, key))
                    else:
                        self._answers[queue_id, key.decode()] = KeyedAnswer(seen_ms, fingerprint, answer, existing)
        ids = [job.id for _, request in known for job in request.jobs]
        if ids:
            [found] = await self._transaction.select(_SELECT_KNOWN_IDS(ids=json_ids(ids)))
            self._known = {job_id for (job_id,) in found.rows}

    # --- deciding -------------------------------------------------------------------------------------------------------------

    def add(self, request: InsertRequest) -> Inserted | PinLaterError:
        queue = self._queues.get(request.queue)
        if queue is None:
            return QueueNotFound.of(request.queue)
        if self._slots_lost and any(slot_of(job.id) in self._slots_lost for job in request.jobs):
            return SlotLost(self._transaction.endpoint, slot_of(request.jobs[0].id))
        if queue.ordered and (unknown := out_of_order(request)) is not None:
            return unknown
        key = request.request_key
        if key is not None:
            kept = self._answers.get((queue.queue_id, key))
            answered = None if kept is None else kept.to(key, request.fingerprint, self._now_ms)
            if answered is not None:
                return answered
        jobs = request.jobs
        if (self._order_refused is not None or self._places is not None) and has_order(jobs):
            if self._order_refused is not None:
                return self._order_refused
            if self._places is not None and queue.queue_id in self._places.away:
                return OrderElsewhere.of(queue.name, self._dialect.shard)
        if jobs and 4 * max([len(job.body) for job in jobs]) > self._row_bytes_max:
            for index, job in enumerate(jobs):
                size_bytes = len(escaped(job.body)) + len(literal(options_text(job.options)))
                if size_bytes > self._row_bytes_max:
                    return BodyTooLong(self._transaction.endpoint, index, size_bytes, self._row_bytes_max)
        existing = self._existing(queue, jobs) if self._has_keys else {}
        pending = self._pending.get(queue.queue_id, 0)
        if request.max_backlog is not None and (full := queue_full(request, pending, existing)) is not None:
            return full
        self._pending[queue.queue_id] = pending + len(jobs) - len(existing)
        fresh = new_jobs(jobs, existing)
        if self._places is not None and has_order(fresh):
            fresh = self._placed(queue, fresh, self._places)
        self._stored.append((queue.ready, fresh))
        if len(fresh) > _JOBS_A_TURN:
            self.jobs_left.append((queue, fresh))
        else:
            self._add_jobs(queue, fresh)
        answer = answer_of(jobs, existing)
        if key is not None:
            kept = self._answers[queue.queue_id, key] = KeyedAnswer.of(answer, request.fingerprint, self._now_ms)
            self._new_keys.append(row((queue.queue_id, key.encode(), *kept)))
        return answer

    def _existing(self, queue: QueueEntry, jobs: Sequence[NewJob]) -> dict[int, KeyHolder]:
        """Returns which of the jobs already exist under their keys, in the shard or earlier in the same request."""
        existing: dict[int, KeyHolder] = {}
        taken: dict[str, KeyHolder] = {}
        for index, job in enumerate(jobs):
            if job.options is None or job.options.unique is None:
                continue
            key = job.options.unique.key
            holder = taken.get(key) or self._held.get((queue.queue_id, key)) or KeyHolder(job.id, job.priority)
            if holder.job_id == job.id:
                taken[key] = holder
            else:
                existing[index] = holder
        return existing

    async def add_jobs_left(self) -> None:
        """The rows of a long request, before the next request is decided: its unique keys count for that one."""
        for queue, jobs in self.jobs_left:
            for start in range(0, len(jobs), _JOBS_A_TURN):
                self._add_jobs(queue, jobs[start : start + _JOBS_A_TURN])
                await asyncio.sleep(0)
        self.jobs_left.clear()

    def _placed(self, queue: QueueEntry, jobs: Sequence[NewJob], places: LastPlaces) -> Sequence[NewJob]:
        """The jobs with their places among those of their ordering keys."""
        entering = [
            EnteringJob(job.id, (queue.queue_id, job.options.ordering_key), job.run_after_ms)
            for job in jobs
            if job.options is not None and job.options.ordering_key is not None and job.id not in self._known
        ]
        if not entering:
            return jobs
        rows, behind = places.enter(entering)
        self._ordered += rows
        return [job._replace(run_after_ms=behind[job.id]) if job.id in behind else job for job in jobs]

    def _add_jobs(self, queue: QueueEntry, jobs: Sequence[NewJob]) -> None:
        """The hot loop, measured and specific to MySQL: one iteration per job, rows as the bytes of the packet."""
        now_ms = self._now_ms
        queue_id = queue.queue_id
        add_job, add_ready = self._jobs.append, self._ready.append
        known = self._known
        for job in jobs:
            job_id, body, priority, run_after_ms, attempts, options = job
            if known and job_id in known:
                continue
            counter = self._transaction.counters.of(queue_id, priority)
            counter.enqueued_total += 1
            counter.pending += 1
            flags = 0
            if run_after_ms > now_ms:
                counter.future += 1
                flags = FUTURE
                if run_after_ms < BEHIND_MS:
                    self._future.append(b"(%d,%d,%d,%d)" % (run_after_ms, job_id, queue_id, priority))
            text = b"NULL"
            if options is not None:
                flags |= OPTIONS
                text = literal(options_text(options))
                self._add_keys(queue_id, job, options)
            add_job(
                b"(%d,%d,%d,%d,%d,%d,%b,_binary'%b')"
                % (job_id, queue_id, priority, run_after_ms, attempts, now_ms, text, escaped(body))
            )
            add_ready(b"(%d,%d,%d,%d,%d,%d)" % (queue_id, priority, run_after_ms, job_id, flags, len(body)))
            queue.waits_from(priority, run_after_ms)
            if priority not in queue.priorities:
                queue.add_priority(priority)

    def _add_keys(self, queue_id: int, job: NewJob, options: Options) -> None:
        if (unique := options.unique) is not None:
            until_ms = unique_until_ms(unique, self._now_ms)
            key = (queue_id, unique.key)
            if until_ms is None or until_ms > self._now_ms:
                self._held[key] = KeyHolder(job.id, job.priority)
            taken = (queue_id, unique.key.encode(), int(unique.scope), job.id, job.priority, until_ms)
            self._unique_keys[key] = row(taken)  # the last one counts if time frees a key at once
        if options.expires_ms is not None:
            self._expiries.append(row((options.expires_ms, job.id)))

    # --- storing --------------------------------------------------------------------------------------------------------------

    def store(self) -> None:
        self._transaction.after_commit.append(self._note_stored)
        change = self._transaction.change
        if self._old_keys:
            for some in self._conditions("request_key", self._old_keys):
                change(_DELETE_REQUEST_KEYS(keys=some))
        if self._outlived:
            for some in self._conditions("unique_key", self._outlived):
                change(_DELETE_UNIQUE_KEYS(keys=some))
        if self._places is not None:
            self._dialect.insert_ordered(self._ordered)
            # No row is kept of keys whose jobs were refused or exist already.
            self._dialect.forget_keys(self._places.idle())
        most = min(_STATEMENT_BYTES_MAX, self._transaction.statement_bytes_max)
        for template, new in (
            (_INSERT_REQUEST_KEYS, self._new_keys),
            (_SAVE_UNIQUE_KEY, list(self._unique_keys.values())),
            (_INSERT_JOBS, self._jobs),
            (_INSERT_READY, self._ready),
            (_INSERT_FUTURE, self._future),
            (_INSERT_EXPIRIES, self._expiries),
        ):
            if new:
                for part in in_statements(new, most):
                    change(template(rows=part))

    def _note_stored(self) -> None:
        """The transaction has ended: claims may take due jobs from memory. Those of a long request would take too long in one turn."""
        now_ms, known, now_s = self._now_ms, self._known, self._transaction.queue_cache.now_s()
        tracking = {ready for ready in {ready for ready, _ in self._stored} if ready.tracks(now_s)}
        for ready, jobs in self._stored if tracking else ():
            if ready not in tracking:
                continue
            if len(jobs) > _JOBS_A_TURN:
                ready.waits_elsewhere(min([job.run_after_ms for job in jobs]))
                continue
            due: list[tuple[ReadyRow, JobContent]] = []
            for job in jobs:
                job_id, body, priority, run_after_ms, attempts, options = job
                has_keys = options is not None and (options.unique is not None or options.expires_ms is not None)
                if run_after_ms > now_ms or has_keys or job_id in known:
                    ready.waits_elsewhere(run_after_ms)
                    continue
                if options is not None and options.status:  # claims do not need it
                    options = replace(options, status="")
                flags = 0 if options is None else OPTIONS
                row = (priority, run_after_ms, job_id, flags, len(body))
                due.append((row, JobContent(attempts, now_ms, body, options)))
            ready.add_all(due)
