"""Jobs: cancel, run, retry, change the priority, delete."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Annotated, Any

from pinlater.client import BulkAction, BulkOrder, BulkState, JobFilter, JobState, Outcome
from pinlater.client._filtered_jobs import SCAN_END, SCAN_START, FoundJobsChange, count_all, halves_of, wait_for_end
from pinlater.client.errors import PinLaterError
from pinlater.console.endpoint import ApiCall, endpoint
from pinlater.console.endpoints.claims import MovedJobItem, MovedJobsAnswer, ResultsAnswer, results_shown
from pinlater.console.endpoints.fields import (
    Attempts,
    Delay,
    Descriptors,
    Limit,
    Nothing,
    Priority,
    RequestShape,
    RunAfter,
    State,
    doc,
)
from pinlater.console.endpoints.filters import JobsFilter
from pinlater.console.endpoints.forms import due_ms, filter_of, like, state_of
from pinlater.console.endpoints.jobs import SECONDS, JobCountAnswer, counted_within
from pinlater.console.problems import invalid, refused

_JOBS = "/v1/queues/{queue}/jobs"

Continuation = Annotated[
    str | None, doc("From the answer to a request with the same filter: continues where that one ended.")
]
DryRun = Annotated[bool, doc("Changes nothing: the answer has the number of jobs that would change.")]


class DescriptorsRequest(RequestShape, frozen=True, kw_only=True):
    """The jobs to change."""

    descriptors: Descriptors


class RunNowRequest(RequestShape, frozen=True, kw_only=True):
    """The jobs to run, at once unless a time is given."""

    descriptors: Descriptors
    attempts: Annotated[Attempts, doc("Attempts that each failed job gets.")] = 1
    run_after_ms: RunAfter = None
    delay_ms: Delay = None


class ChangePriorityRequest(RequestShape, frozen=True, kw_only=True):
    """The jobs to change, and their new priority."""

    descriptors: Descriptors
    priority: Priority


class RetryFailedRequest(JobsFilter, frozen=True, kw_only=True):
    """Selects the failed jobs to return to the queue."""

    attempts: Annotated[Attempts, doc("Attempts that each job gets.")] = 1
    limit: Limit = 1000
    run_after_ms: RunAfter = None
    delay_ms: Delay = None
    cancelled: Annotated[bool, doc("Also retries cancelled jobs.")] = False
    continuation: Continuation = None
    dry_run: DryRun = False


class DeleteJobsQuery(JobsFilter, frozen=True, kw_only=True):
    """Selects the jobs to delete."""

    state: State
    limit: Limit = 1000
    for_good: Annotated[
        bool,
        doc("Deletes jobs that a filter selects without keeping copies: frees space at once, and cannot be undone."),
    ] = False
    continuation: Continuation = None
    dry_run: DryRun = False


class ChangedAnswer(JobCountAnswer, frozen=True, kw_only=True):
    """The number of jobs that were changed."""

    continuation: Annotated[
        str | None,
        doc(
            "Of a change by a filter, but for bulk runs, that ended before it had looked at all jobs: send it to go on."
        ),
    ] = None


class DeletedAnswer(ChangedAnswer, frozen=True, kw_only=True):
    """The number of jobs that were deleted."""

    run: Annotated[
        str | None,
        doc(
            "The bulk run that deletes the jobs, which can be undone; null if there is none. With `incomplete` it may still be running."
        ),
    ] = None


@endpoint("POST", f"{_JOBS}/cancel", calls="cancel")
async def cancel_jobs(call: ApiCall[Nothing, DescriptorsRequest]) -> ResultsAnswer:
    """Cancels waiting and running jobs: they become failed, with the status `cancelled`."""
    return results_shown(await call.client.cancel(call.queue, call.body.descriptors))


@endpoint("POST", f"{_JOBS}/run-now", calls="run_jobs")
async def run_jobs_now(call: ApiCall[Nothing, RunNowRequest]) -> ResultsAnswer:
    """Makes waiting jobs due, and returns failed jobs to the queue."""
    body = call.body
    run_after_ms = due_ms(body.run_after_ms, body.delay_ms, call.now_ms)
    done = await call.client.run_jobs(call.queue, body.descriptors, attempts=body.attempts, run_after_ms=run_after_ms)
    return results_shown(done)


@endpoint("POST", f"{_JOBS}/change-priority", calls="change_priority")
async def change_priority(call: ApiCall[Nothing, ChangePriorityRequest]) -> MovedJobsAnswer:
    """Gives waiting and failed jobs another priority, and with it another descriptor. The old descriptor no longer names a job. A repeat is
    safe.
    """
    moved = await call.client.change_priority(call.queue, call.body.descriptors, call.body.priority)
    return MovedJobsAnswer(
        results=[like(MovedJobItem, one, moved_to=one.moved_to or None, holder=one.holder or None) for one in moved]
    )


@endpoint("POST", f"{_JOBS}/retry-failed", calls="retry_failed, count_jobs, scan, run_jobs")
async def retry_failed_jobs(call: ApiCall[Nothing, RetryFailedRequest]) -> ChangedAnswer:
    """Returns failed jobs to the queue, up to a limit. The answer has their number. With a filter other than `priority` it takes the newest
    first, for a few seconds; after that the answer is `incomplete`. A repeat starts with the newest again; with the `continuation` of the
    answer it continues."""
    body = call.body
    run_after_ms = due_ms(body.run_after_ms, body.delay_ms, call.now_ms)
    wanted = filter_of(body, JobState.FAILED, skip_cancelled=not body.cancelled)
    is_plain = wanted._replace(skip_cancelled=False).is_plain
    _check_continuation(body.continuation, goes_on=not (body.dry_run or is_plain))
    if body.dry_run:
        counted = await count_all(call.client, call.queue, wanted, (False,), seconds=SECONDS)
        return ChangedAnswer(**counted_within(counted, body.limit))
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

    return ChangedAnswer(**await _changed(call, wanted, retry, body))


async def _changed(
    call: ApiCall[Any, Any],
    wanted: JobFilter,
    change: Callable[[Sequence[str]], Awaitable[int]],
    asked: RetryFailedRequest | DeleteJobsQuery,
) -> dict[str, Any]:
    """Changes the jobs that the filter finds, for some seconds. Returns the fields of the answer."""
    done = FoundJobsChange(call.client, call.queue, wanted)
    start = SCAN_START if asked.continuation is None else asked.continuation  # an empty one is refused
    await done.run(change, asked.limit, after=start, seconds=SECONDS)
    after = None if done.continuation == SCAN_END else done.continuation
    return {"jobs": done.number, "incomplete": done.incomplete, "continuation": after}


def _check_continuation(given: str | None, *, goes_on: bool) -> None:
    """Refuses the continuation of another request for one that can't go on: it would begin anew."""
    if given is not None and not goes_on:
        raise invalid("continuation", "is possible for a change by a filter that is neither a dry run nor a bulk run")


