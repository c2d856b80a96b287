"""From the service's values to the wire's answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pinlater.domain.audit import AuditPage
from pinlater.domain.calls import (
    AckResult,
    CallerRights,
    ClusterStatus,
    Enqueued,
    JobCount,
    KeyHolders,
    MovedJob,
    QueueOwners,
    QueueStats,
    Scanned,
    ServerInfo,
    SettingsInForce,
    ShardDetails,
    WaitingDequeues,
)
from pinlater.domain.descriptor import descriptor_prefix
from pinlater.domain.errors import PinLaterError
from pinlater.domain.failures import FailureGroup, FailureGroups
from pinlater.domain.history import Histories, HistoryPoint
from pinlater.domain.job import Attempt, JobInfo, Outcome
from pinlater.domain.queue import Queue
from pinlater.domain.waiting import JobExplanation
from pinlater.domain.workers import ServerWorkers, WorkerStatus
from pinlater.server.operations.long_lists import JOBS_A_TURN, in_turns
from pinlater.server.operations.values import DequeueResult
from pinlater.server.thrift.failures import code_of
from pinlater.wire.generated import ttypes as types
from pinlater.wire.queue_settings import WIRE_NAMES, fields_of

I32_MAX = 2**31 - 1
_QUEUES_A_TURN = 250
_WORKERS_A_TURN = 250


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


def enqueued(value: Enqueued) -> types.PinLaterEnqueueResponse:
    """Descriptors in the order of the jobs."""
    return types.PinLaterEnqueueResponse(value.descriptors, value.existing or None)


def ack_outcomes(results: Sequence[AckResult]) -> list[types.AckOutcome]:
    """Outcomes, in order."""
    return [
        types.AckOutcome(descriptor, outcome, holder or None, held_since_ms, deadline_ms)
        if error is None
        else _failed(descriptor, outcome, error)
        for descriptor, outcome, holder, held_since_ms, deadline_ms, error in results
    ]


def moved_jobs(results: Sequence[MovedJob]) -> list[types.MovedJob]:
    """Outcomes of moves to another priority, in order."""
    return [
        types.MovedJob(descriptor, outcome, moved_to or None, holder or None, held_since_ms)
        for descriptor, outcome, moved_to, holder, held_since_ms in results
    ]


def _failed(descriptor: str, outcome: Outcome, error: PinLaterError) -> types.AckOutcome:
    """Without the error's message, which could be as long as all else in the answer."""
    return types.AckOutcome(
        descriptor,
        outcome,
        errorCode=int(code_of(error)),
        errorDetail=error.detail,
        retryable=error.retryable,
        retryAfterMillis=error.retry_after_ms,
    )


def _attempt(attempt: Attempt) -> types.Attempt:
    return types.Attempt(
        attempt.number,
        attempt.claimed_by,
        attempt.claimed_at_ms,
        attempt.ended_at_ms,
        attempt.outcome,
        attempt.error_type or None,
        attempt.error_text or None,
    )


def job_info(job: JobInfo) -> types.PinLaterJobInfo:
    """All that the wire shows of a job."""
    return types.PinLaterJobInfo(
        jobDescriptor=job.descriptor,
        jobState=job.state,
        attemptsAllowed=job.attempts_allowed,
        attemptsRemaining=job.attempts_remaining,
        customStatus=job.custom_status,
        createdAtTimestampMillis=job.created_at_ms,
        runAfterTimestampMillis=job.run_after_ms,
        updatedAtTimestampMillis=job.updated_at_ms,
        claimDescriptor=job.claim_descriptor,
        body=job.body,
        headers=job.headers or None,
        uniqueKey=job.unique_key,
        claimDeadlineMillis=job.claim_deadline_ms,
        lastErrorType=job.error_type or None,
        lastErrorText=job.error_text or None,
        attempts=[_attempt(attempt) for attempt in job.attempts] or None,
        finishedAtTimestampMillis=job.finished_at_ms,
        expiresAtMillis=job.expires_at_ms,
        progress=job.progress or None,
    )


def looked_up(jobs: Sequence[tuple[str, JobInfo]]) -> list[tuple[str, types.PinLaterJobInfo]]:
    """Jobs by descriptor."""
    return [(descriptor, job_info(job)) for descriptor, job in jobs]


def job_infos(jobs: Sequence[JobInfo]) -> list[types.PinLaterJobInfo]:
    """All that is known of these jobs."""
    return [job_info(job) for job in jobs]


def scanned(value: Scanned, jobs: list[types.PinLaterJobInfo]) -> types.PinLaterScanJobsResponse:
    """A page of a scan; `jobs`: those of `value`."""
    return types.PinLaterScanJobsResponse(jobs, value.continuation, value.incomplete or None)


def key_holders(value: KeyHolders, jobs: list[types.PinLaterJobInfo]) -> types.KeyHolders:
    """The jobs that hold a unique key; `jobs`: those of `value`."""
    return types.KeyHolders(jobs, value.incomplete or None)


