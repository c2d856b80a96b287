"""The calls of a server: one function for each method makes the `ClientCall` from the user's values.

Pure: nothing here knows a connection, a clock or a server, so that every form of the client (async, sync, against an original
server) shares it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from operator import attrgetter
from os import urandom
from typing import Any, TypeVar

from pinlater.client import _parsing, values
from pinlater.client._bodies import body_of, check_type, check_unique_types
from pinlater.client._client_call import ClientCall
from pinlater.client._retries import Resend
from pinlater.client._thrift import check_encodable, types
from pinlater.client._wrong_values import wrong_items
from pinlater.client.errors import InvalidArgument
from pinlater.domain.durations import is_in_seconds
from pinlater.domain.job import PROGRESS_MARK, JobState
from pinlater.domain.queue import QueueConfig
from pinlater.domain.setting_types import check_integer

T = TypeVar("T")
# A job's fields behind the body, where nothing but that was said.
_ONLY_A_BODY = values.Job(b"")[1:]


def _nothing(_: Any) -> None:
    return None


def _same(answer: Any) -> Any:
    return answer


def create_queue(name: str, *, ordered: bool = False) -> ClientCall[None]:
    return ClientCall("createOrderedQueue" if ordered else "createQueue", (name,), _nothing, Resend.SAFE)


def ensure_queue(name: str) -> ClientCall[None]:
    return ClientCall("ensureQueue", (name,), _nothing, Resend.SAFE)


def delete_queue(name: str, password: str) -> ClientCall[None]:
    return ClientCall("deleteQueue", (name, password), _nothing)


def queue_names() -> ClientCall[list[str]]:
    return ClientCall("getQueueNames", (), sorted, Resend.SAFE)


def new_request_key(now_ms: int) -> str:
    """A key that no other request has. It begins with the time, so that a store's newest keys lie side by side: half the cost."""
    return f"{now_ms:012x}{urandom(6).hex()}"


def enqueue(
    queue: str, jobs: Sequence[values.Job | bytes], request_key: str | None, repeat: bool
) -> ClientCall[values.Enqueued]:
    sent = []
    for index, job in enumerate(jobs):
        sent.append(_job(f"jobs[{index}]", job))
    request = types.EnqueueRequest(queue, sent, request_key, True if repeat else None)
    return ClientCall(
        "enqueueJobs",
        (request,),
        _parsing.enqueued,
        Resend.NEVER if request_key is None else Resend.KEYED,
        all_or_nothing=len(sent) == 1 or len({job.unique_key for job in sent}) == 1,
    )


def with_request_key(call: ClientCall[T], key: str) -> ClientCall[T]:
    """The same enqueue as a new request."""
    before = call.args[0]
    request = types.EnqueueRequest(queue=before.queue, jobs=before.jobs, request_key=key)
    return call._replace(args=(request,), resend=Resend.KEYED)


def check_job(job: values.Job | bytes, name: str = "job") -> None:
    """Raises TypeError or CallerError if no request could carry this job: a value has the wrong type, or is out of its range."""
    if isinstance(job, values.Job) and job[1:] != _ONLY_A_BODY:
        check_encodable(_job(name, job), name)
    else:
        check_type(job, name)


def _job(name: str, job: values.Job | bytes) -> types.Job:
    if not isinstance(job, values.Job):
        check_type(job, name)
        return types.Job(body=bytes(job), attempts_allowed=None)
    unique = job.unique
    if unique is not None:
        _check_unique(unique)
    return types.Job(
        body=job.body if isinstance(job.body, bytes) else body_of(job.body, f"{name}.body"),
        priority=job.priority,
        run_after_ms=None if job.run_after_ms is None else _time_ms(job.run_after_ms, name, "run_after_ms"),
        attempts_allowed=job.attempts_allowed,
        custom_status=job.custom_status,
        headers=(dict(job.headers) if type(job.headers) is dict else _headers(job.headers, name))
        if job.headers
        else None,
        unique_key=unique.key if unique else None,
        unique_scope=int(unique.scope) if unique else types.NOT_SENT,
        unique_for_ms=unique.for_ms if unique and unique.for_ms else None,
        claim_timeout_ms=job.claim_timeout_ms,
        expires_at_ms=None if job.expires_at_ms is None else _time_ms(job.expires_at_ms, name, "expires_at_ms"),
        ordering_key=job.ordering_key,
    )


