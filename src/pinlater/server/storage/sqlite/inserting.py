"""Stores new jobs: all of a request or none of it, all requests of a call in a few multi-row statements.

The rows of `ready` are copied from `jobs` within SQLite: new ids are above the highest known id, so a range finds exactly the new
rows. Ids that are not above it (another lane's smaller ones came later, or the same insert is repeated) take a slower path that reads
first.

A call of very many jobs, or of very many bytes, does the same in steps of the writer, each of a bounded part.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from functools import partial
from itertools import chain
from operator import attrgetter

from pinlater.domain.errors import OrderElsewhere, PinLaterError, QueueNotFound
from pinlater.server.storage.options import Options, options_text
from pinlater.server.storage.relational.dialect import OrderedRow
from pinlater.server.storage.relational.insert_answers import answer_of, new_jobs, queue_full, unique_until_ms
from pinlater.server.storage.relational.ordering import EnteringJob, LastPlaces, last_places
from pinlater.server.storage.request_keys import KeyedAnswer
from pinlater.server.storage.sqlite.dialect import SqliteDialect, at_once
from pinlater.server.storage.sqlite.queue_cache import Counter, QueueEntry, SqliteQueueCache
from pinlater.server.storage.sqlite.statements import OfIds, PairSelect, Rows, sql
from pinlater.server.storage.sqlite.transaction import Transaction
from pinlater.server.storage.sqlite.writer import Work, in_steps
from pinlater.server.storage.values import (
    Inserted,
    InsertRequest,
    KeyHolder,
    NewJob,
    has_order,
    have_keys,
    out_of_order,
)

# A longer call is executed in steps, each bounded by `_STEP_JOBS` and, beyond one job, by `_STEP_BYTES`.
_LONG_JOBS, _LONG_BYTES = 2_500, 2 * 2**20
_STEP_JOBS, _STEP_BYTES = 1_000, 2**20

_JOBS, _ID, _BODY, _OPTIONS = map(attrgetter, ("jobs", "id", "body", "options"))
_INSERT_PLAIN_JOBS = Rows("insert_plain_jobs")
_INSERT_JOBS = Rows("insert_jobs")
_INSERT_EXPIRIES = Rows("insert_expiries")
_INSERT_READY = sql("insert_ready")
_INSERT_READY_AFTER = sql("insert_ready_after")
_INSERT_READY_OF = sql("insert_ready_of")
_SELECT_KNOWN_IDS = sql("select_known_ids")
_SELECT_REQUEST_KEYS = PairSelect("select_request_keys")
_SAVE_REQUEST_KEYS = Rows("save_request_keys")
_FIND_UNIQUE_KEY = sql("find_unique_key")
_FIND_UNFINISHED = OfIds("find_unfinished")
_SAVE_UNIQUE_KEY = sql("save_unique_key")


def insert(requests: Sequence[InsertRequest], now_ms: int) -> Work[Sequence[Inserted | PinLaterError]]:
    """Returns the work of storing these requests."""
    jobs = list(chain.from_iterable(map(_JOBS, requests)))
    if len(jobs) > _LONG_JOBS or sum(map(len, map(_BODY, jobs))) > _LONG_BYTES:  # it would block the loop for long
        return in_steps(partial(_insert_in_steps, requests=requests, now_ms=now_ms))
    return Work(partial(_insert, requests=requests, now_ms=now_ms))


def _insert(transaction: Transaction, requests: Sequence[InsertRequest], now_ms: int) -> list[Inserted | PinLaterError]:
    """Decides request by request, then stores the rows of all of them."""
    batch = _Batch(transaction, requests, now_ms)
    batch.recall(requests)
    results = list(map(batch.add, requests))
    batch.store()
    return results


def _insert_in_steps(
    transaction: Transaction, requests: Sequence[InsertRequest], now_ms: int
) -> Generator[None, None, list[Inserted | PinLaterError]]:
    """Does what `_insert` does, and yields between two steps. The transaction must not admit other work meanwhile."""
    batch = _Batch(transaction, requests, now_ms)
    batch.recall(requests)
    results: list[Inserted | PinLaterError] = []
    for request in requests:
        result = yield from batch.add_in_steps(request)
        results.append(result)
    batch.store()
    return results


def _steps(jobs: Sequence[NewJob]) -> Iterator[Sequence[NewJob]]:
    """The jobs in parts of a step's size."""
    start = size = 0
    for index, job in enumerate(jobs):
        size += len(job.body)
        if index > start and (index - start >= _STEP_JOBS or size > _STEP_BYTES):
            yield jobs[start:index]
            start, size = index, len(job.body)
    if start < len(jobs):
        yield jobs[start:]