@endpoint(
    "DELETE", _JOBS, calls="delete_jobs, count_jobs, scan, delete_jobs_by_descriptor, start_bulk_run, list_bulk_runs"
)
async def delete_jobs(call: ApiCall[DeleteJobsQuery, Nothing]) -> DeletedAnswer:
    """Deletes jobs in a state, up to a limit. The answer has their number. With a filter other than `priority` a bulk run deletes them,
    the newest first: `run` names it, and it can be undone for a day. If it takes longer than a few seconds, or is stopped, the answer is
    `incomplete`; a run that was not stopped continues. With `for_good` there is no run; a repeat starts with the
    newest again, and with the `continuation` of the answer it continues."""
    query = call.query
    wanted = filter_of(query, state_of(query.state))
    _check_continuation(query.continuation, goes_on=query.for_good and wanted.compares and not query.dry_run)
    if query.dry_run:
        counted = await count_all(call.client, call.queue, wanted, halves_of(wanted.state), seconds=SECONDS)
        return DeletedAnswer(**counted_within(counted, query.limit))
    if wanted.is_plain or (query.for_good and not wanted.compares):
        state, priority, regex, *_ = wanted
        done = await call.client.delete_jobs(call.queue, state, priority=priority, regex=regex, limit=query.limit)
        return DeletedAnswer(jobs=done)
    if query.for_good:

        async def delete(piece: Sequence[str]) -> int:
            return await call.client.delete_jobs_by_descriptor(call.queue, piece, state=wanted.state)

        return DeletedAnswer(**await _changed(call, wanted, delete, query))
    run = await call.client.start_bulk_run(BulkOrder(call.queue, BulkAction.DELETE, wanted, max_jobs=query.limit))
    with suppress(PinLaterError):  # the caller must still learn which run it is
        run = await wait_for_end(call.client, run, seconds=SECONDS)
    if run.state is BulkState.FAILED:
        raise refused(HTTPStatus.CONFLICT, "RUN_FAILED", f"Run {run.id} failed after {run.changed} jobs: {run.detail}")
    return DeletedAnswer(jobs=run.changed, incomplete=run.state is not BulkState.DONE, run=run.id)


@endpoint("POST", f"{_JOBS}/delete", calls="delete_jobs_by_descriptor")
async def delete_jobs_by_descriptor(call: ApiCall[Nothing, DescriptorsRequest]) -> JobCountAnswer:
    """Deletes the named jobs, whatever their state. The answer has their number."""
    return JobCountAnswer(jobs=await call.client.delete_jobs_by_descriptor(call.queue, call.body.descriptors))