def _time_ms(at_ms: int | None, owner: str, field: str) -> int | None:
    """Raises InvalidArgument for a time in seconds. As milliseconds it would be in January 1970, and the job would run or end at once."""
    if at_ms is not None and isinstance(at_ms, int) and is_in_seconds(at_ms):
        name = f"{owner}.{field}"
        raise InvalidArgument(f"{name} is in milliseconds, and {at_ms} seems to be in seconds: multiply it by 1000")
    return at_ms


def _headers(headers: Mapping[str, str], name: str) -> dict[str, str]:
    try:
        return dict(headers)
    except (TypeError, ValueError):
        raise TypeError(f"{name}.headers must be a mapping of texts by names, not {headers!r}") from None


def _check_unique(unique: object) -> None:
    if not isinstance(unique, values.UniqueKey):
        raise TypeError(f"a job's unique key is a UniqueKey, not {type(unique).__name__}")
    check_unique_types(unique, "a job's unique key")
    if not unique.key:
        raise InvalidArgument("a unique key must not be empty; a job without one has unique=None")
    if unique.scope is values.UniqueScope.TIME and not unique.for_ms:
        raise InvalidArgument("a unique key of scope TIME needs for_ms, the milliseconds for which it holds")


def _state(state: object) -> int:
    if not isinstance(state, int):
        raise TypeError(f"state must be a JobState such as JobState.FAILED, not {state!r}")
    return int(state)


def _descriptors(given: Sequence[str]) -> list[str]:
    """Raises TypeError for one descriptor, whose letters would be taken for many."""
    if isinstance(given, str | bytes):
        raise TypeError(f"descriptors must be a list: write [{given!r}]")
    return list(given)


def dequeue(
    queue: str,
    limit: int,
    *,
    wait_ms: int,
    acks: values.AckBatch | None,
    dry_run: bool,
    coverage: float,
    process: values.WorkingProcess | None = None,
) -> ClientCall[values.Dequeued]:
    check_integer("dequeue: limit", limit, 0 if acks else 1)
    check_integer("dequeue: wait_ms", wait_ms, 0)
    request = types.DequeueRequest(
        queue=queue,
        limit=limit,
        acks=_ack_request(acks.queue, acks.acks, acks.per_item_errors) if acks else None,
        dry_run=dry_run,
        coverage=coverage,
        wait_ms=wait_ms or None,
    )
    if process is not None:
        request.process, request.worker = process.number, _worker_info(process)

    def read(answer: types.DequeueResponse) -> values.Dequeued:
        dequeued = _parsing.dequeued(queue, answer)
        if acks is None or not dequeued.ack_results:
            return dequeued
        return dequeued._replace(ack_results=_in_order(acks.acks, dequeued.ack_results))

    # Acks are carried out before jobs are claimed.
    return ClientCall("dequeueJobs", (request,), read, wait_ms=wait_ms, all_or_nothing=not (acks and acks.acks))


def _worker_info(process: values.WorkingProcess) -> types.WorkerInfo | None:
    return None if process.info is None else types.WorkerInfo(*process.info)


def acknowledge(queue: str, acks: Sequence[values.Ack], *, per_item_errors: bool) -> ClientCall[list[values.AckResult]]:
    def read(answer: Sequence[types.AckResult]) -> list[values.AckResult]:
        return _in_order(acks, _parsing.ack_results(answer))

    request = _ack_request(queue, acks, per_item_errors)
    return ClientCall("ackJobs", (request,), read, all_or_nothing=len(acks) == 1)


def acknowledge_plain(queue: str, acks: Sequence[values.Ack]) -> ClientCall[None]:
    """The original's ack, which says nothing of what became of the jobs."""
    request = _ack_request(queue, acks, per_item_errors=False)
    return ClientCall("ackDequeuedJobs", (request,), _nothing, all_or_nothing=len(acks) == 1)


def _ack_request(queue: str, acks: Sequence[values.Ack], per_item_errors: bool) -> types.AckBatch:
    try:
        return types.AckBatch(
            queue=queue,
            succeeded=[_ack(ack) for ack in acks if ack.succeeded],
            failed=[_ack(ack) for ack in acks if not ack.succeeded],
            per_item_errors=True if per_item_errors else None,
        )
    except (AttributeError, TypeError) as error:  # looked at only then, since acks are many
        example = "ack(queue, [Ack(job.descriptor, token=job.token)])"
        raise wrong_items(error, "acks", acks, values.Ack, example) from None


