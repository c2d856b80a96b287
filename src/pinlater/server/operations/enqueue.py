"""Enqueue: first checks all of a request, then stores it whole; the lanes tell waiting dequeues.

One call must stay cheap: tens of thousands a second pass through here.
"""

from __future__ import annotations

import asyncio
import marshal
from collections.abc import Awaitable, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

from msgspec.structs import astuple

from pinlater.domain.descriptor import descriptor_prefix
from pinlater.domain.durations import YEAR_MS, due_fault
from pinlater.domain.errors import (
    BodyTooLarge,
    EnqueueRejected,
    InvalidArgument,
    OrderElsewhere,
    PinLaterError,
    PriorityNotSupported,
    RequestTooOld,
)
from pinlater.domain.job import ATTEMPTS_ALLOWED_MAX, ORDERING_KEY_BYTES_MAX, UNIQUE_FOR_MS_MAX, UniqueKey, UniqueScope
from pinlater.domain.queue import ALL_JOBS, Queue
from pinlater.domain.request_keys import BEGUN_WITHIN_MS
from pinlater.server.operations.long_lists import ITEMS_A_TURN
from pinlater.server.operations.shard_router import KeyedRequest, ShardRouter
from pinlater.server.sharding.shards import ShardLanes
from pinlater.server.storage.claim_bytes import JOB_BYTES, header_bytes
from pinlater.server.storage.options import Options
from pinlater.server.storage.values import NO_END_MS, Inserted, InsertRequest, NewJob
from pinlater.wire.generated.structs import Enqueued, EnqueueRequest, Job

if TYPE_CHECKING:
    from pinlater.server.operations.service import Service

REQUEST_KEY_BYTES_MAX = 128
_SCOPES = {int(scope): scope for scope in UniqueScope}
_OPTIONS_AT_FIRST = 2  # claim timeout and expiry: a fingerprint has those of each job with options
# A resend may carry a trace of its own; it is the same request all the same.
_TRACE_HEADERS = frozenset({"traceparent", "tracestate"})


