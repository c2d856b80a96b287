"""The calls that look at jobs or change them by a filter: what is sent, and what is made of the answer.

Pure: every form of the client shares it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from pinlater.client import values
from pinlater.client._client_call import ClientCall, same, value_of
from pinlater.client._job_calls import descriptors_of, state_of, time_ms
from pinlater.client._retries import Resend
from pinlater.client._service_calls import partition_number
from pinlater.client._thrift import types
from pinlater.client.errors import UnknownMethod
from pinlater.domain.descriptor import parse_descriptor
from pinlater.domain.job import Attempt, JobState


def lookup(descriptors: Sequence[str], *, bodies: bool) -> ClientCall[dict[str, values.JobInfo]]:
    request = types.LookupRequest(descriptors=descriptors_of(descriptors), bodies=bodies)

    def read(answer: Mapping[str, types.JobInfo]) -> dict[str, values.JobInfo]:
        return {name: job_info(answer[name]) for name in dict.fromkeys(descriptors) if name in answer}

    return ClientCall("lookupJobs", (request,), read, Resend.SAFE)


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


def find_unique_key(key: str, queues: Sequence[str]) -> ClientCall[values.KeyHolders]:
    return ClientCall("findUniqueKey", (types.UniqueKeyRequest(list(queues), key),), _key_holders, Resend.SAFE)


def _key_holders(holders: types.KeyHolders) -> values.KeyHolders:
    """The jobs that hold a unique key."""
    return values.KeyHolders([job_info(info) for info in holders.jobs], bool(holders.incomplete))


def count(queue: str, chosen: values.JobFilter, *, future: bool) -> ClientCall[int]:
    return ClientCall("getJobCount", (_count_request(queue, chosen, future),), same, Resend.SAFE)


def count_jobs(
    queue: str, chosen: values.JobFilter, *, future: bool, continuation: str | None = None
) -> ClientCall[values.JobCount]:
    """`continuation`: where a count in parts begins; None for one that ends with the call or fails."""
    request = _count_request(queue, chosen, future)
    if continuation is not None:
        request.filter, request.continuation = _filter(chosen), continuation
    return ClientCall("countJobs", (request,), partial(_job_count, chosen=chosen), Resend.SAFE)


def _count_request(queue: str, chosen: values.JobFilter, future: bool) -> types.CountRequest:
    return types.CountRequest(
        queue=queue, state=state_of(chosen.state), priority=chosen.priority, future=future, regex=chosen.regex
    )


def _job_count(count: types.JobCount, *, chosen: values.JobFilter) -> values.JobCount:
    """How many jobs a filter finds. Raises `UnknownMethod` if the server has not read the filter."""
    _check_filtered(count, chosen)
    return values.JobCount(count.jobs, bool(count.incomplete), count.continuation or "-1")


def scan(
    queue: str,
    chosen: values.JobFilter,
    *,
    future: bool,
    limit: int,
    continuation: str,
    paged: bool,
    bodies: bool,
    shard: str | None,
    in_parts: bool = False,
) -> ClientCall[values.Scanned]:
    """`in_parts`: the server may compare a part of the jobs only."""
    request = types.ScanRequest(
        queue=queue,
        state=state_of(chosen.state),
        priority=chosen.priority,
        future=future,
        continuation=continuation,
        limit=limit,
        regex=chosen.regex,
        paged=True if paged else None,
        bodies=True if bodies else None,
        shard=shard,
        filter=_filter(chosen) if in_parts else None,
    )
    return ClientCall("scanJobs", (request,), partial(_scanned, shard=shard, chosen=chosen), Resend.SAFE)


def _scanned(response: types.Scanned, *, shard: str | None, chosen: values.JobFilter) -> values.Scanned:
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


def _check_filtered(answer: types.Scanned | types.JobCount, chosen: values.JobFilter) -> None:
    if chosen.compares and not answer.filtered:
        raise UnknownMethod("The server is older than filters of jobs by more than state, priority and body")


def _filter(chosen: values.JobFilter) -> types.JobFilter | None:
    """The filter for servers; None if the fields of an original request say it, which servers from before filters read, too."""
    if chosen.is_plain:
        return None
    from pinlater.wire.job_filters import wire_filter

    return wire_filter(chosen)


def explain_job(queue: str, descriptor: str) -> ClientCall[values.JobExplanation]:
    return ClientCall("explainJob", (queue, descriptor), _job_explanation, Resend.SAFE)


def _job_explanation(found: types.JobExplanation) -> values.JobExplanation:
    """The facts, and the job if it is known."""
    queue, ahead = found.queue, found.jobs_ahead
    return value_of(
        values.JobExplanation,
        found,
        job=None if found.job is None else job_info(found.job),
        shard=value_of(values.ShardFacts, found.shard),
        queue=value_of(
            values.QueueFacts,
            queue,
            running=queue.in_progress,
            servers_asked=1,
            partition_number=partition_number(queue.partition_number),
        ),
        ahead=None if ahead is None else value_of(values.JobsAhead, ahead),
        behind=_behind(found),
    )


def _behind(found: types.JobExplanation) -> values.BehindKey | values.BehindFormer | None:
    if found.former_shard is not None:
        return values.BehindFormer(found.former_shard, found.ahead_on_former)
    return None if found.behind_job is None else values.BehindKey(found.behind_job, found.ahead_in_key or 0)


def retry_failed(
    queue: str, *, priority: int, attempts: int, run_after_ms: int | None, limit: int, cancelled: bool
) -> ClientCall[int]:
    request = types.RetryRequest(
        queue=queue,
        priority=priority,
        attempts=attempts,
        run_after_ms=time_ms(run_after_ms, "retry_failed", "run_after_ms"),
        limit=limit,
        skip_cancelled=None if cancelled else True,
    )
    return ClientCall("retryFailedJobs", (request,), same)


def delete_jobs(queue: str, state: JobState, *, priority: int, regex: str | None, limit: int) -> ClientCall[int]:
    request = types.DeleteRequest(queue=queue, state=state_of(state), priority=priority, regex=regex, limit=limit)
    return ClientCall("deleteJobs", (request,), same)


def start_bulk_run(order: values.BulkOrder) -> ClientCall[values.BulkRun]:
    from pinlater.wire.job_filters import wire_order

    method = "startBulkRun" if order.max_jobs is None else "startLimitedBulkRun"
    return ClientCall(method, (wire_order(order),), bulk_run)


def undo_bulk_run(queue: str, run_id: str, jobs_per_second: float | None) -> ClientCall[values.BulkRun]:
    order = values.BulkOrder(
        queue,
        values.BulkAction.RESTORE,
        values.JobFilter(JobState.PENDING),
        jobs_per_second=jobs_per_second,
        undoes=run_id,
    )
    return start_bulk_run(order)


def stop_bulk_run(queue: str, run_id: str) -> ClientCall[values.BulkRun]:
    return ClientCall("stopBulkRun", (queue, run_id), bulk_run, Resend.SAFE)


def bulk_runs(queues: Sequence[str]) -> ClientCall[list[values.BulkRun]]:
    return ClientCall("getBulkRuns", (list(queues),), lambda runs: list(map(bulk_run, runs)), Resend.SAFE)


def list_bulk_runs(queues: Sequence[str]) -> ClientCall[values.BulkRunList]:
    return ClientCall("listBulkRuns", (types.BulkRunsRequest(list(queues)),), bulk_run_list, Resend.SAFE)


def bulk_run(run: types.BulkRun) -> values.BulkRun:
    """The run that a struct tells of."""
    from pinlater.wire.job_filters import order_of

    state = tuple(values.BulkState)[run.state]
    return value_of(values.BulkRun, run, order=order_of(run.order), state=state, expected=run.expected_changes)


def bulk_run_list(found: types.BulkRunsResponse) -> values.BulkRunList:
    """The runs that a struct tells of."""
    return values.BulkRunList(
        tuple(map(bulk_run, found.runs)), bool(found.incomplete), tuple(found.missing_shards or ())
    )
