"""Changes of many jobs in the background: what they would change, and how far they are."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Literal

from msgspec import Meta

from pinlater.client import BulkAction, BulkOrder, BulkRun
from pinlater.client._filtered_jobs import count_all, halves_of, newest_of
from pinlater.client.bulk import state_for
from pinlater.console import costs
from pinlater.console.endpoint import ApiCall, endpoint
from pinlater.console.endpoints.fields import AnswerShape, Attempts, Nothing, QueuesQuery, RequestShape, State, doc
from pinlater.console.endpoints.filters import FilterItem, JobsFilter
from pinlater.console.endpoints.forms import filter_of, like, state_of
from pinlater.console.endpoints.jobs import SECONDS, JobItem, job_shown
from pinlater.console.problems import invalid
from pinlater.domain.bulk import EXPECTED_MAX, RATE_MAX, RATE_MIN
from pinlater.domain.job_filter import words_of

SAMPLES = 10
_BULK = "/v1/queues/{queue}/bulk"

ActionName = Literal["retry", "delete", "cancel"]
JobsPerSecond = Annotated[
    Annotated[float, Meta(ge=RATE_MIN, le=RATE_MAX)] | None, doc("The most changes a second; without it as many as go.")
]


class BulkPreviewQuery(JobsFilter, frozen=True, kw_only=True):
    """Which jobs of the queue."""

    state: State = "failed"


class BulkRequest(JobsFilter, frozen=True, kw_only=True):
    """What to do, and with which jobs of the queue."""

    state: Annotated[State | None, doc("Needed for `delete` and `cancel`; `retry` changes failed jobs only.")] = None
    action: Annotated[
        ActionName, doc("`retry` changes failed jobs, `cancel` pending and running ones, `delete` jobs of any state.")
    ]
    attempts: Attempts = 1
    cancelled: Annotated[bool, doc("Retries cancelled jobs too.")] = False
    jobs_per_second: JobsPerSecond = None
    for_good: Annotated[bool, doc("Deletes without copies: frees space at once, and cannot be undone.")] = False
    expected: Annotated[
        Annotated[int, Meta(ge=0, le=EXPECTED_MAX)] | None,
        doc("How many jobs fit, as a preview tells. Shown with the progress; decides nothing."),
    ] = None


class UndoBulkRequest(RequestShape, frozen=True, kw_only=True):
    """The run whose deleted jobs are to come back."""

    run: str
    jobs_per_second: JobsPerSecond = None


class StopBulkRequest(RequestShape, frozen=True, kw_only=True):
    """The run to stop."""

    run: str


class BulkRunItem(AnswerShape, frozen=True, kw_only=True):
    """A change of many jobs, under way or ended."""

    id: str
    queue: str
    action: Annotated[Literal["retry", "delete", "cancel", "restore"], doc("`restore`: an undo of the run `undoes`.")]
    filter: FilterItem
    attempts: int
    jobs_per_second: float | None
    for_good: Annotated[bool, doc("No copies of deleted jobs are kept.")]
    undoes: str | None
    started_by: Annotated[str, doc("The source of the caller.")]
    started_ms: int
    state: Literal["running", "stopped", "done", "failed"]
    looked: Annotated[int, doc("Jobs that were compared.")]
    changed: int
    news_ms: Annotated[int, doc("When its progress was told last.")]
    ended_ms: int | None
    detail: Annotated[str, doc("What it waits for, why it failed, or what it could not do.")]
    undo_until_ms: Annotated[
        int | None, doc("Until then all that it has deleted can be restored; null if there is nothing to restore.")
    ]
    to_look_at: Annotated[
        int | None, doc("About how many jobs its look compares; null while a shard could not be asked.")
    ]
    expected: Annotated[int | None, doc("About how many jobs it changes in all; null if not known.")]
    percent: Annotated[
        Annotated[int, Meta(ge=0, le=100)] | None, doc("How far it is: at most 99 until it is done; null if not known.")
    ]
    left_ms: Annotated[
        int | None,
        doc(
            "About how long it takes yet, at its speed so far; null for a run that has ended, stops, waits or stands still."
        ),
    ]


class BulkRunsAnswer(AnswerShape, frozen=True, kw_only=True):
    """The newest first."""

    runs: Sequence[BulkRunItem]
    incomplete: Annotated[bool, doc("A shard could not be asked: runs that it keeps may be missing.")]
    missing_shards: Annotated[Sequence[str], doc("The names of these shards.")]


class BulkPreviewAnswer(AnswerShape, frozen=True, kw_only=True):
    """What a run would change now."""

    jobs: int
    more: Annotated[bool, doc("Not all jobs were compared, so that there may be more.")]
    samples: Annotated[Sequence[JobItem], doc("The newest ten.")]


@endpoint("POST", _BULK, calls="start_bulk_run", status=HTTPStatus.CREATED)
async def start_bulk_run(call: ApiCall[Nothing, BulkRequest]) -> BulkRunItem:
    """Begins to change jobs. The servers do it in the background, also over restarts. A job whose state has changed meanwhile stays as it
    is."""
    body = call.body
    action = BulkAction(body.action)
    try:
        state = state_for(action, None if body.state is None else state_of(body.state))
    except ValueError as error:
        raise invalid("state", str(error)) from None
    if body.for_good and action is not BulkAction.DELETE:
        raise invalid("for_good", "only a delete can be for good")
    wanted = filter_of(body, state, skip_cancelled=action is BulkAction.RETRY and not body.cancelled)
    order = BulkOrder(
        call.queue, action, wanted, body.attempts, body.jobs_per_second, body.for_good, expected=body.expected
    )
    return _shown(await call.client.start_bulk_run(order))


@endpoint("GET", f"{_BULK}/preview", calls="count_jobs, scan", cost=lambda _: costs.of_jobs(SAMPLES))
async def preview_bulk_run(call: ApiCall[BulkPreviewQuery, Nothing]) -> BulkPreviewAnswer:
    """Returns how many jobs a run would change now, and the newest of them. Changes nothing. It counts for some seconds: `more` says that
    there may be more."""
    wanted = filter_of(call.query, state_of(call.query.state))
    counted = await count_all(call.client, call.queue, wanted, halves_of(wanted.state), seconds=SECONDS)
    samples = await newest_of(call.client, call.queue, wanted, min(SAMPLES, counted.jobs))
    return BulkPreviewAnswer(jobs=counted.jobs, more=counted.incomplete, samples=[job_shown(job) for job in samples])


@endpoint("POST", f"{_BULK}/stop", calls="stop_bulk_run")
async def stop_bulk_run(call: ApiCall[Nothing, StopBulkRequest]) -> BulkRunItem:
    """Stops a run of the queue. What it has changed stays so; a run that has ended stays as it is."""
    return _shown(await call.client.stop_bulk_run(call.queue, call.body.run))


@endpoint("POST", f"{_BULK}/undo", calls="undo_bulk_run", status=HTTPStatus.CREATED)
async def undo_bulk_run(call: ApiCall[Nothing, UndoBulkRequest]) -> BulkRunItem:
    """Begins to bring back the jobs that a run of the queue has deleted in the last day, as they were. The servers do it in the background,
    as a run of its own. A job is not restored while another job holds its unique key; `detail` says how many."""
    body = call.body
    return _shown(await call.client.undo_bulk_run(call.queue, body.run, jobs_per_second=body.jobs_per_second))


@endpoint("GET", "/v1/bulk", calls="list_bulk_runs")
async def get_bulk_runs(call: ApiCall[QueuesQuery, Nothing]) -> BulkRunsAnswer:
    """Returns the runs of the last 30 days."""
    found = await call.client.list_bulk_runs(*call.query.queue)
    return like(BulkRunsAnswer, found, runs=list(map(_shown, found.runs)))


def _shown(run: BulkRun) -> BulkRunItem:
    order = run.order
    return like(
        BulkRunItem,
        run,
        queue=order.queue,
        action=order.action.value,
        filter=FilterItem(state=order.filter.state.name.lower(), **words_of(order.filter)),
        attempts=order.attempts,
        jobs_per_second=order.jobs_per_second,
        for_good=order.for_good,
        undoes=order.undoes,
        started_by=run.who,
    )
