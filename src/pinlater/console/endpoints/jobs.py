"""Jobs: store, look up, list, count, cancel, run, retry, delete."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from pinlater.client import (
    BulkAction,
    BulkOrder,
    BulkState,
    Job,
    JobCount,
    JobFilter,
    JobState,
    Outcome,
    UniqueKey,
    UniqueScope,
)
from pinlater.client._filtered_jobs import (
    SCAN_END,
    SCAN_START,
    FoundJobsChange,
    count_all,
    halves_of,
    wait_for_end,
)
from pinlater.client.errors import PinLaterError
from pinlater.client.values import JobInfo
from pinlater.console.endpoint import ApiCall, Content
from pinlater.console.endpoints.forms import (
    body_given,
    due_ms,
    explanation_shown,
    filter_of,
    job_shown,
    moved_shown,
    results_shown,
    state_of,
)
from pinlater.console.problems import invalid, refused
from pinlater.console.shapes.claims import MovedJobsAnswer, ResultsAnswer
from pinlater.console.shapes.fields import I32_MAX, Nothing
from pinlater.console.shapes.jobs import (
    BodiesQuery,
    ChangedAnswer,
    ChangePriorityRequest,
    CountQuery,
    DeletedAnswer,
    DeleteJobsQuery,
    DescriptorsRequest,
    EnqueueBatchAnswer,
    EnqueueBatchRequest,
    EnqueuedItem,
    EnqueueQuery,
    ExplainAnswer,
    JobCountAnswer,
    JobItem,
    KeyHoldersAnswer,
    LookupAnswer,
    LookupRequest,
    NewJobOptions,
    RetryFailedRequest,
    RunNowRequest,
    ScanAnswer,
    ScanQuery,
    UniqueKeyQuery,
)

SECONDS = 5.0
"""How long one request counts or changes the jobs that a filter selects."""

_Enqueue = ApiCall[EnqueueQuery, Content] | ApiCall[Nothing, EnqueueBatchRequest]


async def enqueue(call: ApiCall[EnqueueQuery, Content]) -> EnqueuedItem:
    """Stores a job. The body of the request is the body of the job, as text, JSON or bytes after its Content-Type; the options are
    parameters of the URL. With an Idempotency-Key a repeat within 45 s stores nothing and gets the first answer."""
    _check_repeatable(call, call.query, "")
    job = _job(call.query, call.body.data, _headers(call.query.header), call.now_ms(), "")
    return (await _stored(call, [job]))[0]


async def enqueue_batch(call: ApiCall[Nothing, EnqueueBatchRequest]) -> EnqueueBatchAnswer:
    """Stores several jobs. An Idempotency-Key works as for one job."""
    now_ms = call.now_ms()
    jobs = []
    for index, item in enumerate(call.body.jobs):
        where = f"jobs[{index}]"
        _check_repeatable(call, item, f"{where}.")
        body = body_given(item, where)
        if body is None:
            raise invalid(f"{where}.body", "a job needs body, body_json or body_base64")
        jobs.append(_job(item, body, item.headers, now_ms, f"{where}."))
    return EnqueueBatchAnswer(jobs=await _stored(call, jobs))


def _check_repeatable(call: _Enqueue, options: NewJobOptions, where: str) -> None:
    # A duration counts from now: a repeat would ask for another time, which the servers refuse as another request.
    if not call.header:
        return
    for name, moment in (("delay_ms", "run_after_ms"), ("expires_in_ms", "expires_at_ms")):
        if getattr(options, name) is not None:
            raise invalid(f"{where}{name}", f"a request with an Idempotency-Key uses {moment}, not {name}")


async def _stored(call: _Enqueue, jobs: Sequence[Job]) -> Sequence[EnqueuedItem]:
    # A repeated HTTP request is not marked as such: with a key, the servers look for the first one.
    stored = await call.client.enqueue(call.queue, jobs, request_key=call.header or None, repeat=bool(call.header))
    existing = set(stored.existing)
    return [
        EnqueuedItem(descriptor=descriptor, existing=index in existing)
        for index, descriptor in enumerate(stored.descriptors)
    ]


def _job(options: NewJobOptions, body: bytes, headers: Mapping[str, str], now_ms: int, where: str) -> Job:
    return Job(
        body,
        priority=options.priority,
        run_after_ms=due_ms(options.run_after_ms, options.delay_ms, now_ms, f"{where}run_after_ms {where}delay_ms"),
        attempts_allowed=options.attempts_allowed,
        custom_status=options.custom_status,
        headers=dict(headers) or None,
        unique=_unique(options, where),
        claim_timeout_ms=options.claim_timeout_ms,
        expires_at_ms=due_ms(
            options.expires_at_ms, options.expires_in_ms, now_ms, f"{where}expires_at_ms {where}expires_in_ms"
        ),
        ordering_key=options.ordering_key,
    )


def _unique(options: NewJobOptions, where: str) -> UniqueKey | None:
    scope = UniqueScope[options.unique_scope.upper()]
    if options.unique_key is None:
        if options.unique_for_ms is not None:
            raise invalid(f"{where}unique_for_ms", "unique_for_ms needs unique_key")
        return None
    if (scope is UniqueScope.TIME) != bool(options.unique_for_ms):
        raise invalid(f"{where}unique_for_ms", "unique_scope time and unique_for_ms must be given together")
    return UniqueKey(options.unique_key, scope, options.unique_for_ms or 0)


def _headers(given: Sequence[str]) -> dict[str, str]:
    headers = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise invalid("header", f"{text[:200]!r} is not NAME=VALUE")
        headers[name] = value
    return headers


async def get_job(call: ApiCall[BodiesQuery, Nothing]) -> JobItem:
    """Returns what is known of a job."""
    return job_shown(await _found(call.descriptor, call, bodies=call.query.bodies))


async def get_job_body(call: ApiCall[Nothing, Nothing]) -> Content:
    """Returns the body of a job, byte for byte. A caller that may not see it gets no body, because a program could mistake the masked one
    for the real one.
    """
    job = await _found(call.descriptor, call, bodies=True)
    if job.body_masked:
        raise refused(
            HTTPStatus.FORBIDDEN, "BODY_MASKED", "The body is masked for your roles; the job shows what you may see"
        )
    return Content(job.body or b"")


async def explain_job(call: ApiCall[Nothing, Nothing]) -> ExplainAnswer:
    """Tells why a job waits: a pause, its due time, a rate limit, no worker, jobs before it and when its turn comes. Or who runs it, or
    how it ended."""
    found = await call.client.explain_job(call.descriptor.partition(":")[0], call.descriptor)
    if found.missing:
        raise _no_such_job(call.descriptor)
    return explanation_shown(found)


async def _found(
    descriptor: str, call: ApiCall[BodiesQuery, Nothing] | ApiCall[Nothing, Nothing], *, bodies: bool
) -> JobInfo:
    jobs = await call.client.lookup([descriptor], bodies=bodies)
    if descriptor not in jobs:
        raise _no_such_job(descriptor)
    return jobs[descriptor]


def _no_such_job(descriptor: str) -> Exception:
    return refused(HTTPStatus.NOT_FOUND, "JOB_NOT_FOUND", f"There is no job {descriptor[:200]}")


async def lookup_jobs(call: ApiCall[Nothing, LookupRequest]) -> LookupAnswer:
    """Returns what is known of several jobs, of any queues. Jobs that do not exist are left out."""
    found = await call.client.lookup(call.body.descriptors, bodies=call.body.bodies)
    return LookupAnswer(jobs=[job_shown(job) for job in found.values()])


async def find_unique_key(call: ApiCall[UniqueKeyQuery, Nothing]) -> KeyHoldersAnswer:
    """Finds the jobs that hold a unique key now, by an index. A job whose key is free again is not found."""
    found = await call.client.find_unique_key(call.query.unique_key, *call.query.queue)
    return KeyHoldersAnswer(jobs=[job_shown(job) for job in found.jobs], incomplete=found.incomplete)


async def scan_jobs(call: ApiCall[ScanQuery, Nothing]) -> ScanAnswer:
    """Lists jobs in a state, newest first, in pages. With a filter by more than `priority`, one request compares a part of the jobs: it may
    answer fewer than `limit`, also none, and a continuation."""
    query = call.query
    page = await call.client.scan(
        call.queue,
        filter=filter_of(query, state_of(query.state)),
        future=query.future,
        limit=query.limit,
        continuation=query.continuation or SCAN_START,
        bodies=query.bodies,
        shard=query.shard,
    )
    return ScanAnswer(
        jobs=[job_shown(job) for job in page.jobs],
        continuation=None if page.continuation == SCAN_END else page.continuation,
        incomplete=page.incomplete,
    )


async def count_jobs(call: ApiCall[CountQuery, Nothing]) -> JobCountAnswer:
    """Counts jobs in a state, for some seconds: with a filter by more than `priority` it reads jobs, and the answer may be incomplete."""
    query = call.query
    wanted = filter_of(query, state_of(query.state))
    return counted_shown(await count_all(call.client, call.queue, wanted, (query.future,), seconds=SECONDS))


async def cancel_jobs(call: ApiCall[Nothing, DescriptorsRequest]) -> ResultsAnswer:
    """Cancels waiting and running jobs: they become failed, with the status `cancelled`."""
    return results_shown(await call.client.cancel(call.queue, call.body.descriptors))


async def run_jobs_now(call: ApiCall[Nothing, RunNowRequest]) -> ResultsAnswer:
    """Makes waiting jobs due, and returns failed jobs to the queue."""
    body = call.body
    run_after_ms = due_ms(body.run_after_ms, body.delay_ms, call.now_ms())
    done = await call.client.run_jobs(call.queue, body.descriptors, attempts=body.attempts, run_after_ms=run_after_ms)
    return results_shown(done)


async def change_priority(call: ApiCall[Nothing, ChangePriorityRequest]) -> MovedJobsAnswer:
    """Gives waiting and failed jobs another priority, and with it another descriptor. The old descriptor no longer names a job. A repeat is
    safe.
    """
    body = call.body
    return moved_shown(await call.client.change_priority(call.queue, body.descriptors, body.priority))


def counted_shown(counted: JobCount, limit: int = I32_MAX) -> JobCountAnswer:
    """How many jobs, at most `limit`."""
    return JobCountAnswer(jobs=min(counted.jobs, limit), incomplete=counted.incomplete and counted.jobs < limit)


async def retry_failed_jobs(call: ApiCall[Nothing, RetryFailedRequest]) -> ChangedAnswer:
    """Returns failed jobs to the queue, up to a limit. The answer has their number. With a filter other than `priority` it takes the newest
    first; if that takes longer than some seconds, the answer is `incomplete`. A repeat begins with the newest again, and with the
    `continuation` of the answer it goes on."""
    body = call.body
    run_after_ms = due_ms(body.run_after_ms, body.delay_ms, call.now_ms())
    wanted = filter_of(body, JobState.FAILED, skip_cancelled=not body.cancelled)
    is_plain = wanted._replace(skip_cancelled=False).is_plain
    _check_continuation(body.continuation, goes_on=not (body.dry_run or is_plain))
    if body.dry_run:
        counted = await count_all(call.client, call.queue, wanted, (False,), seconds=SECONDS)
        shown = counted_shown(counted, body.limit)
        return ChangedAnswer(jobs=shown.jobs, incomplete=shown.incomplete)
    if is_plain:
        done = await call.client.retry_failed(
            call.queue,
            priority=wanted.priority,
            attempts=body.attempts,
            run_after_ms=run_after_ms,
            limit=body.limit,
            cancelled=body.cancelled,
        )
        return ChangedAnswer(jobs=done)

    async def retry(piece: Sequence[str]) -> int:
        results = await call.client.run_jobs(
            call.queue, piece, attempts=body.attempts, run_after_ms=run_after_ms, only_failed=True
        )
        return sum(result.outcome is Outcome.APPLIED for result in results)

    return await _changed(call, wanted, retry, body)


async def _changed(
    call: ApiCall[Any, Any],
    wanted: JobFilter,
    change: Callable[[Sequence[str]], Awaitable[int]],
    asked: RetryFailedRequest | DeleteJobsQuery,
) -> ChangedAnswer:
    done = FoundJobsChange(call.client, call.queue, wanted)
    start = SCAN_START if asked.continuation is None else asked.continuation  # an empty one is refused
    await done.run(change, asked.limit, after=start, seconds=SECONDS)
    after = None if done.continuation == SCAN_END else done.continuation
    return ChangedAnswer(jobs=done.number, incomplete=done.incomplete, continuation=after)


def _check_continuation(given: str | None, *, goes_on: bool) -> None:
    """Refuses the continuation of another request for one that can't go on: it would begin anew."""
    if given is not None and not goes_on:
        raise invalid("continuation", "goes with a change by a filter that is no dry run and no bulk run")


