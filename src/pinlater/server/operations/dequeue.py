"""Dequeue: the acks that ride along, then the limits, then the claim."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pinlater.domain.errors import DequeueRateLimited, InvalidArgument, PinLaterError, Unavailable, adding
from pinlater.domain.job import Outcome
from pinlater.server.dispatch.claiming import FromShard
from pinlater.server.operations.claim_events import ClaimEvents
from pinlater.server.operations.values import Caller, DequeueResult
from pinlater.server.sharding.shards import ClaimRequest
from pinlater.server.storage.claim_bytes import JOB_BYTES, content_bytes
from pinlater.server.storage.commands import PeekJobs
from pinlater.server.storage.values import ClaimCall, raise_error
from pinlater.wire.generated.structs import AckResult, DequeueRequest

if TYPE_CHECKING:
    from pinlater.server.operations.service import Service

# Long enough that a caller that sends the same acks with each dequeue does not spin.
_WAIT_WITH_ERRORS_MS = 1_000
_OUTCOME_BYTES = 128  # bytes of an ack, without names


class Dequeue:
    """The dequeue operation, and what happens to an answer that could not be delivered."""

    def __init__(self, service: Service) -> None:
        self.events = ClaimEvents()
        self._shards = service.shards
        self._queue_cache = service.queue_cache
        self._dispatcher = service.dispatcher
        self._claimed_jobs = service.claimed_jobs
        self._identity = service.identity
        self._metrics = service.metrics
        self._clock = service.clock
        self._settings = service.settings
        self._jobs_bytes_max = service.settings.jobs_bytes_max

    async def dequeue(self, caller: Caller, request: DequeueRequest) -> DequeueResult:
        """Claims up to `limit` jobs, highest priority first. If the riding acks fail, nothing is claimed; with `per_item_errors` they
        fail alone, and their caller learns of it soon: then the claim waits no longer than a second."""
        _check(request)
        batch, wait_ms = request.acks, min(request.wait_ms or 0, self._settings.max_wait_ms)
        if batch is None:
            queue = self._queue_cache.queues.get(request.queue) or await self._queue_cache.require(request.queue)
            results: Sequence[AckResult] = ()
        else:
            acks = await self._claimed_jobs.parse(batch)
            queue = await self._queue_cache.require(request.queue)
            await self._queue_cache.require(batch.queue)
            try:
                results = await self._claimed_jobs.carry_out(caller, batch, acks, then_claims=request.limit > 0)
            except PinLaterError as error:
                raise adding(error, " (the acks that rode along failed, so nothing was claimed)") from error
            if wait_ms > _WAIT_WITH_ERRORS_MS and any(result.outcome == Outcome.ERROR for result in results):
                wait_ms = _WAIT_WITH_ERRORS_MS
        settings = self._settings
        bytes_max = self._jobs_bytes_max - (_outcome_bytes(results) if results else 0)
        limit = min(request.limit, settings.max_dequeue_limit, bytes_max // (2 * JOB_BYTES) or 1)
        bytes_max -= limit * JOB_BYTES
        if request.dry_run:
            return DequeueResult(await self._peek(request, limit, bytes_max), results)
        if limit <= 0:
            return DequeueResult((), results)
        asking = self.events.asked(caller, queue.name)
        make = tuple.__new__  # faster than calling the class
        call = make(
            ClaimCall,
            (limit, self._identity.holder(caller.source, self._clock.now_ms()), max(0, bytes_max)),
        )
        timeout_ms = queue.config.claim_timeout_ms or settings.claim_timeout_ms
        claim = make(ClaimRequest, (queue.name, call, timeout_ms, request.coverage, wait_ms, False, None))
        try:
            claimed = await self._dispatcher.claim(claim)
        except DequeueRateLimited:
            self._metrics.queue(queue.name).dequeue_requests_rate_limited += 1
            raise
        if claimed:
            self._count(asking, queue.name, claimed)
        else:
            self._metrics.queue(queue.name).dequeue_requests_empty += 1
        return make(DequeueResult, (claimed, results))

    def _count(self, asking: Any, queue: str, claimed: Sequence[FromShard]) -> None:
        """Counts jobs that are handed out, and reports them to the listener. `asking`: the listener's value from when the worker asked."""
        metrics, now_ms = self._metrics.queue(queue), self._clock.now_ms()
        number = deadline_ms = 0
        for _, jobs, _ in claimed:
            number += len(jobs)
            for job in jobs:
                if job.claim_deadline_ms > deadline_ms:
                    deadline_ms = job.claim_deadline_ms
            if len(jobs) == 1:
                [job] = jobs
                metrics.dequeue_delay_ms.record(now_ms - job.run_after_ms)
                if job.attempt == 1:
                    metrics.first_dequeue_delay_ms.record(now_ms - job.created_at_ms)
                continue
            metrics.dequeue_delay_ms.record_each([now_ms - job.run_after_ms for job in jobs])
            metrics.first_dequeue_delay_ms.record_each([now_ms - job.created_at_ms for job in jobs if job.attempt == 1])
        metrics.dequeue += number
        self.events.handed_out(asking, number, max(0, deadline_ms - now_ms))

    async def _peek(self, request: DequeueRequest, limit: int, bytes_left: int) -> list[FromShard]:
        shown: list[FromShard] = []
        failures: list[Unavailable] = []
        shards = self._shards.for_claim(request.queue, request.coverage)
        for shard in shards:
            if limit <= 0 or bytes_left <= 0:
                break
            try:
                jobs = raise_error(
                    await shard.store.submit(PeekJobs(request.queue, limit, self._clock.now_ms(), bytes_left))
                )
            except Unavailable as error:
                failures.append(error)
                continue
            limit -= len(jobs)
            bytes_left -= content_bytes(jobs)
            if shown and bytes_left < 0:
                break
            if jobs:
                shown.append(FromShard(shard.name, jobs, ""))
        if len(failures) == len(shards):
            raise failures[0]
        return shown

    def undelivered(self, queue: str, claimed: Sequence[FromShard]) -> None:
        """The answer could not be written: its claims are released unspent, in the background."""
        for part in claimed:
            if part.token:  # a dry run shows jobs without one
                self._metrics.queue(queue).undelivered += len(part.jobs)
                self._dispatcher.give_back(queue, part)


def _outcome_bytes(results: Sequence[AckResult]) -> int:
    """The most bytes of an answer that these jobs take."""
    return sum([_OUTCOME_BYTES + len(result.descriptor) + len((result.holder or "").encode()) for result in results])


def _check(request: DequeueRequest) -> None:
    if request.limit < 0:
        raise InvalidArgument(f"limit must not be negative, not {request.limit}")
    if request.wait_ms is not None and request.wait_ms < 0:
        raise InvalidArgument(f"waitMillis must not be negative, not {request.wait_ms}")
    if math.isnan(request.coverage):
        raise InvalidArgument("coverage is not a number")
