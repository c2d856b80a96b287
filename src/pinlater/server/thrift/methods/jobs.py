"""The way of a job: enqueue, dequeue, and what a worker reports on the jobs that it has claimed."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any

from pinlater.domain.access import DRY_RUN
from pinlater.domain.body_masks import BodyMasks
from pinlater.domain.calls import Ack, AckBatch, AckResult, Checkpoint, Claim, Enqueued, Job
from pinlater.domain.descriptor import descriptor_prefix
from pinlater.domain.errors import InvalidArgument, PinLaterError
from pinlater.domain.job import Outcome, UniqueKey, UniqueScope
from pinlater.server.operations.long_lists import ITEMS_A_TURN, in_turns
from pinlater.server.operations.service import Service
from pinlater.server.operations.values import DequeueCommand, DequeueResult
from pinlater.server.telemetry.tracing import Tracing
from pinlater.server.thrift.costs import MemoryBounds
from pinlater.server.thrift.failures import code_of
from pinlater.server.thrift.masking import Turns
from pinlater.server.thrift.methods.callers import caller, worker
from pinlater.server.thrift.methods.record import Handler, ServedMethod, queue_of_request
from pinlater.wire.generated import received
from pinlater.wire.generated import ttypes as types

_SCOPES = {int(scope): scope for scope in UniqueScope}


# --- enqueue ------------------------------------------------------------------------------------------------------------------
async def _enqueue_jobs(service: Service, call: received.enqueueJobs_args) -> types.PinLaterEnqueueResponse:
    request = call.request
    stored = await service.enqueuing.enqueue(
        request.queueName,
        jobs_to_enqueue(request.jobs),
        request_key=request.requestKey or None,
        repeat=bool(request.repeated),
        arrived_s=getattr(call, "arrived_s", None),
    )
    return _enqueued(stored)


def jobs_to_enqueue(jobs: Sequence[received.PinLaterJob]) -> list[Job]:
    """Returns the jobs as a producer described them. Attempts that were not said stay None: the queue's default holds."""
    make = tuple.__new__  # quicker than a class's own call
    return [
        make(
            Job,
            (
                job.body,
                job.priority,
                job.runAfterTimestampMillis,
                job.numAttemptsAllowed,
                job.customStatus,
                job.headers or None,
                _unique(job) if job.uniqueKey else None,
                job.claimTimeoutMillis,
                job.expiresAtMillis,
            ),
        )
        for job in jobs
    ]


def _unique(job: received.PinLaterJob) -> UniqueKey | None:
    """An empty key counts as none."""
    if not job.uniqueKey:
        return None
    scope = _SCOPES.get(job.uniqueScope)
    if scope is None:
        raise InvalidArgument(f"{job.uniqueScope} is not a unique scope; there are 0 PENDING, 1 UNFINISHED, 2 TIME")
    return UniqueKey(job.uniqueKey, scope, job.uniqueForMillis or 0)


def _enqueued(value: Enqueued) -> types.PinLaterEnqueueResponse:
    return types.PinLaterEnqueueResponse(value.descriptors, value.existing or None)


async def _enqueue_in_span(tracing: Tracing, handle: Handler, service: Service, call: Any) -> Any:
    """The trace travels in the headers of the jobs."""
    request = call.request
    with tracing.enqueue_span(request.queueName, [job.headers for job in request.jobs]):
        for job in request.jobs:
            job.headers = tracing.inject(job.headers)
        return await handle(service, call)


# --- dequeue ------------------------------------------------------------------------------------------------------------------
class DequeueAnswer(types.PinLaterDequeueResponse):
    """A dequeue's answer that remembers what it hands out, in case it can't be written."""

    __slots__ = ("claimed", "queue")

    def __init__(self, queue: str, dequeued: DequeueResult, outcomes: list[types.AckOutcome] | None = None) -> None:
        self.queue = queue
        self.claimed = dequeued.claimed
        bodies: dict[str, bytes] = {}
        metadata: dict[str, types.PinLaterDequeueMetadata] = {}
        for shard, jobs, token in dequeued.claimed:
            prefix = descriptor_prefix(queue, shard)
            for job in jobs:
                descriptor = f"{prefix}{job.priority}:{job.id}"
                bodies[descriptor] = job.body
                metadata[descriptor] = types.PinLaterDequeueMetadata(
                    job.attempts_allowed,
                    job.attempts_remaining,
                    token or None,
                    job.headers or None,
                    job.claim_deadline_ms or None,
                    job.created_at_ms,
                    job.attempt,
                )
        self.jobs = bodies
        self.jobMetadata = metadata
        self.ackOutcomes = outcomes
        if outcomes is None and dequeued.ack_results:
            self.ackOutcomes = ack_outcomes(dequeued.ack_results)
        self.jobOrder = list(bodies) if bodies else None

    def forget_bodies(self) -> None:
        """Keeps only what it takes to give the jobs back: the answer is encoded, and its bytes are counted."""
        self.jobs = self.jobMetadata = self.jobOrder = None
        self.claimed = [part._replace(jobs=[job._replace(body=b"") for job in part.jobs]) for part in self.claimed]


