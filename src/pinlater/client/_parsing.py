"""From the wire's types to the client's values. Pure; lenient if an original server leaves things out."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.client import values
from pinlater.client._thrift import types
from pinlater.client.errors import PinLaterError, UnknownMethod, error_for
from pinlater.domain.descriptor import parse_descriptor
from pinlater.domain.errors import DescriptorInvalid, ErrorCode
from pinlater.domain.job import Attempt, JobState, Outcome
from pinlater.wire.queue_settings import WIRE_NAMES, config_of


def ack_result(outcome: types.AckOutcome) -> values.AckResult:
    """What became of one job."""
    return values.AckResult(
        outcome.descriptor,
        Outcome(outcome.outcome),
        outcome.holder or "",
        outcome.heldSinceMillis,
        outcome.claimDeadlineMillis,
        _error_of(outcome) if outcome.outcome == Outcome.ERROR else None,
    )


def _error_of(outcome: types.AckOutcome) -> PinLaterError:
    detail = outcome.errorDetail or ""
    message = f"{outcome.descriptor}: {detail or 'the server could not carry it out'}"
    code = ErrorCode.UNKNOWN if outcome.errorCode is None else outcome.errorCode
    return error_for(code, message, detail, outcome.retryable, outcome.retryAfterMillis)


def ack_results(outcomes: Sequence[types.AckOutcome] | None) -> list[values.AckResult]:
    """What became of each job."""
    return [ack_result(outcome) for outcome in outcomes or ()]


def moved_jobs(outcomes: Sequence[types.MovedJob]) -> list[values.MovedJob]:
    """What became of each job that was to get another priority."""
    return [
        values.MovedJob(
            outcome.descriptor,
            Outcome(outcome.outcome),
            outcome.movedTo or "",
            outcome.holder or "",
            outcome.heldSinceMillis,
        )
        for outcome in outcomes
    ]


def enqueued(response: types.PinLaterEnqueueResponse) -> values.Enqueued:
    """The descriptors of an enqueue."""
    return values.Enqueued(response.jobDescriptors, tuple(response.existing or ()))


def dequeued(queue: str, response: types.PinLaterDequeueResponse) -> values.Dequeued:
    """The jobs of a dequeue, in the order to run them: the server's, or, from an original one, by priority and id."""
    jobs = response.jobs or {}
    metadata = response.jobMetadata or {}
    order = response.jobOrder or sorted(jobs, key=_priority_and_id)
    results = ack_results(response.ackOutcomes) if response.ackOutcomes else ()
    return values.Dequeued(
        [_claimed(queue, name, jobs[name], metadata.get(name)) for name in order if name in jobs], results
    )


def _priority_and_id(descriptor: str) -> tuple[int, int]:
    try:
        parsed = parse_descriptor(descriptor)
    except DescriptorInvalid:
        return (0, 0)
    return (parsed.priority, parsed.local_id)


def _claimed(queue: str, descriptor: str, body: bytes, meta: types.PinLaterDequeueMetadata | None) -> values.ClaimedJob:
    if meta is None:
        return values.ClaimedJob(descriptor, queue, body)
    return values.ClaimedJob(
        descriptor,
        queue,
        body,
        meta.claimToken or "",
        meta.attempt or 0,
        meta.attemptsAllowed or 0,
        meta.attemptsRemaining or 0,
        meta.headers or {},
        meta.createdAtTimestampMillis,
        meta.claimDeadlineMillis,
        bool(meta.bodyMasked),
    )


def job_info(info: types.PinLaterJobInfo) -> values.JobInfo:
    """All that a server tells of a job."""
    return values.JobInfo(
        descriptor=info.jobDescriptor,
        state=JobState(info.jobState),
        attempts_allowed=info.attemptsAllowed,
        attempts_remaining=info.attemptsRemaining,
        custom_status=info.customStatus,
        created_at_ms=info.createdAtTimestampMillis,
        run_after_ms=info.runAfterTimestampMillis,
        updated_at_ms=info.updatedAtTimestampMillis,
        claim_descriptor=info.claimDescriptor,
        body=info.body,
        headers=info.headers or {},
        unique_key=info.uniqueKey,
        claim_deadline_ms=info.claimDeadlineMillis,
        error_type=info.lastErrorType or "",
        error_text=info.lastErrorText or "",
        attempts=tuple(_attempt(attempt) for attempt in info.attempts or ()),
        finished_at_ms=info.finishedAtTimestampMillis,
        expires_at_ms=info.expiresAtMillis,
        progress=info.progress or "",
        body_masked=bool(info.bodyMasked),
        failure_group=info.failureGroup or "",
    )


