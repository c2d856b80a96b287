"""Changes of many jobs in the background: what a filter of jobs would change, and the progress of the runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, get_args

from pinlater.client import BulkAction, BulkState
from pinlater.client.bulk import Undo, progress_in_words, undone_by, unreachable
from pinlater.console.endpoints.bulk import (
    ActionName,
    BulkPreviewQuery,
    BulkRequest,
    BulkRunItem,
    StopBulkRequest,
    UndoBulkRequest,
    get_bulk_runs,
    preview_bulk_run,
    start_bulk_run,
    stop_bulk_run,
    undo_bulk_run,
)
from pinlater.console.endpoints.fields import QueuesQuery, State
from pinlater.console.endpoints.forms import state_of
from pinlater.console.pages.actions import BackForm
from pinlater.console.pages.filter_fields import FilterQuery, asked_of, from_form, in_words, to_form, wanted_of
from pinlater.console.pages.listed_job import rows_of
from pinlater.console.pages.page import Goto, PageCall, PageView
from pinlater.console.reading import fields_of
from pinlater.domain.bulk import STATES_OF
from pinlater.domain.wording import counted

RUNS = 100


class BulkPageQuery(FilterQuery, frozen=True, kw_only=True):
    """The filter for jobs of the queue, with the fields of the queue's page."""

    state: State = "failed"


class BulkRunForm(BackForm, frozen=True, kw_only=True):
    """`run`: its id."""

    run: str


class RunRow(NamedTuple):
    """A run, with the words for its change and its progress. `undo_until_ms`: until when it can be undone, or None if it can't
    now. `undone_by`: the run that restores its jobs, or has restored them."""

    run: BulkRunItem
    chosen: str
    progress: str
    undo_until_ms: int | None
    undone_by: str | None


async def show(call: PageCall) -> PageView:
    """Shows the page. Makes one call."""
    found = await call.api.ask(get_bulk_runs, query=QueuesQuery())
    runs = found.runs
    undone = undone_by(Undo(run.id, run.undoes, BulkState(run.state), run.detail) for run in runs)
    rows = [
        RunRow(run, _words(run), _progress(run), _undo_until_ms(run, call.now_ms), undone.get(run.id))
        for run in runs[:RUNS]
    ]
    return PageView(
        "Bulk",
        polls=any(run.state == "running" for run in runs),
        runs=rows,
        total=len(runs),
        lacks=unreachable(found.missing_shards) if found.incomplete else "",
    )


async def preview(call: PageCall) -> PageView:
    """Shows what a run would change. Makes two calls, for the number of jobs and the newest of them, or four for waiting jobs."""
    query = call.read(BulkPageQuery)
    wanted = wanted_of(call, query)
    preview = BulkPreviewQuery(state=query.state, **wanted)
    found = await call.api.ask(preview_bulk_run, queue=call.queue, query=preview)
    state = state_of(query.state)
    fields = {"state": query.state, **to_form(wanted), "expected": None if found.more else found.jobs}
    return PageView(
        f"Change jobs of {call.queue}",
        polls=False,
        queue=call.queue,
        chosen=_chosen(query.state, {word.replace("_", " "): value for word, value in asked_of(query).items()}),
        jobs=found.jobs,
        more=found.more,
        samples=rows_of(found.samples),
        actions=[name for name in get_args(ActionName) if state in STATES_OF[BulkAction(name)]],
        fields={name: value for name, value in fields.items() if value not in (None, "")},
    )


async def start(call: PageCall) -> Goto:
    """Begins a run."""
    wanted = fields_of(from_form(call.fields), BulkRequest, "form")
    run = await call.api.ask(start_bulk_run, queue=call.queue, body=wanted)
    told = f"The servers {run.action} jobs of {call.queue} in the background: run {run.id}."
    undone = " It can be undone for a day." if run.action == "delete" and not run.for_good else ""
    return Goto("/bulk", told + undone)


async def stop(call: PageCall) -> Goto:
    """Ends a run."""
    form = call.read(BulkRunForm)
    run = await call.api.ask(stop_bulk_run, queue=call.queue, body=StopBulkRequest(run=form.run))
    told = "stops" if run.state == "stopped" else f"had ended already ({run.state})"
    return Goto("/bulk", f"Run {run.id} {told}. It has changed {counted(run.changed, 'job')}.")


async def undo(call: PageCall) -> Goto:
    """Restores the jobs that a run has deleted."""
    form = call.read(BulkRunForm)
    run = await call.api.ask(undo_bulk_run, queue=call.queue, body=UndoBulkRequest(run=form.run))
    return Goto("/bulk", f"The servers restore the deleted jobs of {call.queue} in the background: run {run.id}.")


def _undo_until_ms(run: BulkRunItem, now_ms: int) -> int | None:
    until_ms = run.undo_until_ms
    return None if until_ms is None or run.ended_ms is None or until_ms <= now_ms else until_ms


def _progress(run: BulkRunItem) -> str:
    """Returns the progress of a run; a finished run shows its state instead."""
    return "" if run.state == "done" else progress_in_words(BulkState(run.state), run.percent, run.left_ms)


def _words(run: BulkRunItem) -> str:
    if run.undoes is not None:
        return f"the jobs that run {run.undoes} has deleted"
    return _chosen(run.filter.state, in_words(run.filter))


def _chosen(state: str, fields: Mapping[str, object]) -> str:
    rest = ", ".join(f"{name} {value}" for name, value in fields.items())
    return f"{state.replace('_', ' ')} jobs{f' with {rest}' if rest else ''}"