async def _dequeue_jobs(service: Service, call: received.dequeueJobs_args) -> DequeueAnswer:
    request = call.request
    queue = request.queueName
    dequeued = await service.dequeuing.dequeue(worker(call.requestContext, request), await _dequeue_command(request))
    if len(dequeued.ack_results) <= ITEMS_A_TURN:
        return DequeueAnswer(queue, dequeued)
    try:
        outcomes = await in_turns(dequeued.ack_results, ack_outcomes)
    except asyncio.CancelledError:  # the caller has gone: what was claimed goes back, unspent
        service.dequeuing.undelivered(queue, dequeued.claimed)
        raise
    return DequeueAnswer(queue, dequeued, outcomes)


async def _dequeue_command(request: received.PinLaterDequeueRequest) -> DequeueCommand:
    riding = request.jobAckRequest
    return DequeueCommand(
        request.queueName,
        request.limit,
        None if riding is None else await _ack_batch(riding, per_item_errors=bool(riding.perItemErrors)),
        request.dryRun,
        request.coverage,
        request.waitMillis or 0,
    )


def _queues_of_dequeue(call: Any) -> Collection[str]:
    acks = call.request.jobAckRequest
    queue = call.request.queueName
    return (queue,) if acks is None or acks.queueName == queue else (queue, acks.queueName)


def _dry_run(call: Any) -> str | None:
    """A dry run without acks claims nothing."""
    return DRY_RUN if call.request.dryRun and call.request.jobAckRequest is None else None


async def _mask_dry_run(masks: BodyMasks, call: Any, answer: Any) -> None:
    """A dequeue that claims jobs is never masked: a worker needs its bodies whole."""
    if not call.request.dryRun:
        return
    turns, mask = Turns(), masks.of(call.request.queueName)
    for descriptor, body in answer.jobs.items():
        masked = await turns.masked(mask, body)
        if masked is not None:
            answer.jobs[descriptor] = masked
            answer.jobMetadata[descriptor].bodyMasked = True


def _cost_of_dry_run(bounds: MemoryBounds, call: Any) -> int:
    return bounds.shown(call.request.limit, bodies=True) if call.request.dryRun else 0


async def _dequeue_in_span(tracing: Tracing, handle: Handler, service: Service, call: Any) -> Any:
    """The span links to the traces that the jobs carry."""
    with tracing.dequeue_span(call.request.queueName):
        answer = await handle(service, call)
        tracing.link_jobs([metadata.headers for metadata in answer.jobMetadata.values()])
        return answer


# --- acks ---------------------------------------------------------------------------------------------------------------------
async def _ack_dequeued_jobs(service: Service, call: received.ackDequeuedJobs_args) -> None:
    # Its answer has no outcomes, so an error of a single item would be lost.
    batch = await _ack_batch(call.request, per_item_errors=False)
    await service.claimed_jobs.acknowledge(caller(call.requestContext), batch)


async def _ack_jobs(service: Service, call: received.ackJobs_args) -> list[types.AckOutcome]:
    request = call.request
    batch = await _ack_batch(request, per_item_errors=bool(request.perItemErrors))
    results = await service.claimed_jobs.acknowledge(caller(call.requestContext), batch)
    return await in_turns(results, ack_outcomes)


async def _ack_batch(request: received.PinLaterJobAckRequest, *, per_item_errors: bool) -> AckBatch:
    """Acks in the order of their outcomes: succeeded ones first."""
    succeeded, failed = request.jobsSucceeded or (), request.jobsFailed or ()
    if len(succeeded) + len(failed) <= ITEMS_A_TURN:
        items = _acks(succeeded, succeeded=True)
        if failed:
            items += _acks(failed, succeeded=False)
    else:
        items = await in_turns(succeeded, _succeeded) + await in_turns(failed, _failed)
    return AckBatch(request.queueName, items, per_item_errors)


def _succeeded(infos: Sequence[received.PinLaterJobAckInfo]) -> list[Ack]:
    return _acks(infos, succeeded=True)


def _failed(infos: Sequence[received.PinLaterJobAckInfo]) -> list[Ack]:
    return _acks(infos, succeeded=False)


