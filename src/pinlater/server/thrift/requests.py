"""From the wire's requests to the service's values. Nothing is checked here but what a value can't hold: enum numbers."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.domain.audit import AuditFilter
from pinlater.domain.bulk_runs import BulkOrder
from pinlater.domain.caller_address import named_address
from pinlater.domain.calls import Ack, AckBatch, Checkpoint, Claim, Job
from pinlater.domain.errors import InvalidArgument
from pinlater.domain.job import JobState, UniqueKey, UniqueScope
from pinlater.domain.workers import WorkerInfo
from pinlater.server.operations.long_lists import ITEMS_A_TURN, in_turns
from pinlater.server.operations.values import Caller, DequeueCommand, JobFilter, ScanCommand
from pinlater.wire.bulk_runs import order_of
from pinlater.wire.generated import received

_SOURCE_SHOWN = 120  # characters of a source before an address
_STATES = {int(state): state for state in JobState}
_SCOPES = {int(scope): scope for scope in UniqueScope}


def caller(context: received.RequestContext) -> Caller:
    """The caller."""
    return tuple.__new__(Caller, (context.source, context.requestId, 0, None))  # quicker than the class's own call


def named_source(context: received.RequestContext) -> str:
    """What the caller calls itself, and the address of the client for which it made the call, which nothing proves."""
    address = named_address(context.callerAddress or "")
    return f"{context.source[:_SOURCE_SHOWN]} for {address} (unverified)" if address else context.source


def worker(
    context: received.RequestContext, request: received.PinLaterDequeueRequest | received.ClaimsRequest
) -> Caller:
    """The caller of a dequeue or a heartbeat, with what it says of its process."""
    said = request.worker
    info = None if said is None else _worker_info(said)
    return tuple.__new__(Caller, (context.source, context.requestId, request.process or 0, info))


def _worker_info(said: received.WorkerInfo) -> WorkerInfo:
    return WorkerInfo(
        said.library or "",
        said.version or "",
        said.host or "",
        said.pid or 0,
        said.concurrency or 0,
        said.running or 0,
        said.startedAtMillis or 0,
    )


def _state(number: int) -> JobState:
    state = _STATES.get(number)
    if state is None:
        raise InvalidArgument(f"{number} is not a job state; there are 0 PENDING, 1 IN_PROGRESS, 2 SUCCEEDED, 3 FAILED")
    return state


def bulk_order(order: received.BulkOrder) -> BulkOrder:
    """A change of many jobs."""
    try:
        return order_of(order)
    except KeyError as error:
        raise InvalidArgument(
            f"{error} is no action of a bulk run, or no job state; there are 0 RETRY, 1 DELETE, 2 CANCEL, 3 RESTORE"
        ) from None


def _unique(job: received.PinLaterJob) -> UniqueKey | None:
    """An empty key counts as none."""
    if not job.uniqueKey:
        return None
    scope = _SCOPES.get(job.uniqueScope)
    if scope is None:
        raise InvalidArgument(f"{job.uniqueScope} is not a unique scope; there are 0 PENDING, 1 UNFINISHED, 2 TIME")
    return UniqueKey(job.uniqueKey, scope, job.uniqueForMillis or 0)


def jobs_to_enqueue(jobs: Sequence[received.PinLaterJob]) -> list[Job]:
    """Jobs as a producer described them. Attempts that were not said stay None: the queue's default holds."""
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


async def ack_batch(request: received.PinLaterJobAckRequest, *, per_item_errors: bool) -> AckBatch:
    """Acks in the order of their outcomes: succeeded ones first."""
    succeeded, failed = request.jobsSucceeded or (), request.jobsFailed or ()
    if len(succeeded) + len(failed) <= ITEMS_A_TURN:
        items = _acks(succeeded, succeeded=True)
        if failed:
            items += _acks(failed, succeeded=False)
    else:
        items = await in_turns(succeeded, _succeeded) + await in_turns(failed, _failed)
    return AckBatch(request.queueName, items, per_item_errors)


async def dequeue_command(request: received.PinLaterDequeueRequest) -> DequeueCommand:
    """A dequeue with the acks that ride on it."""
    riding = request.jobAckRequest
    return DequeueCommand(
        request.queueName,
        request.limit,
        None if riding is None else await ack_batch(riding, per_item_errors=bool(riding.perItemErrors)),
        request.dryRun,
        request.coverage,
        request.waitMillis or 0,
    )


async def checkpoints(request: received.PinLaterCheckpointJobsRequest) -> list[Checkpoint]:
    """Checkpoints, in order."""
    return await in_turns(request.requests, _checkpoints)


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


async def claims(request: received.ClaimsRequest | received.ReleaseRequest) -> list[Claim]:
    """Claims of a heartbeat or a release, in order."""
    return await in_turns(request.claims, _claims)


def _claims(claims: Sequence[received.ClaimRef]) -> list[Claim]:
    return [Claim(claim.jobDescriptor, claim.claimToken) for claim in claims]


def count_filter(request: received.PinLaterGetJobCountRequest) -> JobFilter:
    """Which jobs to count."""
    state = _state(request.jobState)
    return JobFilter(request.queueName, state, request.priority, request.countFutureJobs, request.bodyRegexToMatch)


def scan_command(request: received.PinLaterScanJobsRequest) -> ScanCommand:
    """Which jobs to show."""
    state = _state(request.jobState)
    jobs = JobFilter(request.queueName, state, request.priority, request.scanFutureJobs, request.bodyRegexToMatch)
    paged, bodies = bool(request.paged), bool(request.includeBody)
    return ScanCommand(jobs, request.limit, request.continuation, paged, bodies, request.shard or "")


def delete_filter(request: received.PinLaterDeleteJobsRequest) -> JobFilter:
    """Which jobs to delete."""
    return JobFilter(request.queueName, _state(request.jobState), request.priority, False, request.bodyRegexToMatch)


def audit_filter(request: received.AuditRequest) -> AuditFilter:
    """Which entries of the audit are wanted."""
    return AuditFilter(
        request.queueName or "",
        request.who or "",
        request.operation or "",
        request.sinceTimestampMillis,
        request.untilTimestampMillis,
        AuditFilter().limit if request.limit is None else request.limit,
        request.continuation or "",
    )