def _ack(ack: values.Ack) -> types.Ack:
    return types.Ack(
        descriptor=ack.descriptor,
        append_status=ack.append_status,
        retry_delay_ms=ack.retry_delay_ms,
        token=ack.token or None,
        final=True if ack.final else None,
        error_type=ack.error_type or None,
        error_text=ack.error_text or None,
    )


def _in_order(acks: Sequence[values.Ack], results: Sequence[values.AckResult]) -> list[values.AckResult]:
    """Results in the acks' order: the wire answers the succeeded ones first, then the failed ones."""
    if len(results) != len(acks):
        return list(results)
    succeeded = iter(results)
    failed = iter(results[sum(map(attrgetter("succeeded"), acks)) :])
    return [next(succeeded) if ack.succeeded else next(failed) for ack in acks]


def checkpoint(
    queue: str, items: Sequence[values.Checkpoint], *, per_item_errors: bool
) -> ClientCall[list[values.AckResult]]:
    request = _checkpoint_request(queue, items)
    request.per_item_errors = True if per_item_errors else None
    resend = Resend.SAFE if all(map(_same_when_repeated, items)) else Resend.NEVER
    return ClientCall("checkpointJobsFenced", (request,), _parsing.ack_results, resend, all_or_nothing=len(items) == 1)


def _same_when_repeated(item: values.Checkpoint) -> bool:
    """Whether a second checkpoint changes nothing: its token names the claim, its status is progress, and the claim goes on."""
    adds = bool(item.prepend_status) and not item.prepend_status.startswith(PROGRESS_MARK)
    return bool(item.token) and not adds and not item.move_to_pending


def checkpoint_plain(queue: str, items: Sequence[values.Checkpoint]) -> ClientCall[None]:
    """The original's checkpoint, which says nothing of what became of the jobs."""
    request = _checkpoint_request(queue, items)
    return ClientCall("checkpointJobs", (request,), _nothing, all_or_nothing=len(items) == 1)


def _checkpoint_request(queue: str, items: Sequence[values.Checkpoint]) -> types.CheckpointBatch:
    try:
        requests = [_checkpoint(index, item) for index, item in enumerate(items)]
    except (AttributeError, TypeError) as error:
        example = "checkpoint(queue, [Checkpoint(job.descriptor, job.token, new_body)])"
        raise wrong_items(error, "items", items, values.Checkpoint, example) from None
    return types.CheckpointBatch(queue=queue, requests=requests)


def _checkpoint(index: int, item: values.Checkpoint) -> types.Checkpoint:
    return types.Checkpoint(
        descriptor=item.descriptor,
        new_body=None if item.new_body is None else body_of(item.new_body, f"items[{index}].new_body"),
        move_to_pending=item.move_to_pending,
        run_after_ms=_time_ms(item.run_after_ms, f"items[{index}]", "run_after_ms"),
        attempts_allowed=item.attempts_allowed,
        prepend_status=item.prepend_status or None,
        token=item.token or None,
    )


def _claim_refs(claims: Sequence[values.Claim]) -> list[types.Claim]:
    try:
        return [types.Claim(descriptor=claim.descriptor, token=claim.token) for claim in claims]
    except (AttributeError, TypeError) as error:
        raise wrong_items(error, "claims", claims, values.Claim, "[Claim(job.descriptor, job.token)]") from None


def heartbeat(
    queue: str,
    claims: Sequence[values.Claim],
    *,
    per_item_errors: bool,
    process: values.WorkingProcess | None = None,
) -> ClientCall[list[values.AckResult]]:
    request = types.ClaimsRequest(
        queue=queue, claims=_claim_refs(claims), per_item_errors=True if per_item_errors else None
    )
    if process is not None:
        request.process, request.worker = process.number, _worker_info(process)
    return ClientCall("heartbeatClaims", (request,), _parsing.ack_results, Resend.SAFE)


def release(
    queue: str, claims: Sequence[values.Claim], delay_ms: int, *, per_item_errors: bool
) -> ClientCall[list[values.AckResult]]:
    request = types.ReleaseRequest(
        queue=queue,
        claims=_claim_refs(claims),
        delay_ms=delay_ms,
        per_item_errors=True if per_item_errors else None,
    )
    return ClientCall("releaseJobs", (request,), _parsing.ack_results, all_or_nothing=len(claims) == 1)


def cancel(queue: str, descriptors: Sequence[str]) -> ClientCall[list[values.AckResult]]:
    return ClientCall("cancelJobs", (queue, _descriptors(descriptors)), _parsing.ack_results, Resend.SAFE)


