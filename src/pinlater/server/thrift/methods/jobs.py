"""The lifecycle of a job: enqueue, dequeue, and the reports of a worker on the jobs that it has claimed."""

from __future__ import annotations

from collections.abc import Awaitable, Collection
from typing import Any

from pinlater.domain.access import DRY_RUN
from pinlater.domain.body_masks import BodyMasks
from pinlater.domain.descriptor import descriptor_prefix
from pinlater.domain.workers import WorkerInfo
from pinlater.server.operations.service import Service
from pinlater.server.operations.values import Caller, DequeueResult
from pinlater.server.telemetry.tracing import Tracing
from pinlater.server.thrift.costs import MemoryBounds
from pinlater.server.thrift.masking import Turns
from pinlater.server.thrift.methods.record import Handler, ServedMethod, queue_of_request
from pinlater.wire.generated import structs


# --- callers, as they describe themselves: none of it is proven ---------------------------------------------------------------
def _caller(context: structs.RequestContext) -> Caller:
    return tuple.__new__(Caller, (context.source, 0, None))  # quicker than the class's own call


def _worker(context: structs.RequestContext, request: structs.DequeueRequest | structs.ClaimsRequest) -> Caller:
    """Returns the caller of a dequeue or a heartbeat, with its report about its process."""
    said = request.worker
    info = None if said is None else _worker_info(said)
    return tuple.__new__(Caller, (context.source, request.process or 0, info))


def _worker_info(said: structs.WorkerInfo) -> WorkerInfo:
    return WorkerInfo(
        said.library or "",
        said.version or "",
        said.host or "",
        said.pid or 0,
        said.concurrency or 0,
        said.running or 0,
        said.started_at_ms or 0,
    )


# --- enqueue ------------------------------------------------------------------------------------------------------------------
async def _enqueue_in_span(tracing: Tracing, handle: Handler, service: Service, call: Any) -> Any:
    """The trace travels in the headers of the jobs."""
    request = call.request
    with tracing.enqueue_span(request.queue, [job.headers for job in request.jobs]):
        for job in request.jobs:
            job.headers = tracing.inject(job.headers)
        return await handle(service, call)


# --- dequeue ------------------------------------------------------------------------------------------------------------------
class DequeueAnswer:
    """A `DequeueResponse` that remembers the jobs that it hands out, in case it can't be written."""

    __slots__ = ("ack_outcomes", "claimed", "jobs", "metadata", "order", "queue")

    def __init__(self, queue: str, dequeued: DequeueResult) -> None:
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
        self.ack_outcomes = dequeued.ack_results or None
        self.order = list(bodies) if bodies else None

    def forget_bodies(self) -> None:
        """Keeps only the data for giving the jobs back: the answer is encoded, and its bytes are counted."""
        self.jobs = self.metadata = self.order = None
        self.claimed = [part._replace(jobs=[job._replace(body=b"") for job in part.jobs]) for part in self.claimed]


async def _dequeue_jobs(service: Service, call: structs.dequeueJobs_args) -> DequeueAnswer:
    request = call.request
    return DequeueAnswer(request.queue, await service.dequeuing.dequeue(_worker(call.context, request), request))


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
def _ack_dequeued_jobs(service: Service, call: structs.ackDequeuedJobs_args) -> Awaitable[object]:
    """Its answer has no outcomes, so an error of a single item would be lost."""
    call.request.per_item_errors = None
    return service.claimed_jobs.acknowledge(_caller(call.context), call.request, answered=False)


# --- renewals, checkpoints and releases ---------------------------------------------------------------------------------------
async def _checkpoint_jobs(service: Service, call: structs.checkpointJobs_args) -> None:
    call.request.per_item_errors = None
    await service.claimed_jobs.checkpoint(_caller(call.context), call.request)


METHODS = [
    ServedMethod(
        "enqueueJobs",
        handle=lambda service, call: service.enqueuing.enqueue(call.request, call.arrived_s),
        queues=queue_of_request,
        wants_arrival=True,
        in_span=_enqueue_in_span,
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
    ServedMethod(
        "ackJobs",
        handle=lambda service, call: service.claimed_jobs.acknowledge(_caller(call.context), call.request),
        queues=queue_of_request,
        is_report=True,
    ),
    ServedMethod("checkpointJobs", handle=_checkpoint_jobs, queues=queue_of_request, is_report=True),
    ServedMethod(
        "checkpointJobsFenced",
        handle=lambda service, call: service.claimed_jobs.checkpoint(_caller(call.context), call.request),
        queues=queue_of_request,
        is_report=True,
    ),
    ServedMethod(
        "heartbeatClaims",
        handle=lambda service, call: service.claimed_jobs.heartbeat(
            call.request, caller=_worker(call.context, call.request)
        ),
        queues=queue_of_request,
        is_report=True,
    ),
    ServedMethod(
        "releaseJobs",
        handle=lambda service, call: service.claimed_jobs.release(call.request, caller=_caller(call.context)),
        queues=queue_of_request,
        is_report=True,
    ),
]