def number(value: int) -> int:
    """A count, cut to what an i32 holds."""
    return min(value, I32_MAX)


def job_count(count: JobCount) -> types.JobCount:
    """How many jobs a filter finds."""
    return types.JobCount(count.jobs, count.incomplete or None)


def queue_config(queue: Queue) -> types.QueueConfig:
    """A queue's settings, and whether it is paused."""
    return types.QueueConfig(**fields_of(queue.config), paused=queue.paused)


def settings_in_force(settings: SettingsInForce) -> types.SettingsInForce:
    """What holds for a queue, and where it comes from."""
    origins = {WIRE_NAMES[field]: origin for field, origin in settings.origins.items()}
    return types.SettingsInForce(types.QueueConfig(**fields_of(settings.values)), origins)


def audit_page(page: AuditPage) -> types.AuditPage:
    """Entries of the audit."""
    entries = [types.AuditEntry(*entry._replace(roles=list(entry.roles))) for entry in page.entries]
    return types.AuditPage(entries, page.continuation or None, page.incomplete)


def waiting_dequeues(found: Sequence[WaitingDequeues]) -> list[types.WaitingDequeues]:
    """The dequeues that wait, by queue and source."""
    return [types.WaitingDequeues(*each) for each in found]


async def workers(found: Sequence[ServerWorkers]) -> list[types.ServerWorkers]:
    """What servers know of workers."""
    return [
        types.ServerWorkers(
            await in_turns(each.workers, _worker_statuses, _WORKERS_A_TURN),
            await in_turns(each.waiting, waiting_dequeues),
            each.server_id,
            number(each.servers),
            each.now_ms,
            each.up_ms,
            each.forgotten,
        )
        for each in found
    ]


def _worker_statuses(found: Sequence[WorkerStatus]) -> list[types.WorkerStatus]:
    return [
        types.WorkerStatus(
            status.source,
            status.process or None,
            status.heard_ms,
            [types.WorkerQueue(*queue) for queue in status.queues],
            status.claim_ms,
            None if status.info is None else types.WorkerInfo(*status.info),
            status.said_ms,
            [types.LostClaim(*claim) for claim in status.lost],
        )
        for status in found
    ]


def job_explanation(explained: JobExplanation) -> types.JobExplanation:
    """What is known of a job that waits, of its queue and its shard."""
    queue, ahead = explained.queue, explained.ahead
    return types.JobExplanation(
        jobDescriptor=explained.descriptor,
        job=None if explained.job is None else job_info(explained.job),
        nowMillis=explained.now_ms,
        shard=types.ShardFacts(*explained.shard),
        queue=types.QueueFacts(
            paused=queue.paused,
            pausedAtMillis=queue.paused_at_ms,
            pausedBy=queue.paused_by or None,
            maxJobsPerSecond=queue.max_jobs_per_second,
            nextSlotMillis=queue.next_slot_ms,
            claimedPerSecond=queue.claimed_per_second,
            inProgress=queue.running,
            waitingDequeues=number(queue.waiting_dequeues),
            lastDequeueAtMillis=queue.last_dequeue_at_ms,
            serverStartedAtMillis=queue.server_started_at_ms,
            servers=number(queue.servers),
        ),
        jobsAhead=None if ahead is None else types.JobsAhead(*ahead),
    )


def cluster_status(status: ClusterStatus) -> types.ClusterStatus:
    """Servers and shards, with owners as indices."""
    places = {server.address: index for index, server in enumerate(status.servers) if server.address}
    servers = [
        types.ClusterServer(
            server.address,
            server.name or None,
            server.slots,
            server.answers,
            server.heard,
            server.heard_ms,
            server.usable,
            number(server.unanswered_calls),
            server.items_sent,
            server.items_taken,
            server.facts.version or None,
            *server.facts[1:],
        )
        for server in status.servers
    ]
    shards = [
        types.ClusterShard(
            shard.name,
            shard.in_reach,
            shard.version,
            [places.get(owner, -1) for owner in shard.owners],
            list(shard.misplaced),
            None if shard.details is None else _shard_details(shard.details),
        )
        for shard in status.shards
    ]
    return types.ClusterStatus(
        status.address,
        servers,
        shards,
        [types.ForwardedCalls(*each) for each in status.forwarded],
        status.moves,
        status.answers_lost,
        status.incomplete or None,
        [types.FrontProcess(*each) for each in status.front_processes] or None,
    )


def _shard_details(shard: ShardDetails) -> types.ShardDetails:
    size, drain = shard.size, shard.drain
    return types.ShardDetails(
        kind=shard.kind,
        address=shard.address or None,
        takesEnqueues=shard.takes_enqueues,
        sinceMillis=shard.since_ms,
        failure=shard.failure or None,
        failedAtMillis=shard.failed_at_ms,
        probing=shard.probing,
        stalled=shard.stalled,
        full=shard.full or None,
        jobs=None if shard.jobs is None else types.ShardJobs(*shard.jobs),
        size=types.ShardSize(*size[:-1], size.late or None),
        drain=None if drain is None else types.ShardDrain(*drain),
        lanes=[
            types.ShardLane(lane.kind, number(lane.waiting), number(lane.running), *lane[3:]) for lane in shard.lanes
        ],
        failureKind=shard.failure_kind or None,
        memory=None if shard.memory is None else types.ShardMemory(*shard.memory),
    )