def lookup(descriptors: Sequence[str], *, bodies: bool) -> ClientCall[dict[str, values.JobInfo]]:
    request = types.LookupRequest(descriptors=_descriptors(descriptors), bodies=bodies)

    def read(answer: Mapping[str, types.JobInfo]) -> dict[str, values.JobInfo]:
        return {name: _parsing.job_info(answer[name]) for name in dict.fromkeys(descriptors) if name in answer}

    return ClientCall("lookupJobs", (request,), read, Resend.SAFE)


def find_unique_key(key: str, queues: Sequence[str]) -> ClientCall[values.KeyHolders]:
    return ClientCall("findUniqueKey", (types.UniqueKeyRequest(list(queues), key),), _parsing.key_holders, Resend.SAFE)


def count(queue: str, chosen: values.JobFilter, *, future: bool) -> ClientCall[int]:
    return ClientCall("getJobCount", (_count_request(queue, chosen, future),), _same, Resend.SAFE)


def count_jobs(
    queue: str, chosen: values.JobFilter, *, future: bool, continuation: str | None = None
) -> ClientCall[values.JobCount]:
    """`continuation`: where a count in parts begins; None for one that ends with the call or fails."""
    request = _count_request(queue, chosen, future)
    if continuation is not None:
        request.filter, request.continuation = _filter(chosen), continuation
    return ClientCall("countJobs", (request,), partial(_parsing.job_count, chosen=chosen), Resend.SAFE)


def _count_request(queue: str, chosen: values.JobFilter, future: bool) -> types.CountRequest:
    return types.CountRequest(
        queue=queue, state=_state(chosen.state), priority=chosen.priority, future=future, regex=chosen.regex
    )


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
        state=_state(chosen.state),
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
    return ClientCall("scanJobs", (request,), partial(_parsing.scanned, shard=shard, chosen=chosen), Resend.SAFE)


def _filter(chosen: values.JobFilter) -> types.JobFilter | None:
    """The filter for servers; None if the fields of an original request say it, which servers from before filters read, too."""
    if chosen.is_plain:
        return None
    from pinlater.wire.job_filters import wire_filter

    return wire_filter(chosen)


def retry_failed(
    queue: str, *, priority: int, attempts: int, run_after_ms: int | None, limit: int, cancelled: bool
) -> ClientCall[int]:
    request = types.RetryRequest(
        queue=queue,
        priority=priority,
        attempts=attempts,
        run_after_ms=_time_ms(run_after_ms, "retry_failed", "run_after_ms"),
        limit=limit,
        skip_cancelled=None if cancelled else True,
    )
    return ClientCall("retryFailedJobs", (request,), _same)


def run_jobs(
    queue: str, descriptors: Sequence[str], *, attempts: int, run_after_ms: int | None, only_failed: bool
) -> ClientCall[list[values.AckResult]]:
    due_ms = _time_ms(run_after_ms, "run_jobs", "run_after_ms")
    request = types.RunJobsRequest(queue, _descriptors(descriptors), due_ms, attempts, only_failed or None)
    return ClientCall("runJobs", (request,), _parsing.ack_results)


def change_priority(queue: str, descriptors: Sequence[str], priority: int) -> ClientCall[list[values.MovedJob]]:
    request = types.ChangePriorityRequest(queue, _descriptors(descriptors), priority)
    return ClientCall("changePriority", (request,), _parsing.moved_jobs, Resend.SAFE)


def delete_jobs(queue: str, state: JobState, *, priority: int, regex: str | None, limit: int) -> ClientCall[int]:
    request = types.DeleteRequest(queue=queue, state=_state(state), priority=priority, regex=regex, limit=limit)
    return ClientCall("deleteJobs", (request,), _same)


def delete_jobs_by_descriptor(queue: str, descriptors: Sequence[str], state: JobState | None) -> ClientCall[int]:
    if state is not None:
        return ClientCall("deleteJobsInState", (queue, _descriptors(descriptors), _state(state)), _same)
    return ClientCall("deleteJobsByDescriptor", (queue, _descriptors(descriptors)), _same)


def configure_queue(queue: str, config: QueueConfig) -> ClientCall[None]:
    wire = types.QueueConfig(**config._asdict())
    return ClientCall("configureQueue", (queue, wire), _nothing, Resend.SAFE)


