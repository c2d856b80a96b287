"""The calls of workers about the jobs that they have claimed: acks, checkpoints, heartbeats, releases; and cancelling.

A caller names a job by its descriptor. A store gets the parts of the descriptor (`storage.values`): they are parsed here, once, for all
of a request before any of it is executed.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from pinlater.domain.durations import YEAR_MS, delay_fault, due_fault
from pinlater.domain.errors import InvalidArgument, PinLaterError
from pinlater.domain.job import JobState, Outcome
from pinlater.server.dispatch.identity import kept_source, run_ms
from pinlater.server.operations.addressing import (
    OnShard,
    ack_results,
    address,
    covers,
    find_jobs,
    on_each_shard,
    on_unknown_shards,
)
from pinlater.server.operations.claim_events import ClaimEvents
from pinlater.server.operations.long_lists import ITEMS_A_TURN, in_turns, pairs_in_turns
from pinlater.server.operations.per_item import LaneOf, Orders, PerItem
from pinlater.server.operations.values import Caller
from pinlater.server.storage.commands import CancelJobs
from pinlater.server.storage.values import NOT_FOUND, Acked, ClaimRef, JobAck, JobCheckpoint, JobKey, raise_error
from pinlater.server.telemetry.catalogue import QueueMetrics
from pinlater.wire.generated.structs import (
    Ack,
    AckBatch,
    AckResult,
    Checkpoint,
    CheckpointBatch,
    Claim,
    ClaimsRequest,
    ReleaseRequest,
)

if TYPE_CHECKING:
    from pinlater.server.operations.service import Service

logger = logging.getLogger(__name__)

TOKEN_BYTES_MAX = 64
_JOBS_LOGGED = 10
_RUNS_A_BATCH = 4
_SHOWN = 200  # characters of a descriptor, in errors
Item = TypeVar("Item")
Order = TypeVar("Order")

_FINISH: LaneOf = attrgetter("finish")
_CHECKPOINT: LaneOf = attrgetter("checkpoint")
_EXTEND: LaneOf = attrgetter("extend")
_RELEASE: LaneOf = attrgetter("release")


class ParsedAcks(Struct, frozen=True):
    """The acks of a request and the shards of their jobs. The first `succeeded` items are of jobs that succeeded."""

    items: Sequence[Ack]
    succeeded: int
    descriptors: Sequence[str]
    parts: Sequence[OnShard]


class ClaimedJobs:
    """The operations on claimed jobs."""

    def __init__(self, service: Service) -> None:
        self.events = ClaimEvents()
        self._shards = service.shards
        self._queue_cache = service.queue_cache
        self._dispatcher = service.dispatcher
        self._metrics = service.metrics
        self._clock = service.clock
        self._settings = service.settings
        self._body_limit = service.body_limit
        self._per_item = PerItem(service.shards)

    # --- acks -----------------------------------------------------------------------------------------------------------

    async def acknowledge(self, caller: Caller, batch: AckBatch, *, answered: bool = True) -> Sequence[AckResult]:
        """Ends attempts. Nothing happens if a descriptor can't be parsed or the queue is missing. Returns no outcomes unless `answered`."""
        acks = await self.parse(batch)
        if self._queue_cache.queues.get(batch.queue) is None:
            await self._queue_cache.require(batch.queue)
        self.events.reported(caller)
        return await self.carry_out(caller, batch, acks, answered=answered)

    async def parse(self, batch: AckBatch) -> ParsedAcks:
        """Checks all of a batch; raises `DescriptorInvalid` or `InvalidArgument` before anything has happened."""
        items = [*(batch.succeeded or ()), *(batch.failed or ())]
        succeeded = len(batch.succeeded or ())
        descriptors: list[str] = []
        for index, item in enumerate(items):
            descriptors.append(item.descriptor)
            if item.token is not None and len(item.token) > TOKEN_BYTES_MAX:
                raise InvalidArgument(f"A claim token has at most {TOKEN_BYTES_MAX} bytes")
            if item.retry_delay_ms > YEAR_MS and index >= succeeded:
                _check_delay(item.retry_delay_ms, f"Ack of {item.descriptor[:_SHOWN]}: retryDelayMillis")
        shards, most = self._shards, self._settings.max_descriptors_per_request
        is_short = len(descriptors) <= ITEMS_A_TURN
        parts: Sequence[OnShard] = address(shards, batch.queue, descriptors, most) if is_short else ()
        if not is_short or (shards.reader is not None and not covers(parts, len(descriptors))):
            parts = await find_jobs(shards, batch.queue, descriptors, most)
        return ParsedAcks(items, succeeded, descriptors, parts)

    async def carry_out(
        self, caller: Caller, batch: AckBatch, acks: ParsedAcks, *, then_claims: bool = False, answered: bool = True
    ) -> Sequence[AckResult]:
        """Executes the acks of a parsed batch. `then_claims`: a claim waits for them. Without `answered`, it returns nothing.

        Returns the outcomes of the acks of jobs that succeeded, then of the others.
        """
        items, descriptors = acks.items, acks.descriptors
        answers = await self._tell(
            batch.queue,
            descriptors,
            acks.parts,
            _FINISH,
            partial(_acks, items, acks.succeeded),
            per_item_errors=bool(batch.per_item_errors),
            then_claims=then_claims,
        )
        if len(items) <= ITEMS_A_TURN:
            stale = self._count_acks(batch.queue, items, answers)
        else:
            stale = await pairs_in_turns(items, answers, lambda some, of: self._count_acks(batch.queue, some, of))
        if stale:
            self._metrics.queue(batch.queue).stale_claim += len(stale)
            self.events.late(caller, batch.queue, len(stale))
            _log_each("ack of a claim that is no longer the caller's", caller, batch.queue, stale)
        return await ack_results(descriptors, answers) if answered else ()

    async def _tell(
        self,
        queue: str,
        descriptors: Sequence[str],
        parts: Sequence[OnShard],
        lane_of: LaneOf,
        orders: Orders,
        *,
        per_item_errors: bool,
        then_claims: bool = False,
    ) -> Sequence[Acked | PinLaterError]:
        """The answers of a lane of each shard, at the request's positions. Errors are raised, or are values if `per_item_errors`."""
        answers: list[Acked | PinLaterError] = [NOT_FOUND] * len(descriptors)
        unknown: Mapping[int, PinLaterError] = {}
        if self._shards.reader is not None and not covers(parts, len(descriptors)):
            unknown = await on_unknown_shards(self._shards, queue, descriptors, parts)
        if per_item_errors:
            for index, error in unknown.items():
                answers[index] = error
            return await self._per_item.carry_out(parts, lane_of, orders, answers, then_claims=then_claims)

        def act(part: OnShard) -> Awaitable[Sequence[Acked | PinLaterError]]:
            return lane_of(part.shard.lanes_of(queue)).submit(orders(part))

        answers = await on_each_shard(parts, act, answers)
        for error in unknown.values():  # the changes on other shards are done
            raise error
        return answers

    def _count_acks(
        self, queue: str, items: Sequence[Ack], answers: Sequence[Acked | PinLaterError]
    ) -> list[tuple[str, Acked]]:
        """Counts the outcomes of these acks. Returns the acks of claims that no longer belonged to the caller."""
        metrics = self._metrics.queue(queue)
        now_ms = self._clock.now_ms()
        succeeded = 0
        stale: list[tuple[str, Acked]] = []
        for index, acked in enumerate(answers):
            if isinstance(acked, PinLaterError):
                continue
            if acked.outcome is Outcome.STALE_CLAIM:
                stale.append((items[index].descriptor, acked))
            elif acked.outcome is not Outcome.APPLIED:
                metrics.ack_noop += 1
                logger.debug(
                    "ack without effect", extra={"job": items[index].descriptor, "outcome": acked.outcome.name}
                )
            elif acked.state is JobState.SUCCEEDED:
                succeeded += 1
            else:
                metrics.ack_failed += 1
                if acked.state is JobState.PENDING:
                    metrics.retried += 1
                    self._ready_again(queue, acked, now_ms)
        metrics.ack_succeeded += succeeded
        _record_runs(metrics, items, answers, now_ms)
        return stale

    def _ready_again(self, queue: str, acked: Acked, now_ms: int) -> None:
        if acked.due_at_ms is None or acked.due_at_ms <= now_ms:
            self._dispatcher.wakeups.jobs_ready(queue, 1)
        else:
            self._dispatcher.wakeups.jobs_ready(queue, 0, acked.due_at_ms)

    # --- checkpoints ------------------------------------------------------------------------------------------------------

    async def checkpoint(self, caller: Caller, request: CheckpointBatch) -> Sequence[AckResult]:
        """Saves progress and renews claims. A checkpoint for a claim that isn't the caller's has no effect, and is logged and counted."""
        queue, items, per_item_errors = request.queue, request.requests, bool(request.per_item_errors)
        now_ms = self._clock.now_ms()
        for item in items:
            self._check_checkpoint(item, now_ms)

        self.events.reported(caller)
        source = kept_source(caller.source)

        def order(item: Checkpoint, key: JobKey) -> JobCheckpoint:
            return JobCheckpoint(
                key,
                source,
                item.token,
                item.new_body,
                item.move_to_pending,
                item.run_after_ms,
                item.attempts_allowed,
                item.prepend_status or "",
            )

        descriptors = [item.descriptor for item in items]
        parts = await self._in_hand(queue, descriptors)
        answers = await self._tell(
            queue,
            descriptors,
            parts,
            _CHECKPOINT,
            lambda part: _orders(items, part, order),
            per_item_errors=per_item_errors,
        )
        if not per_item_errors:
            answers = [raise_error(one) for one in answers]
        without_effect = await pairs_in_turns(items, answers, lambda some, of: self._count_checkpoints(queue, some, of))
        self._note_late(caller, queue, answers)
        if without_effect:
            self._metrics.queue(queue).checkpoint_noop += len(without_effect)
            _log_each("checkpoint without effect", caller, queue, without_effect)
        return await ack_results(descriptors, answers)

    def _count_checkpoints(
        self, queue: str, items: Sequence[Checkpoint], answers: Sequence[Acked | PinLaterError]
    ) -> list[tuple[str, Acked]]:
        """Counts the outcomes of these checkpoints. Returns those without effect."""
        metrics = self._metrics.queue(queue)
        now_ms = self._clock.now_ms()
        without_effect: list[tuple[str, Acked]] = []
        for item, acked in zip(items, answers, strict=True):
            if isinstance(acked, PinLaterError):
                continue
            if acked.outcome is Outcome.APPLIED:
                metrics.checkpoint += 1
                if acked.state is JobState.PENDING:
                    self._ready_again(queue, acked, now_ms)
            else:
                without_effect.append((item.descriptor, acked))
        return without_effect

    def _check_checkpoint(self, item: Checkpoint, now_ms: int) -> None:
        limit = self._body_limit
        if item.new_body is not None and len(item.new_body) > limit.bytes:
            raise InvalidArgument(
                f"A new body of {len(item.new_body)} bytes; this server takes at most {limit.bytes} ({limit.bound_by})",
                detail="BODY_TOO_LARGE",
            )
        if item.attempts_allowed is not None and item.attempts_allowed < 1:
            raise InvalidArgument(f"numOfAttemptsAllowed must be at least 1, not {item.attempts_allowed}")
        if item.run_after_ms is not None and (fault := due_fault(item.run_after_ms, now_ms)):
            where = f"Checkpoint of {item.descriptor[:_SHOWN]}"
            raise InvalidArgument(f"{where}: runAfterTimestampMillis {item.run_after_ms} {fault}")

    # --- heartbeats, releases, cancelling -----------------------------------------------------------------------------------

    async def heartbeat(self, request: ClaimsRequest, *, caller: Caller | None = None) -> Sequence[AckResult]:
        """Renews claims: deadline = now + the job's claim timeout. Never revives one."""
        queue, claims = request.queue, request.claims
        descriptors = [claim.descriptor for claim in claims]
        parts = await self._in_hand(queue, descriptors)
        if caller is not None:
            self.events.renewed(caller, queue)
        answers = await self._tell(
            queue,
            descriptors,
            parts,
            _EXTEND,
            lambda part: _claim_refs(claims, part),
            per_item_errors=bool(request.per_item_errors),
        )
        self._metrics.queue(queue).heartbeat += len(claims)
        if caller is not None:
            self._note_late(caller, queue, answers)
        return await ack_results(descriptors, answers)

    async def release(self, request: ReleaseRequest, *, caller: Caller | None = None) -> Sequence[AckResult]:
        """Gives claims back unspent, due after `delay_ms`."""
        queue, claims = request.queue, request.claims
        _check_delay(request.delay_ms, "delayMillis")
        delay_ms = max(0, request.delay_ms)
        descriptors = [claim.descriptor for claim in claims]
        parts = await self._in_hand(queue, descriptors)
        if caller is not None:
            self.events.reported(caller)
        answers = await self._tell(
            queue,
            descriptors,
            parts,
            _RELEASE,
            lambda part: _claim_refs(claims, part, delay_ms),
            per_item_errors=bool(request.per_item_errors),
        )
        await in_turns(answers, lambda some: self._count_released(queue, some, untried=not delay_ms))
        return await ack_results(descriptors, answers)

    def _count_released(self, queue: str, answers: Sequence[Acked | PinLaterError], *, untried: bool) -> Sequence[None]:
        """A job that comes back `untried`, without a delay, no longer counts for the queue's rate limit."""
        metrics = self._metrics.queue(queue)
        now_ms = self._clock.now_ms()
        for acked in answers:
            if not isinstance(acked, PinLaterError) and acked.outcome is Outcome.APPLIED:
                metrics.released += 1
                if untried:
                    self._dispatcher.limits.charge(queue, -1)
                self._ready_again(queue, acked, now_ms)
        return ()

    def _note_late(self, caller: Caller, queue: str, answers: Sequence[Acked | PinLaterError]) -> None:
        late = sum([not isinstance(acked, PinLaterError) and acked.outcome is Outcome.STALE_CLAIM for acked in answers])
        if late:
            self.events.late(caller, queue, late)

    async def cancel(
        self, queue: str, descriptors: Sequence[str], only_state: JobState | None = None
    ) -> Sequence[AckResult]:
        """PENDING or IN_PROGRESS, or only one of them → FAILED `cancelled`. A holder learns of it at its next heartbeat or ack."""

        async def act(part: OnShard) -> Sequence[Acked]:
            return await part.shard.store.submit(CancelJobs(part.keys, self._clock.now_ms(), only_state))

        parts = await self._in_hand(queue, descriptors)
        answers = await on_each_shard(parts, act, [NOT_FOUND] * len(descriptors))
        self._metrics.queue(queue).cancelled += sum(acked.outcome is Outcome.APPLIED for acked in answers)
        return await ack_results(descriptors, answers)

    async def _in_hand(self, queue: str, descriptors: Sequence[str]) -> Sequence[OnShard]:
        """The jobs named, by shard; nothing has happened if it raises."""
        parts = await find_jobs(self._shards, queue, descriptors, self._settings.max_descriptors_per_request)
        await self._queue_cache.require(queue)
        return parts


