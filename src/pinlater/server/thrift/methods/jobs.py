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
from pinlater.wire.generated import structs

_SCOPES = {int(scope): scope for scope in UniqueScope}


# --- enqueue ------------------------------------------------------------------------------------------------------------------
async def _enqueue_jobs(service: Service, call: structs.enqueueJobs_args) -> structs.Enqueued:
    request = call.request
    stored = await service.enqueuing.enqueue(
        request.queue,
        jobs_to_enqueue(request.jobs),
        request_key=request.request_key or None,
        repeat=bool(request.repeated),
        arrived_s=getattr(call, "arrived_s", None),
    )
    return _enqueued(stored)


def jobs_to_enqueue(jobs: Sequence[structs.Job]) -> list[Job]:
    """Returns the jobs as a producer described them. Attempts that were not said stay None: the queue's default holds."""
    make = tuple.__new__  # quicker than a class's own call
    return [
        make(
            Job,
            (
                job.body,
                job.priority,
                job.run_after_ms,
                job.attempts_allowed,
                job.custom_status,
                job.headers or None,
                _unique(job) if job.unique_key else None,
                job.claim_timeout_ms,
                job.expires_at_ms,
            ),
        )
        for job in jobs
    ]


def _unique(job: structs.Job) -> UniqueKey | None:
    """An empty key counts as none."""
    if not job.unique_key:
        return None
    scope = _SCOPES.get(job.unique_scope)
    if scope is None:
        raise InvalidArgument(f"{job.unique_scope} is not a unique scope; there are 0 PENDING, 1 UNFINISHED, 2 TIME")
    return UniqueKey(job.unique_key, scope, job.unique_for_ms or 0)


def _enqueued(value: Enqueued) -> structs.Enqueued:
    return structs.Enqueued(value.descriptors, value.existing or None)


async def _enqueue_in_span(tracing: Tracing, handle: Handler, service: Service, call: Any) -> Any:
    """The trace travels in the headers of the jobs."""
    request = call.request
    with tracing.enqueue_span(request.queue, [job.headers for job in request.jobs]):
        for job in request.jobs:
            job.headers = tracing.inject(job.headers)
        return await handle(service, call)


# --- dequeue ------------------------------------------------------------------------------------------------------------------
class DequeueAnswer:
    """A `DequeueResponse` that remembers what it hands out, in case it can't be written."""

    __slots__ = ("ack_outcomes", "claimed", "jobs", "metadata", "order", "queue")

    def __init__(self, queue: str, dequeued: DequeueResult, outcomes: list[structs.AckResult] | None = None) -> None:
        self.queue = queue
        self.claimed = dequeued.claimed
        bodies: dict[str, bytes] = {}
        metadata: dict[str, structs.DequeueMetadata] = {}
        for shard, jobs, token in dequeued.claimed:
            prefix = descriptor_prefix(queue, shard)
            for job in jobs:
                descriptor = f"{prefix}{job.priority}:{job.id}"
                bodies[descriptor] = job.body
                metadata[descriptor] = structs.DequeueMetadata(
                    job.attempts_allowed,
                    job.attempts_remaining,
                    token or None,
                    job.headers or None,
                    job.claim_deadline_ms or None,
                    job.created_at_ms,
                    job.attempt,
                )
        self.jobs: dict[str, bytes] | None = bodies
        self.metadata: dict[str, structs.DequeueMetadata] | None = metadata
        self.ack_outcomes = outcomes
        if outcomes is None and dequeued.ack_results:
            self.ack_outcomes = ack_outcomes(dequeued.ack_results)
        self.order = list(bodies) if bodies else None

    def forget_bodies(self) -> None:
        """Keeps only what it takes to give the jobs back: the answer is encoded, and its bytes are counted."""
        self.jobs = self.metadata = self.order = None
        self.claimed = [part._replace(jobs=[job._replace(body=b"") for job in part.jobs]) for part in self.claimed]


async def _dequeue_jobs(service: Service, call: structs.dequeueJobs_args) -> DequeueAnswer:
    request = call.request
    queue = request.queue
    dequeued = await service.dequeuing.dequeue(worker(call.context, request), await _dequeue_command(request))
    if len(dequeued.ack_results) <= ITEMS_A_TURN:
        return DequeueAnswer(queue, dequeued)
    try:
        outcomes = await in_turns(dequeued.ack_results, ack_outcomes)
    except asyncio.CancelledError:  # the caller has gone: what was claimed goes back, unspent
        service.dequeuing.undelivered(queue, dequeued.claimed)
        raise
    return DequeueAnswer(queue, dequeued, outcomes)


async def _dequeue_command(request: structs.DequeueRequest) -> DequeueCommand:
    riding = request.acks
    return DequeueCommand(
        request.queue,
        request.limit,
        None if riding is None else await _ack_batch(riding, per_item_errors=bool(riding.per_item_errors)),
        request.dry_run,
        request.coverage,
        request.wait_ms or 0,
    )


def _queues_of_dequeue(call: Any) -> Collection[str]:
    acks = call.request.acks
    queue = call.request.queue
    return (queue,) if acks is None or acks.queue == queue else (queue, acks.queue)


def _dry_run(call: Any) -> str | None:
    """A dry run without acks claims nothing."""
    return DRY_RUN if call.request.dry_run and call.request.acks is None else None


