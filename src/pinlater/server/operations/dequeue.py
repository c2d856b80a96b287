"""Dequeue: the acks that ride along, then the limits, then the claim."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pinlater.domain.clock import Clock
from pinlater.domain.errors import DequeueRateLimited, InvalidArgument, PinLaterError, WorldError
from pinlater.domain.job import ClaimedJob
from pinlater.domain.queue import Queue
from pinlater.server.dispatch.dispatcher import ClaimWish, Dispatcher, FromShard
from pinlater.server.operations.acknowledge import Acknowledge
from pinlater.server.operations.addressing import address
from pinlater.server.operations.identity import Identity
from pinlater.server.operations.queue_cache import QueueCache
from pinlater.server.operations.settings import ServiceSettings
from pinlater.server.operations.values import AckResult, Caller, DequeueCommand, Dequeued, HandedOut
from pinlater.server.sharding.shards import Shards
from pinlater.server.storage.values import raise_error
from pinlater.server.telemetry.metrics import Metrics, QueueMetrics

# Long enough that a caller who sends the same acks with each dequeue does not spin.
_WAIT_WITH_ERRORS_MS = 1_000


class Dequeue:
    """The dequeue operation, and what happens to an answer that could not be delivered."""

    def __init__(
        self,
        shards: Shards,
        queue_cache: QueueCache,
        dispatcher: Dispatcher,
        acknowledge: Acknowledge,
        identity: Identity,
        metrics: Metrics,
        clock: Clock,
        settings: ServiceSettings,
    ) -> None:
        self._shards = shards
        self._queue_cache = queue_cache
        self._dispatcher = dispatcher
        self._acknowledge = acknowledge
        self._identity = identity
        self._metrics = metrics
        self._clock = clock
        self._settings = settings

    async def dequeue(self, caller: Caller, command: DequeueCommand) -> Dequeued:
        """Claims up to `limit` jobs, highest priority first. If the riding acks fail nothing is claimed; with errors of their own they
        fail alone, and their caller learns of it soon: the claim waits no longer than a second then."""
        _check(command)
        batch = command.acks
        if batch is None:
            queue = self._queue_cache.get(command.queue) or await self._queue_cache.require(command.queue)
            results: Sequence[AckResult] = ()
        else:
            parts = await self._acknowledge.parse(batch)
            queue = await self._queue_cache.require(command.queue)
            await self._queue_cache.require(batch.queue)
            try:
                results = await self._acknowledge.carry_out(caller, batch, parts, then_claims=command.limit > 0)
            except PinLaterError as error:
                raise error.adding(" (the acks that rode along failed, so nothing was claimed)") from error
            if command.wait_ms > _WAIT_WITH_ERRORS_MS and any(result.error is not None for result in results):
                command = command._replace(wait_ms=_WAIT_WITH_ERRORS_MS)
        limit = min(command.limit, self._settings.max_dequeue_limit)
        if command.dry_run:
            return Dequeued(await self._peek(command, limit), results)
        if limit == 0:
            return Dequeued((), results)
        return Dequeued(await self._claim(caller, command, queue, limit), results)

    async def _claim(self, caller: Caller, command: DequeueCommand, queue: Queue, limit: int) -> list[HandedOut]:
        settings = self._settings
        wish = ClaimWish(
            queue.name,
            limit,
            self._identity.holder(caller.source),
            queue.config.claim_timeout_ms or settings.claim_timeout_ms,
            settings.max_frame_bytes * 3 // 4,
            command.coverage,
            min(command.wait_ms, settings.max_wait_ms),
        )
        metrics = self._metrics.queue(queue.name)
        try:
            claimed = await self._dispatcher.claim(wish)
        except DequeueRateLimited:
            metrics.dequeue_requests_rate_limited += 1
            raise
        if not claimed:
            metrics.dequeue_requests_empty += 1
            return []
        return self._hand_out(queue.name, claimed)

    def _hand_out(self, queue: str, claimed: Sequence[FromShard]) -> list[HandedOut]:
        now_ms = self._clock.now_ms()
        metrics = self._metrics.queue(queue)
        handed_out: list[HandedOut] = []
        make = tuple.__new__  # quicker than a class's own call
        for shard, jobs, token in claimed:
            prefix = f"{queue}:s{shard}:p"
            handed_out += [make(HandedOut, (f"{prefix}{job.priority}:{job.id}", token, job)) for job in jobs]
            if len(jobs) == 1:
                _record_delays(metrics, jobs[0], now_ms)
                continue
            metrics.dequeue_delay_ms.record_each([now_ms - job.run_after_ms for job in jobs])
            metrics.first_dequeue_delay_ms.record_each([now_ms - job.created_at_ms for job in jobs if job.attempt == 1])
        metrics.dequeue += len(handed_out)
        return handed_out

    async def _peek(self, command: DequeueCommand, limit: int) -> list[HandedOut]:
        shown: list[HandedOut] = []
        bytes_left = self._settings.max_frame_bytes * 3 // 4
        failures: list[WorldError] = []
        shards = self._shards.for_claim(command.coverage)
        for shard in shards:
            if len(shown) >= limit or bytes_left <= 0:
                break
            try:
                jobs = raise_error(
                    await shard.shard.peek_jobs(command.queue, limit - len(shown), self._clock.now_ms(), bytes_left)
                )
            except WorldError as error:
                failures.append(error)
                continue
            bytes_left -= sum(len(job.body) for job in jobs)
            shown += [_shown(command.queue, shard.name, job) for job in jobs]
        if len(failures) == len(shards):
            raise failures[0]
        return shown

    def undelivered(self, caller: Caller, queue: str, dequeued: Dequeued) -> None:
        """The answer could not be written: its claims are released unspent, in the background."""
        del caller
        jobs = [handed_out for handed_out in dequeued.jobs if handed_out.token]
        if not jobs:
            return
        self._metrics.queue(queue).undelivered += len(jobs)
        descriptors = [handed_out.descriptor for handed_out in jobs]
        for shard, indices, _ in address(self._shards, queue, descriptors, len(descriptors)):
            # Those of one shard come from one claim call.
            part = FromShard(shard.name, [jobs[index].job for index in indices], jobs[indices[0]].token)
            self._dispatcher.give_back(queue, part)


def _record_delays(metrics: QueueMetrics, job: ClaimedJob, now_ms: int) -> None:
    metrics.dequeue_delay_ms.record(now_ms - job.run_after_ms)
    if job.attempt == 1:
        metrics.first_dequeue_delay_ms.record(now_ms - job.created_at_ms)


def _shown(queue: str, shard: str, job: ClaimedJob) -> HandedOut:
    return HandedOut(f"{queue}:s{shard}:p{job.priority}:{job.id}", "", job)


def _check(command: DequeueCommand) -> None:
    if command.limit < 0:
        raise InvalidArgument(f"limit must not be negative, not {command.limit}")
    if command.wait_ms < 0:
        raise InvalidArgument(f"waitMillis must not be negative, not {command.wait_ms}")
    if math.isnan(command.coverage):
        raise InvalidArgument("coverage is not a number")