def _attempt(attempt: types.Attempt) -> Attempt:
    return Attempt(
        attempt.number,
        attempt.claimedBy or "",
        attempt.claimedAtMillis or 0,
        attempt.endedAtMillis or 0,
        attempt.outcome or "",
        attempt.errorType or "",
        attempt.errorText or "",
    )


def scanned(response: types.PinLaterScanJobsResponse, *, shard: str | None = None) -> values.Scanned:
    """A page of a scan. Raises `UnknownMethod` if only jobs of one shard were asked for, and the server has not read that."""
    if shard is not None and any(
        parse_descriptor(info.jobDescriptor).shard not in (shard, shard.removeprefix("s"))
        for info in response.scannedJobs
    ):
        raise UnknownMethod("The server is older than scans of one shard, and answers the jobs of all shards")
    return values.Scanned(
        [job_info(info) for info in response.scannedJobs],
        response.continuation or "-1",
        bool(response.incomplete),
    )


def key_holders(holders: types.KeyHolders) -> values.KeyHolders:
    """The jobs that hold a unique key."""
    return values.KeyHolders([job_info(info) for info in holders.jobs], bool(holders.incomplete))


def job_count(count: types.JobCount) -> values.JobCount:
    """How many jobs a filter finds."""
    return values.JobCount(count.jobs, bool(count.incomplete))


def queue_info(name: str, config: types.QueueConfig) -> values.QueueInfo:
    """A queue's settings."""
    return values.QueueInfo(name, config_of(config), bool(config.paused))


def settings_in_force(settings: types.SettingsInForce) -> values.SettingsInForce:
    """What holds for a queue. An origin whose setting this client does not know is passed over."""
    origins = {field: settings.origins[name] for field, name in WIRE_NAMES.items() if name in settings.origins}
    return values.SettingsInForce(config_of(settings.values), origins)


def job_explanation(found: types.JobExplanation) -> values.JobExplanation:
    """The facts, and the job if it is known."""
    queue, shard, ahead = found.queue, found.shard, found.jobsAhead
    return values.JobExplanation(
        found.jobDescriptor,
        found.nowMillis,
        None if found.job is None else job_info(found.job),
        values.ShardFacts(shard.name, shard.inReach, shard.drains),
        values.QueueFacts(
            queue.paused,
            queue.pausedAtMillis,
            queue.pausedBy or "",
            queue.maxJobsPerSecond,
            queue.nextSlotMillis,
            queue.claimedPerSecond,
            queue.inProgress,
            queue.waitingDequeues,
            queue.lastDequeueAtMillis,
            queue.serverStartedAtMillis,
            queue.servers,
        ),
        None if ahead is None else values.JobsAhead(ahead.jobs, ahead.atLeast, ahead.incomplete),
    )


def audit_page(page: types.AuditPage) -> values.AuditPage:
    """Entries of the audit."""
    entries = [
        values.AuditEntry(
            each.id,
            each.atMillis,
            each.who,
            tuple(each.roles),
            each.source,
            each.address,
            each.operation,
            each.queueName,
            each.arguments,
            each.jobs,
            each.outcome,
            each.detail,
            each.server,
        )
        for each in page.entries
    ]
    return values.AuditPage(entries, page.continuation or "", bool(page.incomplete))


def waiting_dequeues(found: Sequence[types.WaitingDequeues]) -> list[values.WaitingDequeues]:
    """The dequeues that wait, by queue and source."""
    return [values.WaitingDequeues(each.queueName, each.source, each.number) for each in found]


def server_workers(found: Sequence[types.ServerWorkers]) -> list[values.ServerWorkers]:
    """What servers know of workers."""
    return [
        values.ServerWorkers(
            [_worker_status(status) for status in each.workers],
            waiting_dequeues(each.waiting),
            each.serverId,
            each.servers,
            each.nowMillis,
            each.upMillis,
            each.forgotten,
        )
        for each in found
    ]