def queue_owners(owners: QueueOwners) -> types.QueueOwners:
    """The servers that own queues, by slice."""
    return types.QueueOwners(
        [types.OwningServer(server.id, server.address or None) for server in owners.servers],
        [types.OwnedShard(shard.name, shard.takes_enqueues, list(shard.owners)) for shard in owners.shards],
    )


async def all_queue_stats(found: Sequence[QueueStats]) -> list[types.QueueStats]:
    """Of thousands of queues it takes long: in pieces between which other calls get their turn."""
    shown: list[types.QueueStats] = []
    for start in range(0, len(found), _QUEUES_A_TURN):
        shown += [queue_stats(stats) for stats in found[start : start + _QUEUES_A_TURN]]
        await asyncio.sleep(0)
    return shown


def queue_stats(stats: QueueStats) -> types.QueueStats:
    """What an operator asks of a queue."""
    counts = [
        types.QueueCounts(
            priority=each.priority,
            pending=each.pending,
            future=each.future,
            inProgress=each.in_progress,
            succeeded=each.succeeded,
            failed=each.failed,
            enqueuedTotal=each.enqueued_total,
            claimedTotal=each.claimed_total,
            succeededTotal=each.succeeded_total,
            failedTotal=each.failed_total,
            retriedTotal=each.retried_total,
            oldestDueAtMillis=each.oldest_due_at_ms,
        )
        for each in stats.counts
    ]
    rates = types.QueueRates(*stats.rates)
    return types.QueueStats(
        stats.queue,
        stats.paused,
        counts,
        stats.oldest_waiting_ms,
        rates,
        number(stats.waiting_dequeues),
        stats.incomplete or None,
        stats.max_jobs_per_second,
    )


async def queue_history(history: Histories) -> types.QueueHistoryResponse:
    """Points and marks, in pieces between which other calls get their turn."""
    queues: list[types.QueueHistory] = []
    for each in history.queues:
        points = await in_turns(each.points, lambda some: map(history_point, some), JOBS_A_TURN)
        queues.append(types.QueueHistory(each.queue, points))
    return types.QueueHistoryResponse(
        queues,
        [types.DeployMark(mark.at_ms, mark.text, mark.queue or None) for mark in history.marks],
        history.step_s,
        history.from_ms,
        history.until_ms,
        history.incomplete or None,
    )


async def failure_groups(found: FailureGroups) -> types.FailuresResponse:
    """Groups, in pieces between which other calls get their turn."""
    groups = await in_turns(found.groups, lambda some: map(failure_group, some), JOBS_A_TURN)
    return types.FailuresResponse(groups, found.incomplete or None)


def failure_group(group: FailureGroup) -> types.FailureGroup:
    """A `FailureGroup` as its Thrift struct, which has the same fields in the same order."""
    return types.FailureGroup(*group[:-1], group.muted_until_ms or None)


def history_point(point: HistoryPoint) -> types.HistoryPoint:
    """A `HistoryPoint` as its Thrift struct."""
    return types.HistoryPoint(
        point.at_ms,
        point.enqueued,
        point.claimed,
        point.succeeded,
        point.failed,
        point.timed_out,
        point.expired,
        point.due,
        point.scheduled,
        point.running,
        point.oldest_ms,
        None if point.waits is None else types.Percentiles(*point.waits),
        None if point.runs is None else types.Percentiles(*point.runs),
    )


def server_info(info: ServerInfo) -> types.ServerInfo:
    """A `ServerInfo` as its Thrift struct."""
    return types.ServerInfo(
        version=info.version,
        features=list(info.features),
        storeKind=info.store_kind,
        nowMillis=info.now_ms,
        startedAtMillis=info.started_at_ms,
        priorityLevels=number(info.priority_levels),
        maxBodyBytes=number(info.max_body_bytes),
        maxFrameBytes=number(info.max_frame_bytes),
        maxJobsPerRequest=number(info.max_jobs_per_request),
        maxDescriptorsPerRequest=number(info.max_descriptors_per_request),
        maxWaitMillis=number(info.max_wait_ms),
        access=info.access or None,
        serverId=info.server_id or None,
        caller=None if info.caller is None else caller_rights(info.caller),
    )


def caller_rights(caller: CallerRights) -> types.CallerRights:
    """`CallerRights` as its Thrift struct."""
    return types.CallerRights(
        caller.token_name or None,
        list(caller.roles),
        list(caller.queues),
        caller.expires_at_ms,
        caller.speaks_for_others or None,
    )