async def delete_jobs(call: ApiCall[DeleteJobsQuery, Nothing]) -> DeletedAnswer:
    """Deletes jobs in a state, up to a limit. The answer has their number. With a filter other than `priority` a bulk run deletes them,
    the newest first: `run` names it, and it can be undone for a day. If it takes longer than some seconds, or is stopped, the answer is
    `incomplete`; a run that was not stopped continues. With `for_good` no run is made; a repeat begins with the
    newest again, and with the `continuation` of the answer it goes on."""
    query = call.query
    wanted = filter_of(query, state_of(query.state))
    _check_continuation(query.continuation, goes_on=query.for_good and wanted.compares and not query.dry_run)
    if query.dry_run:
        halves = halves_of(wanted.state)
        counted = counted_shown(await count_all(call.client, call.queue, wanted, halves, seconds=SECONDS), query.limit)
        return DeletedAnswer(jobs=counted.jobs, incomplete=counted.incomplete)
    if wanted.is_plain or (query.for_good and not wanted.compares):
        state, priority, regex, *_ = wanted
        done = await call.client.delete_jobs(call.queue, state, priority=priority, regex=regex, limit=query.limit)
        return DeletedAnswer(jobs=done)
    if query.for_good:

        async def delete(piece: Sequence[str]) -> int:
            return await call.client.delete_jobs_by_descriptor(call.queue, piece, state=wanted.state)

        found = await _changed(call, wanted, delete, query)
        return DeletedAnswer(jobs=found.jobs, incomplete=found.incomplete, continuation=found.continuation)
    order = BulkOrder(call.queue, BulkAction.DELETE, wanted, max_jobs=query.limit)
    run = await call.client.start_bulk_run(order)
    with suppress(PinLaterError):  # the caller must still learn which run it is
        run = await wait_for_end(call.client, run, seconds=SECONDS)
    if run.state is BulkState.FAILED:
        raise refused(HTTPStatus.CONFLICT, "RUN_FAILED", f"Run {run.id} failed after {run.changed} jobs: {run.detail}")
    return DeletedAnswer(jobs=run.changed, incomplete=run.state is not BulkState.DONE, run=run.id)


async def delete_jobs_by_descriptor(call: ApiCall[Nothing, DescriptorsRequest]) -> JobCountAnswer:
    """Deletes the named jobs in whatever state they are. The answer has their number."""
    return JobCountAnswer(jobs=await call.client.delete_jobs_by_descriptor(call.queue, call.body.descriptors))
