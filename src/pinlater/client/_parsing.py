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


def ack_result(outcome: types.AckResult) -> values.AckResult:
    """What became of one job."""
    return values.AckResult(
        outcome.descriptor,
        Outcome(outcome.outcome),
        outcome.holder or "",
        outcome.held_since_ms,
        outcome.claim_deadline_ms,
        _error_of(outcome) if outcome.outcome == Outcome.ERROR else None,
    )


def _error_of(outcome: types.AckResult) -> PinLaterError:
    detail = outcome.error_detail or ""
    message = f"{outcome.descriptor}: {detail or 'the server could not carry it out'}"
    code = ErrorCode.UNKNOWN if outcome.error_code is None else outcome.error_code
    return error_for(code, message, detail, outcome.retryable, outcome.retry_after_ms)


def ack_results(outcomes: Sequence[types.AckResult] | None) -> list[values.AckResult]:
    """What became of each job."""
    return [ack_result(outcome) for outcome in outcomes or ()]


def moved_jobs(outcomes: Sequence[types.MovedJob]) -> list[values.MovedJob]:
    """What became of each job that was to get another priority."""
    return [
        values.MovedJob(
            outcome.descriptor,
            Outcome(outcome.outcome),
            outcome.moved_to or "",
            outcome.holder or "",
            outcome.held_since_ms,
        )
        for outcome in outcomes
    ]


def enqueued(response: types.Enqueued) -> values.Enqueued:
    """The descriptors of an enqueue."""
    return values.Enqueued(response.descriptors, tuple(response.existing or ()))


def dequeued(queue: str, response: types.DequeueResponse) -> values.Dequeued:
    """The jobs of a dequeue, in the order to run them: the server's, or, from an original one, by priority and id."""
    jobs = response.jobs or {}
    metadata = response.metadata or {}
    order = response.order or sorted(jobs, key=_priority_and_id)
    results = ack_results(response.ack_outcomes) if response.ack_outcomes else ()
    return values.Dequeued(
        [_claimed(queue, name, jobs[name], metadata.get(name)) for name in order if name in jobs], results
    )


def _priority_and_id(descriptor: str) -> tuple[int, int]:
    try:
        parsed = parse_descriptor(descriptor)
    except DescriptorInvalid:
        return (0, 0)
    return (parsed.priority, parsed.local_id)


def _claimed(queue: str, descriptor: str, body: bytes, meta: types.DequeueMetadata | None) -> values.ClaimedJob:
    if meta is None:
        return values.ClaimedJob(descriptor, queue, body)
    return values.ClaimedJob(
        descriptor,
        queue,
        body,
        meta.token or "",
        meta.attempt or 0,
        meta.attempts_allowed or 0,
        meta.attempts_remaining or 0,
        meta.headers or {},
        meta.created_at_ms,
        meta.claim_deadline_ms,
        bool(meta.body_masked),
    )


def job_info(info: types.JobInfo) -> values.JobInfo:
    """All that a server tells of a job."""
    return values.JobInfo(
        descriptor=info.descriptor,
        state=JobState(info.state),
        attempts_allowed=info.attempts_allowed,
        attempts_remaining=info.attempts_remaining,
        custom_status=info.custom_status,
        created_at_ms=info.created_at_ms,
        run_after_ms=info.run_after_ms,
        updated_at_ms=info.updated_at_ms,
        claim_descriptor=info.claim_descriptor,
        body=info.body,
        headers=info.headers or {},
        unique_key=info.unique_key,
        claim_deadline_ms=info.claim_deadline_ms,
        error_type=info.error_type or "",
        error_text=info.error_text or "",
        attempts=tuple(_attempt(attempt) for attempt in info.attempts or ()),
        finished_at_ms=info.finished_at_ms,
        expires_at_ms=info.expires_at_ms,
        progress=info.progress or "",
        body_masked=bool(info.body_masked),
        failure_group=info.failure_group or "",
        ordering_key=info.ordering_key,
    )


def _attempt(attempt: types.Attempt) -> Attempt:
    return Attempt(
        attempt.number,
        attempt.claimed_by or "",
        attempt.claimed_at_ms or 0,
        attempt.ended_at_ms or 0,
        attempt.outcome or "",
        attempt.error_type or "",
        attempt.error_text or "",
    )