def queue_config(queue: str) -> ClientCall[values.QueueInfo]:
    return ClientCall("getQueueConfig", (queue,), lambda answer: _parsing.queue_info(queue, answer), Resend.SAFE)


def settings_in_force(queue: str) -> ClientCall[values.SettingsInForce]:
    return ClientCall("getSettingsInForce", (queue,), _parsing.settings_in_force, Resend.SAFE)


def waiting_dequeues() -> ClientCall[list[values.WaitingDequeues]]:
    return ClientCall("getWaitingDequeues", (), _parsing.waiting_dequeues, Resend.SAFE)


def workers(*, everywhere: bool) -> ClientCall[list[values.ServerWorkers]]:
    return ClientCall("getWorkers", (everywhere,), _parsing.server_workers, Resend.SAFE)


def explain_job(queue: str, descriptor: str) -> ClientCall[values.JobExplanation]:
    return ClientCall("explainJob", (queue, descriptor), _parsing.job_explanation, Resend.SAFE)


def queue_history(
    queues: Sequence[str], from_ms: int, until_ms: int | None, step_s: int | None
) -> ClientCall[values.Histories]:
    request = types.QueueHistoryRequest(list(queues), from_ms, until_ms, step_s)
    return ClientCall("getQueueHistory", (request,), _parsing.history, Resend.SAFE)


def failures(queues: Sequence[str]) -> ClientCall[values.FailureGroups]:
    return ClientCall("getFailures", (types.FailuresRequest(list(queues)),), _parsing.failure_groups, Resend.SAFE)


def start_bulk_run(order: values.BulkOrder) -> ClientCall[values.BulkRun]:
    from pinlater.wire.job_filters import wire_order

    method = "startBulkRun" if order.max_jobs is None else "startLimitedBulkRun"
    return ClientCall(method, (wire_order(order),), _parsing.bulk_run)


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
    return ClientCall("stopBulkRun", (queue, run_id), _parsing.bulk_run, Resend.SAFE)


def bulk_runs(queues: Sequence[str]) -> ClientCall[list[values.BulkRun]]:
    return ClientCall("getBulkRuns", (list(queues),), lambda runs: list(map(_parsing.bulk_run, runs)), Resend.SAFE)


def list_bulk_runs(queues: Sequence[str]) -> ClientCall[values.BulkRunList]:
    return ClientCall("listBulkRuns", (types.BulkRunsRequest(list(queues)),), _parsing.bulk_runs, Resend.SAFE)


def mute_failures(queue: str, group: str, until_ms: int | None) -> ClientCall[None]:
    return ClientCall("muteFailures", (types.FailureMute(queue, group, until_ms),), _nothing, Resend.SAFE)


def add_mark(text: str, at_ms: int, queue: str) -> ClientCall[None]:
    mark = types.DeployMark(at_ms, text, queue or None)
    return ClientCall("addDeployMark", (mark,), _nothing, Resend.SAFE)


def cluster() -> ClientCall[values.ClusterStatus]:
    return ClientCall("getCluster", (), _parsing.cluster_status, Resend.SAFE)


def queue_owners() -> ClientCall[types.QueueOwners]:
    return ClientCall("getQueueOwners", (), _same, Resend.SAFE)


def audit(wanted: values.AuditFilter) -> ClientCall[values.AuditPage]:
    request = types.AuditRequest(
        wanted.queue or None,
        wanted.who or None,
        wanted.operation or None,
        wanted.since_ms,
        wanted.until_ms,
        wanted.limit,
        wanted.continuation or None,
    )
    return ClientCall("getAudit", (request,), _parsing.audit_page, Resend.SAFE)


def pause_queue(queue: str) -> ClientCall[None]:
    return ClientCall("pauseQueue", (queue,), _nothing, Resend.SAFE)


def resume_queue(queue: str) -> ClientCall[None]:
    return ClientCall("resumeQueue", (queue,), _nothing, Resend.SAFE)


def unblock_key(queue: str, ordering_key: str) -> ClientCall[int]:
    return ClientCall("unblockKey", (queue, ordering_key), _same, Resend.SAFE)


def queue_stats(names: Sequence[str]) -> ClientCall[list[values.QueueStats]]:
    return ClientCall(
        "getQueueStats", (list(names),), lambda answer: [_parsing.queue_stats(stats) for stats in answer], Resend.SAFE
    )


def server_info(made_for: str = "") -> ClientCall[values.ServerInfo]:
    return ClientCall("getServerInfo", (), _parsing.server_info, Resend.SAFE, made_for=made_for)