class _Batch:
    """The rows of one call."""

    def __init__(self, transaction: Transaction, requests: Sequence[InsertRequest], now_ms: int) -> None:
        self._transaction = transaction
        self._requests = requests
        self._queue_cache: SqliteQueueCache = transaction.queue_cache
        self._now_ms = now_ms
        self._floor = self._highest = transaction.queue_cache.highest_id
        self._counter: Counter | None = None  # of the last job; its mark is at `now_ms`
        self._plain: list[object] = []
        self._with_options: list[object] = []
        self._options: Options | None = None  # of the last job that has any, and their text
        self._text: str | None = None
        self._expiries: list[int] = []
        self._below_floor: list[int] = []  # new ids below the highest known id
        self._known: set[int] = set()
        self._answers: dict[tuple[int, str], KeyedAnswer] = {}  # of request keys, from the file and from this call
        self._new_keys: list[object] = []
        self._places: LastPlaces | None = None  # of the ordering keys of these requests, once they are looked for
        self._ordered: list[OrderedRow] = []

    def recall(self, requests: Sequence[InsertRequest]) -> None:
        """Looks up all request keys at once."""
        queues = self._queue_cache.queues
        wanted: list[object] = []
        for request in requests:
            if request.request_key is not None and (queue := queues.get(request.queue)) is not None:
                wanted += (queue.queue_id, request.request_key)
        if not wanted:
            return
        for queue_id, key, *answer in _SELECT_REQUEST_KEYS.run(self._transaction.execute, wanted):
            self._answers[queue_id, key] = KeyedAnswer(*answer)

    def add(self, request: InsertRequest) -> Inserted | PinLaterError:
        queue = self._queue_cache.queues.get(request.queue)
        if queue is None:
            return QueueNotFound.of(request.queue)
        if request.request_key is not None:
            answered = self._answered(queue, request)
            if answered is not None:
                return answered
        jobs = request.jobs
        if queue.settings.life.ordered and (refusal := out_of_order(request)) is not None:
            return refusal
        existing: dict[int, KeyHolder] = {}
        any_keys = any(map(_OPTIONS, jobs)) and have_keys(jobs)
        if any_keys:
            if self._is_away(queue, jobs):
                return OrderElsewhere.of(queue.name, self._queue_cache.shard)
            self._look_for_keys(queue, jobs, existing, {})
            jobs = new_jobs(jobs, existing)
        if request.max_backlog is not None and (full := queue_full(request, queue.pending(), existing)) is not None:
            return full
        if any_keys:
            jobs = self._placed(queue, jobs)
        self._add_rows(queue, jobs)
        if existing or request.request_key is not None:
            return self._answer(queue, request, existing)
        return tuple.__new__(Inserted, (list(map(_ID, jobs)), existing, False))  # faster than calling the class

    def add_in_steps(self, request: InsertRequest) -> Generator[None, None, Inserted | PinLaterError]:
        """Adds as `add` does, but stores the rows step by step."""
        queue = self._queue_cache.queues.get(request.queue)
        if queue is None:
            return QueueNotFound.of(request.queue)
        if request.request_key is not None:
            answered = self._answered(queue, request)
            if answered is not None:
                return answered
        if queue.settings.life.ordered and (refusal := out_of_order(request)) is not None:
            return refusal
        existing: dict[int, KeyHolder] = {}
        any_keys = have_keys(request.jobs)
        if any_keys:
            if self._is_away(queue, request.jobs):
                return OrderElsewhere.of(queue.name, self._queue_cache.shard)
            taken: dict[str, KeyHolder] = {}
            first = 0
            for part in _steps(request.jobs):
                self._look_for_keys(queue, part, existing, taken, first)
                first += len(part)
                yield
        if request.max_backlog is not None and (full := queue_full(request, queue.pending(), existing)) is not None:
            return full
        for part in _steps(new_jobs(request.jobs, existing)):
            self._requests, self._places = [request._replace(jobs=part)], None
            self._add_rows(queue, self._placed(queue, part) if any_keys else part)
            self._store_part()
            yield
        return self._answer(queue, request, existing)

    def _is_away(self, queue: QueueEntry, jobs: Sequence[NewJob]) -> bool:
        """Returns whether some jobs have ordering keys and another shard accepts these."""
        return not queue.settings.home.is_at(self._queue_cache.shard) and has_order(jobs)

    def _answer(self, queue: QueueEntry, request: InsertRequest, existing: dict[int, KeyHolder]) -> Inserted:
        answer = answer_of(request.jobs, existing)
        if request.request_key is not None:
            self._remember(queue, request, answer)
        return answer

    def _add_rows(self, queue: QueueEntry, jobs: Sequence[NewJob]) -> None:
        """The hot loop, measured and specific to SQLite: one iteration per job, values for parameters."""
        now_ms = self._now_ms
        queue_id = queue.queue_id
        floor = self._floor
        highest = self._highest
        add = self._plain.extend
        counter = self._counter
        if counter is not None and counter.queue_id != queue_id:
            counter = None
        for job in jobs:
            job_id, body, priority, run_after_ms, attempts, options = job
            if job_id > highest:
                highest = job_id
            if job_id <= floor and not self._is_new(job_id):
                continue
            if counter is None or counter.priority != priority:
                counter = self._counter = self._queue_cache.counter(queue, priority)
                counter.move_mark(now_ms)
            counter.enqueued_total += 1
            counter.add_waiting(run_after_ms, job_id)
            if options is None:
                add((job_id, queue_id, priority, run_after_ms, attempts, now_ms, body))
            else:
                self._add_with_options(queue_id, job, options)
        self._highest = highest

    def _add_with_options(self, queue_id: int, job: NewJob, options: Options) -> None:
        if options != self._options:  # the jobs of a request mostly have the same ones
            self._options, self._text = options, options_text(options)
        self._with_options.extend(
            (
                job.id,
                queue_id,
                job.priority,
                job.run_after_ms,
                job.attempts_allowed,
                self._now_ms,
                self._text,
                job.body,
            )
        )
        if (unique := options.unique) is not None:
            until_ms = unique_until_ms(unique, self._now_ms)
            row = (queue_id, unique.key, int(unique.scope), job.id, job.priority, until_ms)
            self._transaction.execute(_SAVE_UNIQUE_KEY, row)
            if until_ms is not None:
                self._queue_cache.first_key_until_ms = min(self._queue_cache.first_key_until_ms, until_ms)
        if options.expires_ms is not None:
            self._expiries.extend((options.expires_ms, job.id))
            self._queue_cache.first_expiry_ms = min(self._queue_cache.first_expiry_ms, options.expires_ms)

    def store(self) -> None:
        execute = self._transaction.execute
        if self._ordered:
            SqliteDialect(self._transaction).insert_ordered(self._ordered)
        if self._plain:
            _INSERT_PLAIN_JOBS.run(execute, self._plain)
        if self._with_options:
            _INSERT_JOBS.run(execute, self._with_options)
        if self._expiries:
            _INSERT_EXPIRIES.run(execute, self._expiries)
        if self._new_keys:
            _SAVE_REQUEST_KEYS.run(execute, self._new_keys)
        if self._below_floor:
            execute(_INSERT_READY_OF, (str(self._below_floor),))
        if self._highest > self._floor:
            if len(self._plain) + len(self._with_options) <= _INSERT_JOBS.width:
                # One row costs less without a look at `jobs`.
                job_id, queue_id, priority, run_after_ms, *_ = self._plain or self._with_options
                execute(_INSERT_READY, (queue_id, priority, run_after_ms, job_id, 0))
            else:
                execute(_INSERT_READY_AFTER, (self._floor,))
            self._queue_cache.highest_id = self._highest

    def _store_part(self) -> None:
        """Stores the rows so far. A later id that is not above these is looked up first, like an id of another lane."""
        self.store()
        self._floor = self._highest
        self._plain, self._with_options, self._expiries, self._below_floor, self._new_keys = [], [], [], [], []
        self._ordered = []

    def _placed(self, queue: QueueEntry, jobs: Sequence[NewJob]) -> Sequence[NewJob]:
        """The jobs with their places among those of their ordering keys."""
        entering = [
            EnteringJob(job.id, (queue.queue_id, job.options.ordering_key), job.run_after_ms)
            for job in jobs
            if job.options is not None
            and job.options.ordering_key is not None
            and not (job.id <= self._floor and self._is_stored(job.id))
        ]
        if not entering:
            return jobs
        rows, behind = (self._places or self._find_places()).enter(entering)
        self._ordered += rows
        make = tuple.__new__  # quicker than `_replace`
        return [
            make(NewJob, (job_id, body, priority, behind.get(job_id, run_after_ms), attempts, options))
            for job_id, body, priority, run_after_ms, attempts, options in jobs
        ]

    def _find_places(self) -> LastPlaces:
        """Reads the last places of the ordering keys of all requests at once."""
        queues = self._queue_cache.queues
        keys = {
            (queue.queue_id, job.options.ordering_key)
            for request in self._requests
            if (queue := queues.get(request.queue)) is not None
            for job in request.jobs
            if job.options is not None and job.options.ordering_key is not None
        }
        self._places = at_once(last_places(SqliteDialect(self._transaction), keys))
        return self._places

    def _is_stored(self, job_id: int) -> bool:
        """Returns whether the same insert was executed before."""
        return self._transaction.execute(_SELECT_KNOWN_IDS, (f"[{job_id}]",)).fetchone() is not None

    def _is_new(self, job_id: int) -> bool:
        """Returns whether an id that is not above the highest known one is in neither the file nor this call."""
        if job_id in self._known or self._transaction.execute(_SELECT_KNOWN_IDS, (f"[{job_id}]",)).fetchone():
            return False
        self._known.add(job_id)
        self._below_floor.append(job_id)
        return True

    # --- unique keys and request keys -----------------------------------------------------------------------------------------

    def _look_for_keys(
        self,
        queue: QueueEntry,
        jobs: Sequence[NewJob],
        existing: dict[int, KeyHolder],
        taken: dict[str, KeyHolder],
        first: int = 0,
    ) -> None:
        """Adds to `existing`, by their index, the jobs that already exist under their keys: in the file, or earlier in the same request
        (`taken`). `first` is the index of the first of these jobs."""
        for index, job in enumerate(jobs, first):
            unique = None if job.options is None else job.options.unique
            if unique is None:
                continue
            duplicate = taken.get(unique.key) or self._key_holder(queue, unique.key)
            if duplicate is None:
                taken[unique.key] = KeyHolder(job.id, job.priority)
            else:
                existing[index] = duplicate

    def _key_holder(self, queue: QueueEntry, key: str) -> KeyHolder | None:
        row = self._transaction.execute(_FIND_UNIQUE_KEY, (queue.queue_id, key)).fetchone()
        if row is None:
            return None
        job_id, priority, until_ms = row
        is_held = self._is_unfinished(job_id) if until_ms is None else until_ms > self._now_ms
        return KeyHolder(job_id, priority) if is_held else None

    def _is_unfinished(self, job_id: int) -> bool:
        """Returns whether it waits, is claimed, or is of this call and not stored yet."""
        if job_id > self._floor or job_id in self._known:
            return True
        return _FIND_UNFINISHED.run(self._transaction.execute, [job_id]).fetchone() is not None

    def _answered(self, queue: QueueEntry, request: InsertRequest) -> Inserted | PinLaterError | None:
        """The earlier answer to this keyed request, if there is one."""
        key = request.request_key or ""
        known = self._answers.get((queue.queue_id, key))
        return None if known is None else known.to(key, request.fingerprint, self._now_ms)

    def _remember(self, queue: QueueEntry, request: InsertRequest, answer: Inserted) -> None:
        key = request.request_key or ""
        kept = self._answers[queue.queue_id, key] = KeyedAnswer.of(answer, request.fingerprint, self._now_ms)
        self._new_keys.extend((queue.queue_id, key, *kept))
        if self._now_ms < self._queue_cache.first_request_key_ms:
            self._queue_cache.first_request_key_ms = self._now_ms