class Enqueue:
    """The enqueue operation."""

    def __init__(self, service: Service) -> None:
        self._shards = service.shards
        self._queue_cache = service.queue_cache
        self._metrics = service.metrics
        self._clock = service.clock
        self._settings = service.settings
        self._body_limit = service.body_limit
        self._standstill = service.standstill
        self._router = ShardRouter(service.shards, service.order_homes, service.clock, self._insert, self._finish)

    async def enqueue(self, asked: EnqueueRequest, arrived_s: float | None = None) -> Enqueued:
        """Stores the jobs; descriptors come back in their order once all of them are committed.

        `arrived_s`: when a process of this server had read the request, by the monotonic clock of the machine. A request with a key that
        no lane has begun within `BEGUN_WITHIN_MS` fails with `RequestTooOld`.

        All or nothing. A request with unique keys may be stored in part when a shard fails only while the shards hold unique keys from
        before a change of the map; the error names the indices that were stored.
        """
        standstill = self._standstill
        if (now_s := standstill.monotonic()) > standstill.until_s:
            standstill.found(now_s)
            raise RequestTooOld
        queue, jobs, request_key = asked.queue, asked.jobs, asked.request_key or None
        known = self._queue_cache.queues.get(queue) or await self._queue_cache.require(queue)
        now_ms = self._clock.now_ms()
        if known.life.ordered:
            _put_in_order(queue, jobs)
        have_home = self._check(jobs, request_key, now_ms)
        if len(jobs) > ITEMS_A_TURN:
            await asyncio.sleep(0)
        request: KeyedRequest | None = None
        if request_key is not None:
            request = KeyedRequest(
                request_key, _fingerprint(jobs), bool(asked.repeated), self._begin_by_ms(now_ms, arrived_s)
            )
            if len(jobs) > ITEMS_A_TURN:
                await asyncio.sleep(0)
        try:
            plain = request is None and not have_home
            # A shard that has all the jobs recognises keys by itself, but has to be told that it is the home of ordering keys.
            is_new_home = have_home and not known.home.version and any(job.ordering_key is not None for job in jobs)
            if is_new_home or (not plain and len(self._shards) > 1):
                return await self._router.enqueue(known, jobs, now_ms, request, have_home=have_home)
            shard = self._shards.for_enqueue(queue)
            try:
                inserted = await self._insert(shard, known, jobs, now_ms, request_key, request)
            except PinLaterError as error:
                if isinstance(error, OrderElsewhere):
                    return await self._router.enqueue(known, jobs, now_ms, request, have_home=True)
                if not plain:
                    raise
                return await self._router.elsewhere(known, jobs, now_ms, shard, error)
            return self._finish(known, jobs, shard.name, inserted)
        except EnqueueRejected:
            self._metrics.queue(queue).enqueue_rejected += len(jobs)
            raise

    def _begin_by_ms(self, now_ms: int, arrived_s: float | None) -> int:
        """`arrived_s` may be by the clock of another process, which is slightly ahead of this one's."""
        age_ms = 0 if arrived_s is None else max(0, int((self._clock.monotonic() - arrived_s) * 1000))
        return now_ms + BEGUN_WITHIN_MS - age_ms

    # --- checks -------------------------------------------------------------------------------------------------------

    def _check(self, jobs: Sequence[Job], request_key: str | None, now_ms: int) -> bool:
        """Raises if the request can't be stored. Returns whether any of its jobs has a unique key or an ordering key, which have homes."""
        settings = self._settings
        if len(jobs) > settings.max_jobs_per_request:
            raise InvalidArgument(
                f"{len(jobs)} jobs in one request; this server takes at most {settings.max_jobs_per_request}",
                detail="TOO_MANY",
            )
        if request_key is not None and not 0 < len(request_key.encode()) <= REQUEST_KEY_BYTES_MAX:
            raise InvalidArgument(
                f"A request key (over HTTP: Idempotency-Key) has 1 to {REQUEST_KEY_BYTES_MAX} bytes, "
                f"not {len(request_key.encode())}"
            )
        levels, limit = settings.priority_levels, self._body_limit
        body_max = limit.bytes
        checked: Mapping[str, str] | None = None  # the jobs of a request mostly have the same headers
        header_bytes_checked = 0
        any_home = False
        latest_ms = now_ms + YEAR_MS
        for index, job in enumerate(jobs):
            body, priority, headers = job.body, job.priority, job.headers
            run_after_ms, attempts_allowed = job.run_after_ms, job.attempts_allowed
            if not 1 <= priority <= levels:
                raise PriorityNotSupported.of(priority, levels)
            if len(body) > body_max:
                raise BodyTooLarge.of(index, len(body), body_max, limit.bound_by)
            if run_after_ms is not None and run_after_ms > latest_ms:
                fault = due_fault(run_after_ms, now_ms)
                raise InvalidArgument(f"Job {index}: runAfterTimestampMillis {run_after_ms} {fault}")
            if attempts_allowed is not None and not 1 <= attempts_allowed <= ATTEMPTS_ALLOWED_MAX:
                raise InvalidArgument(
                    f"Job {index}: attempts allowed must be from 1 to {ATTEMPTS_ALLOWED_MAX}, not {attempts_allowed}"
                )
            if headers:
                if headers != checked:
                    header_bytes_checked = self._check_headers(index, headers)
                    checked = headers
                if len(body) + header_bytes_checked + JOB_BYTES > settings.max_frame_bytes:
                    raise InvalidArgument(
                        f"Job {index}: body and headers do not fit a frame of {settings.max_frame_bytes} bytes together, so that no "
                        "dequeue could hand them out"
                    )
            if job.unique_key or job.claim_timeout_ms is not None or job.ordering_key is not None:
                self._check_additions(index, job)
                any_home = any_home or bool(job.unique_key) or job.ordering_key is not None
        return any_home

    def _check_headers(self, index: int, headers: Mapping[str, str]) -> int:
        """How many bytes of an answer they take."""
        size = sum(len(name.encode()) + len(value.encode()) for name, value in headers.items())
        if size > self._settings.max_header_bytes:
            raise InvalidArgument(f"Job {index}: headers of {size} bytes, at most {self._settings.max_header_bytes}")
        return header_bytes(headers)

    def _check_additions(self, index: int, job: Job) -> None:
        settings = self._settings
        if job.claim_timeout_ms is not None and not 1 <= job.claim_timeout_ms <= YEAR_MS:
            raise InvalidArgument(f"Job {index}: claimTimeoutMillis must be from 1 to {YEAR_MS}")
        ordering_key = job.ordering_key
        if ordering_key is not None and not 1 <= len(ordering_key.encode()) <= ORDERING_KEY_BYTES_MAX:
            raise InvalidArgument(
                f"Job {index}: an ordering key has 1 to {ORDERING_KEY_BYTES_MAX} bytes, not {len(ordering_key.encode())}"
            )
        if job.unique_key:
            if job.unique_scope not in _SCOPES:
                raise InvalidArgument(
                    f"{job.unique_scope} is not a unique scope; there are 0 PENDING, 1 UNFINISHED, 2 TIME"
                )
            if len(job.unique_key.encode()) > settings.max_unique_key_bytes:
                raise InvalidArgument(f"Job {index}: a unique key has 1 to {settings.max_unique_key_bytes} bytes")
            if job.unique_scope == UniqueScope.TIME and not 1 <= (job.unique_for_ms or 0) <= UNIQUE_FOR_MS_MAX:
                raise InvalidArgument(f"Job {index}: scope TIME needs uniqueForMillis from 1 to {UNIQUE_FOR_MS_MAX}")

    # --- storing ------------------------------------------------------------------------------------------------------

    def _insert(
        self,
        shard: ShardLanes,
        queue: Queue,
        jobs: Sequence[Job],
        now_ms: int,
        request_key: str | None,
        request: KeyedRequest | None,
    ) -> Awaitable[Inserted]:
        """Passes the jobs to the shard's lane. `request_key`: that of `request`, or of the part of it that these jobs are."""
        config, settings = queue.config, self._settings
        attempts = config.default_attempts or settings.default_attempts
        expiry_ms = config.default_expiry_ms
        expires_at_ms = None if expiry_ms is None else now_ms + expiry_ms
        make, ids = tuple.__new__, iter(shard.ids.make(len(jobs)))  # faster than calling the class, and than `zip`
        new_jobs = [
            make(
                NewJob,
                (
                    next(ids),
                    job.body,
                    job.priority,
                    now_ms if job.run_after_ms is None else job.run_after_ms,
                    attempts if job.attempts_allowed is None else job.attempts_allowed,
                    _options(job, expires_at_ms)
                    if job.headers
                    or job.custom_status
                    or job.unique_key
                    or job.claim_timeout_ms is not None
                    or job.expires_at_ms is not None
                    or job.ordering_key is not None
                    or expires_at_ms is not None
                    else None,
                ),
            )
            for job in jobs
        ]
        max_backlog = settings.max_backlog if config.max_backlog is None else config.max_backlog
        if max_backlog is not None and len(self._shards) > 1:
            max_backlog = -(-max_backlog // self._shards.shares_of(queue.name))  # each partition gets its share
        fingerprint, begin_by_ms = (b"", NO_END_MS) if request is None else (request.fingerprint, request.begin_by_ms)
        name = queue.name
        return shard.lanes_of(name).insert.submit(
            make(InsertRequest, (name, new_jobs, request_key, fingerprint, max_backlog, begin_by_ms))
        )

    def _finish(self, queue: Queue, jobs: Sequence[Job], shard: str, inserted: Inserted) -> Enqueued:
        """Descriptors and counts."""
        name = queue.name
        ids, existing, repeated = inserted
        metrics = self._metrics.queue(name)
        prefix = descriptor_prefix(name, shard)
        left = iter(ids)  # faster than `zip`
        descriptors = [f"{prefix}{job.priority}:{next(left)}" for job in jobs]
        if repeated:
            metrics.repeated_requests += 1
        else:
            metrics.enqueue += len(jobs) - len(existing)
            if len(jobs) == 1:
                metrics.job_body_size.record(len(jobs[0].body))
            else:
                metrics.job_body_size.record_each([len(job.body) for job in jobs])
        if not existing:
            return Enqueued(descriptors)
        if not repeated:
            metrics.unique_existing += len(existing)
        for index, (job_id, priority) in existing.items():
            descriptors[index] = f"{prefix}{priority}:{job_id}"
        return Enqueued(descriptors, sorted(existing))


def _put_in_order(queue: str, jobs: Sequence[Job]) -> None:
    """Gives jobs of a queue that is ordered as a whole their ordering key. Raises `InvalidArgument` if one has another key."""
    for index, job in enumerate(jobs):
        if job.ordering_key is None:
            job.ordering_key = ALL_JOBS
        elif job.ordering_key != ALL_JOBS:
            raise InvalidArgument(f"Job {index}: queue {queue} is ordered as a whole, so its jobs take no ordering key")


def _options(job: Job, expires_at_ms: int | None = None) -> Options:
    """Returns the options of a job. `expires_at_ms`: for a job without one of its own. An empty unique key counts as none."""
    return Options(
        job.custom_status,
        job.headers or None,
        UniqueKey(job.unique_key, _SCOPES[job.unique_scope], job.unique_for_ms or 0) if job.unique_key else None,
        job.claim_timeout_ms,
        expires_at_ms if job.expires_at_ms is None else job.expires_at_ms,
        job.ordering_key,
    )


def _fingerprint(jobs: Sequence[Job]) -> bytes:
    """What distinguishes two requests with the same key: the whole content of the jobs as the producer sent it."""
    parts: list[object] = []
    before: Mapping[str, str] | None = None
    additions: tuple[object, ...] = ()
    for job in jobs:
        parts += (job.body, job.priority, job.run_after_ms, job.attempts_allowed, job.custom_status)
        if (
            job.unique_key
            or job.claim_timeout_ms is not None
            or job.expires_at_ms is not None
            or job.ordering_key is not None
        ):
            parts.append(_additions(job))
        elif job.headers:
            if job.headers != before:
                before, additions = job.headers, _additions(job)
            parts.append(additions)
    # Version 0 encodes equal values alike, with the length of each.
    return blake2b(marshal.dumps(parts, 0), digest_size=16).digest()


def _additions(job: Job) -> tuple[object, ...]:
    """Returns the options but the status. Options that were added later count only for jobs that have them: other versions compute the
    same."""
    _, headers, unique, *others = astuple(_options(job))
    while len(others) > _OPTIONS_AT_FIRST and others[-1] is None:
        others.pop()
    headers = sorted([item for item in headers.items() if item[0] not in _TRACE_HEADERS]) if headers else None
    return headers, unique and (unique.key, int(unique.scope), unique.for_ms), *others
