"""Changes of many jobs in the background: what they would change, and how far they are."""

from __future__ import annotations

from pinlater.client import BulkAction, BulkOrder, BulkRun
from pinlater.client._filtered_jobs import count_all, halves_of, newest_of
from pinlater.client.bulk import state_for
from pinlater.console.endpoint import ApiCall
from pinlater.console.endpoints.forms import filter_of, job_shown, state_of
from pinlater.console.endpoints.jobs import SECONDS
from pinlater.console.problems import invalid
from pinlater.console.shapes.bulk import (
    BulkPreviewAnswer,
    BulkPreviewQuery,
    BulkRequest,
    BulkRunItem,
    BulkRunsAnswer,
    BulkRunsQuery,
    StopBulkRequest,
    UndoBulkRequest,
)
from pinlater.console.shapes.fields import Nothing
from pinlater.console.shapes.filters import FilterItem
from pinlater.domain.job_filter import words_of

SAMPLES = 10


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
    order = BulkOrder(
        call.queue,
        action,
        filter_of(body, state, skip_cancelled=action is BulkAction.RETRY and not body.cancelled),
        body.attempts,
        body.jobs_per_second,
        body.for_good,
        expected=body.expected,
    )
    return _shown(await call.client.start_bulk_run(order))


async def preview_bulk_run(call: ApiCall[BulkPreviewQuery, Nothing]) -> BulkPreviewAnswer:
    """Returns how many jobs a run would change now, and the newest of them. Changes nothing. It counts for some seconds: `more` says that
    there may be more."""
    wanted = filter_of(call.query, state_of(call.query.state))
    counted = await count_all(call.client, call.queue, wanted, halves_of(wanted.state), seconds=SECONDS)
    samples = await newest_of(call.client, call.queue, wanted, min(SAMPLES, counted.jobs))
    return BulkPreviewAnswer(jobs=counted.jobs, more=counted.incomplete, samples=[job_shown(job) for job in samples])


async def undo_bulk_run(call: ApiCall[Nothing, UndoBulkRequest]) -> BulkRunItem:
    """Begins to bring back the jobs that a run of the queue has deleted in the last day, as they were. The servers do it in the background,
    as a run of its own. A job is not restored while another job holds its unique key; `detail` says how many."""
    body = call.body
    return _shown(await call.client.undo_bulk_run(call.queue, body.run, jobs_per_second=body.jobs_per_second))


async def stop_bulk_run(call: ApiCall[Nothing, StopBulkRequest]) -> BulkRunItem:
    """Stops a run of the queue. What it has changed stays so; a run that has ended stays as it is."""
    return _shown(await call.client.stop_bulk_run(call.queue, call.body.run))


async def get_bulk_runs(call: ApiCall[BulkRunsQuery, Nothing]) -> BulkRunsAnswer:
    """Returns the runs of the last 30 days."""
    found = await call.client.list_bulk_runs(*call.query.queue)
    return BulkRunsAnswer(
        runs=list(map(_shown, found.runs)), incomplete=found.incomplete, missing_shards=list(found.missing_shards)
    )


def _shown(run: BulkRun) -> BulkRunItem:
    order = run.order
    return BulkRunItem(
        id=run.id,
        queue=order.queue,
        action=order.action.value,
        filter=FilterItem(state=order.filter.state.name.lower(), **words_of(order.filter)),
        attempts=order.attempts,
        jobs_per_second=order.jobs_per_second,
        for_good=order.for_good,
        undoes=order.undoes,
        started_by=run.who,
        started_ms=run.started_ms,
        state=run.state.value,
        looked=run.looked,
        changed=run.changed,
        news_ms=run.news_ms,
        ended_ms=run.ended_ms,
        detail=run.detail,
        undo_until_ms=run.undo_until_ms,
        to_look_at=run.to_look_at,
        expected=run.expected,
        percent=run.percent,
        left_ms=run.left_ms,
    )