def _worker_status(status: types.WorkerStatus) -> values.WorkerStatus:
    return values.WorkerStatus(
        status.source,
        status.process or 0,
        status.heardMillisAgo,
        [
            values.WorkerQueue(
                each.queueName,
                each.askedMillisAgo,
                each.handedOut,
                each.timedOut,
                each.late,
                each.timedOutLately,
                each.lateLately,
                each.timedOutTimes or 0,
            )
            for each in status.queues
        ],
        status.claimMillis,
        None if status.info is None else _worker_info(status.info),
        status.saidMillisAgo,
        [values.LostClaim(each.queueName, each.jobDescriptor, each.endedMillisAgo) for each in status.lost],
    )


def _worker_info(info: types.WorkerInfo) -> values.WorkerInfo:
    return values.WorkerInfo(
        info.library or "",
        info.version or "",
        info.host or "",
        info.pid or 0,
        info.concurrency or 0,
        info.running or 0,
        info.startedAtMillis or 0,
    )


def cluster_status(status: types.ClusterStatus) -> values.ClusterStatus:
    """Servers and shards, with the addresses of owners."""
    addresses = [server.address for server in status.servers]
    servers = [
        values.ClusterServer(
            address=server.address,
            name=server.name or "",
            slots=server.slots,
            answers=server.answers,
            heard=server.heard,
            heard_ms=server.heardMillisAgo,
            usable=server.usable,
            unanswered_calls=server.unansweredCalls,
            items_sent=server.itemsSent,
            items_taken=server.itemsTaken,
            facts=values.ServerFacts(
                server.version or "", server.startedAtMillis, server.connections, server.loopLagMillis
            ),
        )
        for server in status.servers
    ]
    shards = [
        values.ClusterShard(
            shard.name,
            shard.inReach,
            shard.ownersVersion,
            [addresses[index] if 0 <= index < len(addresses) else "" for index in shard.owners],
            shard.misplacedSlices,
            None if shard.details is None else _shard_details(shard.details),
        )
        for shard in status.shards
    ]
    forwarded = [
        values.ForwardedCalls(each.kind, each.callsSent, each.itemsSent, each.callsTaken, each.itemsTaken)
        for each in status.forwarded
    ]
    fronts = tuple(
        values.FrontProcess(each.number, each.callsTaken, each.callsUnderWay, each.waitingCalls, each.untakenBytes)
        for each in status.frontProcesses or ()
    )
    return values.ClusterStatus(
        status.address, servers, shards, forwarded, status.moves, status.answersLost, bool(status.incomplete), fronts
    )


def _shard_details(shard: types.ShardDetails) -> values.ShardDetails:
    jobs, size, drain, memory = shard.jobs, shard.size, shard.drain, shard.memory
    return values.ShardDetails(
        kind=shard.kind,
        address=shard.address or "",
        takes_enqueues=shard.takesEnqueues,
        since_ms=shard.sinceMillis,
        failure=shard.failure or "",
        failed_at_ms=shard.failedAtMillis,
        probing=shard.probing,
        stalled=shard.stalled,
        full=shard.full or "",
        jobs=None
        if jobs is None
        else values.ShardJobs(
            jobs.countedAtMillis,
            jobs.due,
            jobs.scheduled,
            jobs.inProgress,
            jobs.succeeded,
            jobs.failed,
            jobs.oldestDueAtMillis,
        ),
        size=values.ShardSize(size.usedBytes, size.logBytes, size.limitBytes, size.measuredAtMillis, bool(size.late)),
        drain=None
        if drain is None
        else values.ShardDrain(
            drain.sinceMillis, drain.leaving, drain.liveAtFirst, drain.jobsPerSecond, drain.emptyAtMillis
        ),
        lanes=[
            values.ShardLane(
                lane.kind,
                lane.waiting,
                lane.running,
                lane.runningMillis,
                lane.calls,
                lane.requests,
                lane.meanMillis,
                lane.slowestMillis,
            )
            for lane in shard.lanes
        ],
        failure_kind=shard.failureKind or "",
        memory=None
        if memory is None
        else values.ShardMemory(memory.jobs, memory.bytes, memory.claims, memory.staleClaims),
    )