async def _mask_dry_run(masks: BodyMasks, call: Any, answer: Any) -> None:
    """A dequeue that claims jobs is never masked: a worker needs its bodies whole."""
    if not call.request.dry_run:
        return
    turns, mask = Turns(), masks.of(call.request.queue)
    for descriptor, body in answer.jobs.items():
        masked = await turns.masked(mask, body)
        if masked is not None:
            answer.jobs[descriptor] = masked
            answer.metadata[descriptor].body_masked = True


def _cost_of_dry_run(bounds: MemoryBounds, call: Any) -> int:
    return bounds.shown(call.request.limit, bodies=True) if call.request.dry_run else 0


async def _dequeue_in_span(tracing: Tracing, handle: Handler, service: Service, call: Any) -> Any:
    """The span links to the traces that the jobs carry."""
    with tracing.dequeue_span(call.request.queue):
        answer = await handle(service, call)
        tracing.link_jobs([metadata.headers for metadata in answer.metadata.values()])
        return answer


# --- acks ---------------------------------------------------------------------------------------------------------------------
async def _ack_dequeued_jobs(service: Service, call: structs.ackDequeuedJobs_args) -> None:
    # Its answer has no outcomes, so an error of a single item would be lost.
    batch = await _ack_batch(call.request, per_item_errors=False)
    await service.claimed_jobs.acknowledge(caller(call.context), batch)


async def _ack_jobs(service: Service, call: structs.ackJobs_args) -> list[structs.AckResult]:
    request = call.request
    batch = await _ack_batch(request, per_item_errors=bool(request.per_item_errors))
    results = await service.claimed_jobs.acknowledge(caller(call.context), batch)
    return await in_turns(results, ack_outcomes)


async def _ack_batch(request: structs.AckBatch, *, per_item_errors: bool) -> AckBatch:
    """Acks in the order of their outcomes: succeeded ones first."""
    succeeded, failed = request.succeeded or (), request.failed or ()
    if len(succeeded) + len(failed) <= ITEMS_A_TURN:
        items = _acks(succeeded, succeeded=True)
        if failed:
            items += _acks(failed, succeeded=False)
    else:
        items = await in_turns(succeeded, _succeeded) + await in_turns(failed, _failed)
    return AckBatch(request.queue, items, per_item_errors)


def _succeeded(infos: Sequence[structs.Ack]) -> list[Ack]:
    return _acks(infos, succeeded=True)


def _failed(infos: Sequence[structs.Ack]) -> list[Ack]:
    return _acks(infos, succeeded=False)


def _acks(infos: Sequence[structs.Ack], *, succeeded: bool) -> list[Ack]:
    make = tuple.__new__  # quicker than a class's own call
    return [
        make(
            Ack,
            (
                info.descriptor,
                succeeded,
                info.token,
                info.append_status,
                info.retry_delay_ms,
                bool(info.final),
                info.error_type or "",
                info.error_text or "",
            ),
        )
        for info in infos
    ]


def ack_outcomes(results: Sequence[AckResult]) -> list[structs.AckResult]:
    """Returns what became of each item, in order."""
    return [
        structs.AckResult(descriptor, outcome, holder or None, held_since_ms, deadline_ms)
        if error is None
        else _not_carried_out(descriptor, outcome, error)
        for descriptor, outcome, holder, held_since_ms, deadline_ms, error in results
    ]


def _not_carried_out(descriptor: str, outcome: Outcome, error: PinLaterError) -> structs.AckResult:
    """Without the error's message, which could be as long as all else in the answer."""
    return structs.AckResult(
        descriptor,
        outcome,
        error_code=int(code_of(error)),
        error_detail=error.detail,
        retryable=error.retryable,
        retry_after_ms=error.retry_after_ms,
    )


# --- claims that last ---------------------------------------------------------------------------------------------------------
async def _checkpoint_jobs(service: Service, call: structs.checkpointJobs_args) -> None:
    await service.claimed_jobs.checkpoint(
        caller(call.context), call.request.queue, await in_turns(call.request.requests, _checkpoints)
    )


async def _checkpoint_jobs_fenced(service: Service, call: structs.checkpointJobsFenced_args) -> list[structs.AckResult]:
    request = call.request
    results = await service.claimed_jobs.checkpoint(
        caller(call.context),
        request.queue,
        await in_turns(request.requests, _checkpoints),
        per_item_errors=bool(request.per_item_errors),
    )
    return await in_turns(results, ack_outcomes)


def _checkpoints(requests: Sequence[structs.Checkpoint]) -> list[Checkpoint]:
    return [
        Checkpoint(
            one.descriptor,
            one.token,
            one.new_body,
            one.move_to_pending,
            one.run_after_ms,
            one.attempts_allowed,
            one.prepend_status or "",
        )
        for one in requests
    ]


async def _heartbeat_claims(service: Service, call: structs.heartbeatClaims_args) -> list[structs.AckResult]:
    request = call.request
    results = await service.claimed_jobs.heartbeat(
        request.queue,
        await in_turns(request.claims, _claims),
        caller=worker(call.context, request),
        per_item_errors=bool(request.per_item_errors),
    )
    return await in_turns(results, ack_outcomes)


async def _release_jobs(service: Service, call: structs.releaseJobs_args) -> list[structs.AckResult]:
    request = call.request
    results = await service.claimed_jobs.release(
        request.queue,
        await in_turns(request.claims, _claims),
        request.delay_ms,
        caller=caller(call.context),
        per_item_errors=bool(request.per_item_errors),
    )
    return await in_turns(results, ack_outcomes)


def _claims(claims: Sequence[structs.Claim]) -> list[Claim]:
    return [Claim(claim.descriptor, claim.token) for claim in claims]


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
