"""The calls about jobs in hand, from enqueue to ack: what is sent, and what is made of the answer.

Pure: every form of the client shares it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from os import urandom
from typing import TypeVar

from pinlater.client import values
from pinlater.client._bodies import body_of, check_type, check_unique_types
from pinlater.client._client_call import ClientCall, nothing, same
from pinlater.client._retries import Resend
from pinlater.client._thrift import check_encodable, types
from pinlater.client._wrong_values import wrong_items
from pinlater.client.errors import InvalidArgument, PinLaterError, error_for
from pinlater.domain.clock import wall_ns
from pinlater.domain.descriptor import parse_descriptor
from pinlater.domain.durations import is_in_seconds
from pinlater.domain.errors import DescriptorInvalid, ErrorCode
from pinlater.domain.job import PROGRESS_MARK, JobState, Outcome
from pinlater.domain.setting_types import check_integer

T = TypeVar("T")
# A job's fields behind the body, where nothing but that was said.
_ONLY_A_BODY = values.Job(b"")[1:]


def new_request_key() -> str:
    """A key that no other request has. It begins with the time, so that a store's newest keys lie side by side: half the cost."""
    return f"{wall_ns() // 1_000_000:012x}{urandom(6).hex()}"


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
        _enqueued,
        Resend.NEVER if request_key is None else Resend.KEYED,
        all_or_nothing=len(sent) == 1 or len({job.unique_key for job in sent}) == 1,
    )


def _enqueued(answer: types.Enqueued) -> values.Enqueued:
    return values.Enqueued(answer.descriptors, tuple(answer.existing or ()))


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
        run_after_ms=None if job.run_after_ms is None else time_ms(job.run_after_ms, name, "run_after_ms"),
        attempts_allowed=job.attempts_allowed,
        custom_status=job.custom_status,
        headers=(dict(job.headers) if type(job.headers) is dict else _headers(job.headers, name))
        if job.headers
        else None,
        unique_key=unique.key if unique else None,
        unique_scope=int(unique.scope) if unique else types.NOT_SENT,
        unique_for_ms=unique.for_ms if unique and unique.for_ms else None,
        claim_timeout_ms=job.claim_timeout_ms,
        expires_at_ms=None if job.expires_at_ms is None else time_ms(job.expires_at_ms, name, "expires_at_ms"),
        ordering_key=job.ordering_key,
    )


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
        dequeued = _dequeued(queue, answer)
        if acks is None or not dequeued.ack_results:
            return dequeued
        return dequeued._replace(ack_results=_in_order(acks.acks, dequeued.ack_results))

    # Acks are executed before jobs are claimed.
    return ClientCall("dequeueJobs", (request,), read, wait_ms=wait_ms, all_or_nothing=not (acks and acks.acks))


def _worker_info(process: values.WorkingProcess) -> types.WorkerInfo | None:
    return None if process.info is None else types.WorkerInfo(*process.info)


def _dequeued(queue: str, response: types.DequeueResponse) -> values.Dequeued:
    """The jobs of a dequeue, in the order to run them: the server's, or, from an original one, by priority and id."""
    jobs = response.jobs or {}
    metadata = response.metadata or {}
    order = response.order or sorted(jobs, key=_priority_and_id)
    results = _ack_results(response.ack_outcomes) if response.ack_outcomes else ()
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


def acknowledge(queue: str, acks: Sequence[values.Ack], *, per_item_errors: bool) -> ClientCall[list[values.AckResult]]:
    def read(answer: Sequence[types.AckResult]) -> list[values.AckResult]:
        return _in_order(acks, _ack_results(answer))

    request = _ack_request(queue, acks, per_item_errors)
    return ClientCall("ackJobs", (request,), read, all_or_nothing=len(acks) == 1)


def acknowledge_plain(queue: str, acks: Sequence[values.Ack]) -> ClientCall[None]:
    """The original's ack, which says nothing of what became of the jobs."""
    request = _ack_request(queue, acks, per_item_errors=False)
    return ClientCall("ackDequeuedJobs", (request,), nothing, all_or_nothing=len(acks) == 1)


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


def _ack_results(outcomes: Sequence[types.AckResult] | None) -> list[values.AckResult]:
    """What became of each job."""
    return [_ack_result(outcome) for outcome in outcomes or ()]