def _acks(infos: Sequence[received.PinLaterJobAckInfo], *, succeeded: bool) -> list[Ack]:
    make = tuple.__new__  # quicker than a class's own call
    return [
        make(
            Ack,
            (
                info.jobDescriptor,
                succeeded,
                info.claimToken,
                info.appendCustomStatus,
                info.retryDelayMillis,
                bool(info.finalFailure),
                info.errorType or "",
                info.errorText or "",
            ),
        )
        for info in infos
    ]


def ack_outcomes(results: Sequence[AckResult]) -> list[types.AckOutcome]:
    """Returns what became of each item, in order."""
    return [
        types.AckOutcome(descriptor, outcome, holder or None, held_since_ms, deadline_ms)
        if error is None
        else _not_carried_out(descriptor, outcome, error)
        for descriptor, outcome, holder, held_since_ms, deadline_ms, error in results
    ]


def _not_carried_out(descriptor: str, outcome: Outcome, error: PinLaterError) -> types.AckOutcome:
    """Without the error's message, which could be as long as all else in the answer."""
    return types.AckOutcome(
        descriptor,
        outcome,
        errorCode=int(code_of(error)),
        errorDetail=error.detail,
        retryable=error.retryable,
        retryAfterMillis=error.retry_after_ms,
    )


# --- claims that last ---------------------------------------------------------------------------------------------------------
async def _checkpoint_jobs(service: Service, call: received.checkpointJobs_args) -> None:
    await service.claimed_jobs.checkpoint(
        caller(call.requestContext), call.request.queueName, await in_turns(call.request.requests, _checkpoints)
    )


async def _checkpoint_jobs_fenced(service: Service, call: received.checkpointJobsFenced_args) -> list[types.AckOutcome]:
    request = call.request
    results = await service.claimed_jobs.checkpoint(
        caller(call.requestContext),
        request.queueName,
        await in_turns(request.requests, _checkpoints),
        per_item_errors=bool(request.perItemErrors),
    )
    return await in_turns(results, ack_outcomes)


def _checkpoints(requests: Sequence[received.PinLaterCheckpointJobRequest]) -> list[Checkpoint]:
    return [
        Checkpoint(
            one.jobDescriptor,
            one.claimToken,
            one.newBody,
            one.moveToPending,
            one.runAfterTimestampMillis,
            one.numOfAttemptsAllowed,
            one.prependCustomStatus or "",
        )
        for one in requests
    ]


async def _heartbeat_claims(service: Service, call: received.heartbeatClaims_args) -> list[types.AckOutcome]:
    request = call.request
    results = await service.claimed_jobs.heartbeat(
        request.queueName,
        await in_turns(request.claims, _claims),
        caller=worker(call.requestContext, request),
        per_item_errors=bool(request.perItemErrors),
    )
    return await in_turns(results, ack_outcomes)


async def _release_jobs(service: Service, call: received.releaseJobs_args) -> list[types.AckOutcome]:
    request = call.request
    results = await service.claimed_jobs.release(
        request.queueName,
        await in_turns(request.claims, _claims),
        request.delayMillis,
        caller=caller(call.requestContext),
        per_item_errors=bool(request.perItemErrors),
    )
    return await in_turns(results, ack_outcomes)


def _claims(claims: Sequence[received.ClaimRef]) -> list[Claim]:
    return [Claim(claim.jobDescriptor, claim.claimToken) for claim in claims]


METHODS = [
    ServedMethod(
        "enqueueJobs", handle=_enqueue_jobs, queues=queue_of_request, wants_arrival=True, in_span=_enqueue_in_span
    ),
    ServedMethod(
        "dequeueJobs",
        handle=_dequeue_jobs,
        queues=_queues_of_dequeue,
        variant=_dry_run,
        mask=_mask_dry_run,
        cost_bytes=_cost_of_dry_run,
        hands_out=True,
        jobs_shown=lambda answer: answer.jobs,
        in_span=_dequeue_in_span,
    ),
    ServedMethod("ackDequeuedJobs", handle=_ack_dequeued_jobs, queues=queue_of_request, is_report=True),
    ServedMethod("ackJobs", handle=_ack_jobs, queues=queue_of_request, is_report=True),
    ServedMethod("checkpointJobs", handle=_checkpoint_jobs, queues=queue_of_request, is_report=True),
    ServedMethod("checkpointJobsFenced", handle=_checkpoint_jobs_fenced, queues=queue_of_request, is_report=True),
    ServedMethod("heartbeatClaims", handle=_heartbeat_claims, queues=queue_of_request, is_report=True),
    ServedMethod("releaseJobs", handle=_release_jobs, queues=queue_of_request, is_report=True),
]