def scanned(response: types.Scanned, *, shard: str | None, chosen: values.JobFilter) -> values.Scanned:
    """A page of a scan. Raises `UnknownMethod` if the server has not read the shard or the filter of the request."""
    _check_filtered(response, chosen)
    if shard is not None and any(
        parse_descriptor(info.descriptor).shard not in (shard, shard.removeprefix("s")) for info in response.jobs
    ):
        raise UnknownMethod("The server is older than scans of one shard, and answers the jobs of all shards")
    return values.Scanned(
        [job_info(info) for info in response.jobs],
        response.continuation or "-1",
        bool(response.incomplete),
    )


def key_holders(holders: types.KeyHolders) -> values.KeyHolders:
    """The jobs that hold a unique key."""
    return values.KeyHolders([job_info(info) for info in holders.jobs], bool(holders.incomplete))


def job_count(count: types.JobCount, *, chosen: values.JobFilter) -> values.JobCount:
    """How many jobs a filter finds. Raises `UnknownMethod` if the server has not read the filter."""
    _check_filtered(count, chosen)
    return values.JobCount(count.jobs, bool(count.incomplete), count.continuation or "-1")


def _check_filtered(answer: types.Scanned | types.JobCount, chosen: values.JobFilter) -> None:
    if chosen.compares and not answer.filtered:
        raise UnknownMethod("The server is older than filters of jobs by more than state, priority and body")


def queue_info(name: str, config: types.QueueConfig) -> values.QueueInfo:
    """A queue's settings."""
    return values.QueueInfo(name, config_of(config), bool(config.paused), bool(config.ordered))


def settings_in_force(settings: types.SettingsInForce) -> values.SettingsInForce:
    """What holds for a queue. An origin whose setting this client does not know is passed over."""
    origins = {field: settings.origins[name] for field, name in WIRE_NAMES.items() if name in settings.origins}
    return values.SettingsInForce(config_of(settings.values), origins)


def job_explanation(found: types.JobExplanation) -> values.JobExplanation:
    """The facts, and the job if it is known."""
    queue, shard, ahead = found.queue, found.shard, found.jobs_ahead
    return values.JobExplanation(
        found.descriptor,
        found.now_ms,
        None if found.job is None else job_info(found.job),
        values.ShardFacts(shard.name, shard.in_reach, shard.drains),
        values.QueueFacts(
            queue.paused,
            queue.paused_at_ms,
            queue.paused_by or "",
            queue.max_jobs_per_second,
            queue.next_slot_ms,
            queue.claimed_per_second,
            queue.in_progress,
            queue.waiting_dequeues,
            queue.last_dequeue_at_ms,
            queue.server_started_at_ms,
            queue.servers,
            partition_number=_partition_number(queue.partition_number),
        ),
        None if ahead is None else values.JobsAhead(ahead.jobs, ahead.at_least, ahead.incomplete),
        _behind(found),
    )


def _behind(found: types.JobExplanation) -> values.BehindKey | values.BehindFormer | None:
    if found.former_shard is not None:
        return values.BehindFormer(found.former_shard, found.ahead_on_former)
    return None if found.behind_job is None else values.BehindKey(found.behind_job, found.ahead_in_key or 0)


def bulk_run(run: types.BulkRun) -> values.BulkRun:
    """The run that a struct tells of."""
    from pinlater.wire.job_filters import order_of

    return values.BulkRun(
        run.id,
        order_of(run.order),
        run.who,
        run.started_ms,
        tuple(values.BulkState)[run.state],
        run.looked,
        run.changed,
        run.news_ms,
        run.ended_ms,
        run.detail or "",
        run.undo_until_ms,
        run.to_look_at,
        run.expected_changes,
        run.percent,
        run.left_ms,
    )


def bulk_runs(found: types.BulkRunsResponse) -> values.BulkRunList:
    """The runs that a struct tells of."""
    return values.BulkRunList(
        tuple(map(bulk_run, found.runs)), bool(found.incomplete), tuple(found.missing_shards or ())
    )