def _ack_result(outcome: types.AckResult) -> values.AckResult:
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


def checkpoint(
    queue: str, items: Sequence[values.Checkpoint], *, per_item_errors: bool
) -> ClientCall[list[values.AckResult]]:
    request = _checkpoint_request(queue, items)
    request.per_item_errors = True if per_item_errors else None
    resend = Resend.SAFE if all(map(_same_when_repeated, items)) else Resend.NEVER
    return ClientCall("checkpointJobsFenced", (request,), _ack_results, resend, all_or_nothing=len(items) == 1)


def _same_when_repeated(item: values.Checkpoint) -> bool:
    """Whether a second checkpoint changes nothing: its token names the claim, its status is progress, and the claim goes on."""
    adds = bool(item.prepend_status) and not item.prepend_status.startswith(PROGRESS_MARK)
    return bool(item.token) and not adds and not item.move_to_pending


def checkpoint_plain(queue: str, items: Sequence[values.Checkpoint]) -> ClientCall[None]:
    """The original's checkpoint, which says nothing of what became of the jobs."""
    request = _checkpoint_request(queue, items)
    return ClientCall("checkpointJobs", (request,), nothing, all_or_nothing=len(items) == 1)


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
        run_after_ms=time_ms(item.run_after_ms, f"items[{index}]", "run_after_ms"),
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
    return ClientCall("heartbeatClaims", (request,), _ack_results, Resend.SAFE)


def release(
    queue: str, claims: Sequence[values.Claim], delay_ms: int, *, per_item_errors: bool
) -> ClientCall[list[values.AckResult]]:
    request = types.ReleaseRequest(
        queue=queue,
        claims=_claim_refs(claims),
        delay_ms=delay_ms,
        per_item_errors=True if per_item_errors else None,
    )
    return ClientCall("releaseJobs", (request,), _ack_results, all_or_nothing=len(claims) == 1)


def cancel(queue: str, descriptors: Sequence[str]) -> ClientCall[list[values.AckResult]]:
    return ClientCall("cancelJobs", (queue, descriptors_of(descriptors)), _ack_results, Resend.SAFE)


def run_jobs(
    queue: str, descriptors: Sequence[str], *, attempts: int, run_after_ms: int | None, only_failed: bool
) -> ClientCall[list[values.AckResult]]:
    due_ms = time_ms(run_after_ms, "run_jobs", "run_after_ms")
    request = types.RunJobsRequest(queue, descriptors_of(descriptors), due_ms, attempts, only_failed or None)
    return ClientCall("runJobs", (request,), _ack_results)


def change_priority(queue: str, descriptors: Sequence[str], priority: int) -> ClientCall[list[values.MovedJob]]:
    request = types.ChangePriorityRequest(queue, descriptors_of(descriptors), priority)
    return ClientCall("changePriority", (request,), _moved_jobs, Resend.SAFE)


def _moved_jobs(outcomes: Sequence[types.MovedJob]) -> list[values.MovedJob]:
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


def delete_jobs_by_descriptor(queue: str, descriptors: Sequence[str], state: JobState | None) -> ClientCall[int]:
    if state is not None:
        return ClientCall("deleteJobsInState", (queue, descriptors_of(descriptors), state_of(state)), same)
    return ClientCall("deleteJobsByDescriptor", (queue, descriptors_of(descriptors)), same)


def descriptors_of(given: Sequence[str]) -> list[str]:
    """Raises TypeError for one descriptor, whose letters would be taken for many."""
    if isinstance(given, str | bytes):
        raise TypeError(f"descriptors must be a list: write [{given!r}]")
    return list(given)


def time_ms(at_ms: int | None, owner: str, field: str) -> int | None:
    """Raises InvalidArgument for a time in seconds. As milliseconds it would be in January 1970, and the job would run or end at once."""
    if at_ms is not None and isinstance(at_ms, int) and is_in_seconds(at_ms):
        name = f"{owner}.{field}"
        raise InvalidArgument(f"{name} is in milliseconds, and {at_ms} seems to be in seconds: multiply it by 1000")
    return at_ms


def state_of(state: object) -> int:
    if not isinstance(state, int):
        raise TypeError(f"state must be a JobState such as JobState.FAILED, not {state!r}")
    return int(state)