def failure_groups(found: types.FailuresResponse) -> values.FailureGroups:
    """Groups in their order."""
    return values.FailureGroups(tuple(map(_failure_group, found.groups)), bool(found.incomplete))


def _failure_group(group: types.FailureGroup) -> values.FailureGroup:
    return values.FailureGroup(
        group.queueName,
        group.name,
        group.task,
        group.errorType,
        group.pattern,
        group.failures,
        group.firstMillis,
        group.lastMillis,
        group.sampleDescriptor,
        tuple(group.hours),
        group.mutedUntilMillis or 0,
    )


def history(found: types.QueueHistoryResponse) -> values.Histories:
    """The points and marks of a range."""
    return values.Histories(
        found.stepSeconds,
        found.fromMillis,
        found.untilMillis,
        tuple(
            values.QueueHistory(each.queueName, tuple(_history_point(point) for point in each.points))
            for each in found.queues
        ),
        tuple(values.DeployMark(mark.atMillis, mark.text, mark.queueName or "") for mark in found.marks),
        bool(found.incomplete),
    )


def _history_point(point: types.HistoryPoint) -> values.HistoryPoint:
    return values.HistoryPoint(
        at_ms=point.atMillis,
        enqueued=point.enqueued,
        claimed=point.claimed,
        succeeded=point.succeeded,
        failed=point.failed,
        timed_out=point.timedOut,
        expired=point.expired,
        due=point.due,
        scheduled=point.scheduled,
        running=point.inProgress,
        oldest_ms=point.oldestWaitingMillis,
        waits=_percentiles(point.waits),
        runs=_percentiles(point.runs),
    )


def _percentiles(found: types.Percentiles | None) -> values.SpanPercentiles | None:
    return (
        None
        if found is None
        else values.SpanPercentiles(found.number, found.p50Millis, found.p90Millis, found.p99Millis)
    )


def queue_stats(stats: types.QueueStats) -> values.QueueStats:
    """A queue's counts and rates."""
    rates = stats.rates
    return values.QueueStats(
        stats.queueName,
        stats.paused,
        tuple(_counts(counts) for counts in stats.counts),
        stats.oldestWaitingMillis,
        values.Rates(rates.enqueued, rates.claimed, rates.succeeded, rates.failed, rates.retried),
        stats.waitingDequeues,
        bool(stats.incomplete),
        stats.maxJobsPerSecond,
    )


def _counts(counts: types.QueueCounts) -> values.PriorityCounts:
    return values.PriorityCounts(
        priority=counts.priority,
        pending=counts.pending,
        future=counts.future,
        in_progress=counts.inProgress,
        succeeded=counts.succeeded,
        failed=counts.failed,
        enqueued_total=counts.enqueuedTotal,
        claimed_total=counts.claimedTotal,
        succeeded_total=counts.succeededTotal,
        failed_total=counts.failedTotal,
        retried_total=counts.retriedTotal,
        oldest_due_at_ms=counts.oldestDueAtMillis,
    )


def server_info(info: types.ServerInfo) -> values.ServerInfo:
    """What a server says of itself."""
    return values.ServerInfo(
        version=info.version,
        features=tuple(info.features),
        store_kind=info.storeKind,
        now_ms=info.nowMillis,
        started_at_ms=info.startedAtMillis,
        priority_levels=info.priorityLevels,
        max_body_bytes=info.maxBodyBytes,
        max_frame_bytes=info.maxFrameBytes,
        max_jobs_per_request=info.maxJobsPerRequest,
        max_descriptors_per_request=info.maxDescriptorsPerRequest,
        max_wait_ms=info.maxWaitMillis,
        access=info.access or "",
        caller=None if info.caller is None else _rights(info.caller),
    )


def _rights(caller: types.CallerRights) -> values.CallerRights:
    return values.CallerRights(
        caller.tokenName or "",
        tuple(caller.roles),
        tuple(caller.queues),
        caller.expiresAtMillis,
        bool(caller.speaksForOthers),
    )