def _check_delay(delay_ms: int, name: str) -> None:
    if fault := delay_fault(delay_ms):
        raise InvalidArgument(f"{name} {delay_ms} {fault}")


def _record_runs(
    metrics: QueueMetrics, items: Sequence[Ack], answers: Sequence[Acked | PinLaterError], now_ms: int
) -> None:
    """How long a few of these jobs ran, spread over the batch: so the cost per job does not grow."""
    step = -(-len(items) // _RUNS_A_BATCH)
    for index in range(0, len(items), step or 1):
        acked = answers[index]
        if not isinstance(acked, PinLaterError) and acked.outcome is Outcome.APPLIED:
            span_ms = run_ms(items[index].token, now_ms)
            if span_ms is not None:
                metrics.run_ms.record(span_ms)


def _log_each(event: str, caller: Caller, queue: str, refused: Sequence[tuple[str, Acked]]) -> None:
    """A line for each job, up to a bound: one request may name fifty thousand."""
    for descriptor, acked in refused[:_JOBS_LOGGED]:
        about = {"job": descriptor, "source": caller.source, "outcome": acked.outcome.name, "holder": acked.holder}
        logger.info(event, extra=about)
    if len(refused) > _JOBS_LOGGED:
        more = {"queue": queue, "source": caller.source, "jobs": len(refused) - _JOBS_LOGGED}
        logger.info("%s: and more jobs of the same request", event, extra=more)


def _acks(items: Sequence[Ack], succeeded: int, part: OnShard) -> list[JobAck]:
    """Returns the part's acks. The first `succeeded` items are of jobs that succeeded. A negative delay counts as none."""
    make, keys = tuple.__new__, iter(part.keys)  # faster than calling the class, and than `zip`
    return [
        make(
            JobAck,
            (
                next(keys),
                index < succeeded,
                item.token,
                item.append_status,
                max(0, item.retry_delay_ms),
                bool(item.final),
                item.error_type or "",
                item.error_text or "",
            ),
        )
        for index in part.indices
        for item in (items[index],)
    ]


def _orders(items: Sequence[Item], part: OnShard, order: Callable[[Item, JobKey], Order]) -> list[Order]:
    return [order(items[index], key) for index, key in zip(part.indices, part.keys, strict=True)]


def _claim_refs(claims: Sequence[Claim], part: OnShard, delay_ms: int = 0) -> list[ClaimRef]:
    return _orders(claims, part, lambda claim, key: ClaimRef(key, claim.token, delay_ms))