def audit_page(page: types.AuditPage) -> values.AuditPage:
    """Entries of the audit."""
    entries = [
        values.AuditEntry(
            each.id,
            each.at_ms,
            each.who,
            tuple(each.roles),
            each.source,
            each.address,
            each.operation,
            each.queue,
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
    return [values.WaitingDequeues(each.queue, each.source, each.number) for each in found]


def server_workers(found: Sequence[types.ServerWorkers]) -> list[values.ServerWorkers]:
    """What servers know of workers."""
    return [
        values.ServerWorkers(
            [_worker_status(status) for status in each.workers],
            waiting_dequeues(each.waiting),
            each.server_id,
            each.servers,
            each.now_ms,
            each.up_ms,
            each.forgotten,
        )
        for each in found
    ]


def _worker_status(status: types.WorkerStatus) -> values.WorkerStatus:
    return values.WorkerStatus(
        status.source,
        status.process or 0,
        status.heard_ms,
        [
            values.WorkerQueue(
                each.queue,
                each.asked_ms,
                each.handed_out,
                each.timed_out,
                each.late,
                each.timed_out_lately,
                each.late_lately,
                each.timed_out_times or 0,
            )
            for each in status.queues
        ],
        status.claim_ms,
        None if status.info is None else _worker_info(status.info),
        status.said_ms,
        [values.LostClaim(each.queue, each.descriptor, each.ended_ms) for each in status.lost],
    )


def _worker_info(info: types.WorkerInfo) -> values.WorkerInfo:
    return values.WorkerInfo(
        info.library or "",
        info.version or "",
        info.host or "",
        info.pid or 0,
        info.concurrency or 0,
        info.running or 0,
        info.started_at_ms or 0,
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
            heard_ms=server.heard_ms,
            usable=server.usable,
            unanswered_calls=server.unanswered_calls,
            items_sent=server.items_sent,
            items_taken=server.items_taken,
            facts=values.ServerFacts(
                server.version or "", server.started_at_ms, server.connections, server.loop_lag_ms
            ),
        )
        for server in status.servers
    ]
    shards = [
        values.ClusterShard(
            shard.name,
            shard.in_reach,
            shard.version,
            [addresses[index] if 0 <= index < len(addresses) else "" for index in shard.owners],
            shard.misplaced,
            None if shard.details is None else _shard_details(shard.details),
        )
        for shard in status.shards
    ]
    forwarded = [
        values.ForwardedCalls(each.kind, each.calls_sent, each.items_sent, each.calls_taken, each.items_taken)
        for each in status.forwarded
    ]
    fronts = tuple(
        values.FrontProcess(each.number, each.calls_taken, each.calls_under_way, each.waiting_calls, each.untaken_bytes)
        for each in status.front_processes or ()
    )
    partitions = {
        queue: values.PartitionNumber(each.number, each.automatic, each.since_ms)
        for queue, each in (status.partitions or {}).items()
    }
    return values.ClusterStatus(
        status.address,
        servers,
        shards,
        forwarded,
        status.moves,
        status.answers_lost,
        bool(status.incomplete),
        fronts,
        partitions,
        status.coordinator_trouble or "",
    )


def _shard_details(shard: types.ShardDetails) -> values.ShardDetails:
    jobs, size, drain, memory = shard.jobs, shard.size, shard.drain, shard.memory
    return values.ShardDetails(
        kind=shard.kind,
        address=shard.address or "",
        takes_enqueues=shard.takes_enqueues,
        since_ms=shard.since_ms,
        failure=shard.failure or "",
        failed_at_ms=shard.failed_at_ms,
        probing=shard.probing,
        stalled=shard.stalled,
        full=shard.full or "",
        jobs=None
        if jobs is None
        else values.ShardJobs(
            jobs.at_ms,
            jobs.due,
            jobs.scheduled,
            jobs.in_progress,
            jobs.succeeded,
            jobs.failed,
            jobs.oldest_due_at_ms,
        ),
        size=values.ShardSize(size.used_bytes, size.log_bytes, size.limit_bytes, size.at_ms, bool(size.late)),
        drain=None
        if drain is None
        else values.ShardDrain(
            drain.since_ms, drain.leaving, drain.live_at_first, drain.jobs_per_second, drain.empty_at_ms
        ),
        lanes=[
            values.ShardLane(
                lane.kind,
                lane.waiting,
                lane.running,
                lane.running_ms,
                lane.calls,
                lane.requests,
                lane.mean_ms,
                lane.slowest_ms,
            )
            for lane in shard.lanes
        ],
        failure_kind=shard.failure_kind or "",
        memory=None
        if memory is None
        else values.ShardMemory(memory.jobs, memory.bytes, memory.claims, memory.stale_claims),
    )


def failure_groups(found: types.FailuresResponse) -> values.FailureGroups:
    """Groups in their order."""
    return values.FailureGroups(tuple(map(_failure_group, found.groups)), bool(found.incomplete))


def _failure_group(group: types.FailureGroup) -> values.FailureGroup:
    return values.FailureGroup(
        group.queue,
        group.name,
        group.task,
        group.error_type,
        group.pattern,
        group.failures,
        group.first_ms,
        group.last_ms,
        group.sample_descriptor,
        tuple(group.hours),
        group.muted_until_ms or 0,
    )


def history(found: types.QueueHistoryResponse) -> values.Histories:
    """The points and marks of a range."""
    return values.Histories(
        found.step_s,
        found.from_ms,
        found.until_ms,
        tuple(
            values.QueueHistory(each.queue, tuple(_history_point(point) for point in each.points))
            for each in found.queues
        ),
        tuple(values.DeployMark(mark.at_ms, mark.text, mark.queue or "") for mark in found.marks),
        bool(found.incomplete),
    )


def _history_point(point: types.HistoryPoint) -> values.HistoryPoint:
    return values.HistoryPoint(
        at_ms=point.at_ms,
        enqueued=point.enqueued,
        claimed=point.claimed,
        succeeded=point.succeeded,
        failed=point.failed,
        timed_out=point.timed_out,
        expired=point.expired,
        due=point.due,
        scheduled=point.scheduled,
        running=point.in_progress,
        oldest_ms=point.oldest_waiting_ms,
        waits=_percentiles(point.waits),
        runs=_percentiles(point.runs),
    )


def _percentiles(found: types.Percentiles | None) -> values.SpanPercentiles | None:
    return None if found is None else values.SpanPercentiles(found.number, found.p50_ms, found.p90_ms, found.p99_ms)


def queue_stats(stats: types.QueueStats) -> values.QueueStats:
    """A queue's counts and rates."""
    rates = stats.rates
    return values.QueueStats(
        stats.queue,
        stats.paused,
        tuple(_counts(counts) for counts in stats.counts),
        stats.oldest_waiting_ms,
        values.Rates(rates.enqueued, rates.claimed, rates.succeeded, rates.failed, rates.retried),
        stats.waiting_dequeues,
        bool(stats.incomplete),
        stats.max_jobs_per_second,
        tuple(stats.partitions or ()),
        stats.strays or {},
        _partition_number(stats.partition_number),
    )


def _partition_number(found: types.PartitionNumber | None) -> values.PartitionNumber | None:
    return None if found is None else values.PartitionNumber(found.number, found.automatic, found.since_ms)


def _counts(counts: types.QueueCounts) -> values.PriorityCounts:
    return values.PriorityCounts(
        priority=counts.priority,
        pending=counts.pending,
        future=counts.future,
        in_progress=counts.in_progress,
        succeeded=counts.succeeded,
        failed=counts.failed,
        enqueued_total=counts.enqueued_total,
        claimed_total=counts.claimed_total,
        succeeded_total=counts.succeeded_total,
        failed_total=counts.failed_total,
        retried_total=counts.retried_total,
        oldest_due_at_ms=counts.oldest_due_at_ms,
        behind_key=counts.behind_key or 0,
    )


def server_info(info: types.ServerInfo) -> values.ServerInfo:
    """What a server says of itself."""
    return values.ServerInfo(
        version=info.version,
        features=tuple(info.features),
        store_kind=info.store_kind,
        now_ms=info.now_ms,
        started_at_ms=info.started_at_ms,
        priority_levels=info.priority_levels,
        max_body_bytes=info.max_body_bytes,
        max_frame_bytes=info.max_frame_bytes,
        max_jobs_per_request=info.max_jobs_per_request,
        max_descriptors_per_request=info.max_descriptors_per_request,
        max_wait_ms=info.max_wait_ms,
        access=info.access or "",
        caller=None if info.caller is None else _rights(info.caller),
    )


def _rights(caller: types.CallerRights) -> values.CallerRights:
    return values.CallerRights(
        caller.token_name or "",
        tuple(caller.roles),
        tuple(caller.queues),
        caller.expires_at_ms,
        bool(caller.speaks_for_others),
    )
