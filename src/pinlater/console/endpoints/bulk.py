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
    Annotated[float, Meta(ge=RATE_MIN, le=RATE_MAX)] | None,
    doc("The maximum number of changes per second; no limit without it."),
]


class BulkPreviewQuery(JobsFilter, frozen=True, kw_only=True):
    """Selects jobs of the queue."""

    state: State = "failed"


class BulkRequest(JobsFilter, frozen=True, kw_only=True):
    """The change, and the jobs of the queue that it is for."""

    state: Annotated[State | None, doc("Needed for `delete` and `cancel`; `retry` changes failed jobs only.")] = None
    action: Annotated[
        ActionName, doc("`retry` changes failed jobs, `cancel` pending and running ones, `delete` jobs of any state.")
    ]
    attempts: Attempts = 1
    cancelled: Annotated[bool, doc("Also retries cancelled jobs.")] = False
    jobs_per_second: JobsPerSecond = None
    for_good: Annotated[bool, doc("Deletes without copies: frees space at once, and cannot be undone.")] = False
    expected: Annotated[
        Annotated[int, Meta(ge=0, le=EXPECTED_MAX)] | None,
        doc("The number of matching jobs, as a preview reported it. Shown with the progress only."),
    ] = None


class UndoBulkRequest(RequestShape, frozen=True, kw_only=True):
    """The run whose deleted jobs are restored."""

    run: str
    jobs_per_second: JobsPerSecond = None


class StopBulkRequest(RequestShape, frozen=True, kw_only=True):
    """The run to stop."""

    run: str


class BulkRunItem(AnswerShape, frozen=True, kw_only=True):
    """A change of many jobs, in progress or ended."""

    id: str
    queue: str
    action: Annotated[Literal["retry", "delete", "cancel", "restore"], doc("`restore`: an undo of the run `undoes`.")]
    filter: FilterItem
    attempts: int
    jobs_per_second: float | None
    for_good: Annotated[bool, doc("No copies of deleted jobs are kept, so the run cannot be undone.")]
    undoes: str | None
    started_by: Annotated[str, doc("The source of the caller.")]
    started_ms: int
    state: Literal["running", "stopped", "done", "failed"]
    looked: Annotated[int, doc("Jobs that were compared.")]
    changed: int
    news_ms: Annotated[int, doc("When its progress was last reported.")]
    ended_ms: int | None
    detail: Annotated[str, doc("What the run waits for, why it failed, or what it could not do.")]
    undo_until_ms: Annotated[
        int | None, doc("All jobs that it has deleted can be restored until then; null if there are none to restore.")
    ]
    to_look_at: Annotated[
        int | None, doc("The approximate number of jobs that it compares; null while a shard is unreachable.")
    ]
    expected: Annotated[int | None, doc("The approximate number of jobs that it changes in total; null if unknown.")]
    percent: Annotated[
        Annotated[int, Meta(ge=0, le=100)] | None,
        doc("The progress: at most 99 until the run is done; null if unknown."),
    ]
    left_ms: Annotated[
        int | None,
        doc(
            "The approximate remaining time, at the speed so far; null for a run that has ended, is stopping, waits, or makes no progress."
        ),
    ]


class BulkRunsAnswer(AnswerShape, frozen=True, kw_only=True):
    """Runs, newest first."""

    runs: Sequence[BulkRunItem]
    incomplete: Annotated[bool, doc("A shard was unreachable, so runs that it keeps may be missing.")]
    missing_shards: Annotated[Sequence[str], doc("The names of the unreachable shards.")]


class BulkPreviewAnswer(AnswerShape, frozen=True, kw_only=True):
    """What a run would change now."""

    jobs: int
    more: Annotated[bool, doc("Not all jobs were compared, so there may be more.")]
    samples: Annotated[Sequence[JobItem], doc("The ten newest jobs.")]


@endpoint("POST", _BULK, calls="start_bulk_run", status=HTTPStatus.CREATED)
async def start_bulk_run(call: ApiCall[Nothing, BulkRequest]) -> BulkRunItem:
    """Starts to change jobs. The servers do this in the background and continue after a restart. A job whose state has changed in the
    meantime is not changed."""
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
    """Returns how many jobs a run would change now, and the newest of them. Changes nothing. It counts for a few seconds at most; `more`
    says whether there may be more."""
    wanted = filter_of(call.query, state_of(call.query.state))
    counted = await count_all(call.client, call.queue, wanted, halves_of(wanted.state), seconds=SECONDS)
    samples = await newest_of(call.client, call.queue, wanted, min(SAMPLES, counted.jobs))
    return BulkPreviewAnswer(jobs=counted.jobs, more=counted.incomplete, samples=[job_shown(job) for job in samples])


@endpoint("POST", f"{_BULK}/stop", calls="stop_bulk_run")
async def stop_bulk_run(call: ApiCall[Nothing, StopBulkRequest]) -> BulkRunItem:
    """Stops a run of the queue. Changes that it has made are kept. A run that has ended is not affected."""
    return _shown(await call.client.stop_bulk_run(call.queue, call.body.run))


@endpoint("POST", f"{_BULK}/undo", calls="undo_bulk_run", status=HTTPStatus.CREATED)
async def undo_bulk_run(call: ApiCall[Nothing, UndoBulkRequest]) -> BulkRunItem:
    """Starts to restore the jobs that a run of the queue has deleted in the last day, as they were. The servers do this in the background,
    as a separate run. A job is not restored while another job holds its unique key; `detail` says how many."""
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
