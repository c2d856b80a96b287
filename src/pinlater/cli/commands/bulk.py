"""`pinlater bulk ...`: changes of many jobs that the servers execute in the background."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Annotated

import typer

from pinlater.cli import notes, options, output
from pinlater.cli.call import ServerCall
from pinlater.cli.filter_options import ChosenJobs
from pinlater.cli.watch import Watching
from pinlater.client import (
    AsyncClient,
    BulkAction,
    BulkOrder,
    BulkRun,
    BulkRunList,
    BulkState,
    JobCount,
    JobFilter,
    JobInfo,
)
from pinlater.client._filtered_jobs import count_all, halves_of, newest_of
from pinlater.client.bulk import Undo, progress_in_words, state_for, undone_by, unreachable
from pinlater.domain.bulk import RATE_MAX, RATE_MIN
from pinlater.domain.job_filter import words_of
from pinlater.domain.wording import counted

SAMPLES = 10
_SAMPLES: output.Columns[JobInfo] = {
    "descriptor": lambda job: job.descriptor,
    "task": output.task_of,
    "age": output.age_of,
    "error": output.error_of,
}


class BulkActionName(str, Enum):  # noqa: UP042 - the option's words, not the enum's
    """What happens to each job."""

    RETRY = "retry"
    DELETE = "delete"
    CANCEL = "cancel"


def start(
    call: ServerCall,
    queue: options.QueueName,
    action: Annotated[
        BulkActionName,
        typer.Option(case_sensitive=False, metavar="ACTION", help="What to do: retry, delete or cancel."),
    ],
    chosen: ChosenJobs,
    state: Annotated[
        options.State | None,
        typer.Option(
            case_sensitive=False,
            metavar="STATE",
            help=f"Jobs in this state: {options.STATES}. Needed to delete and to cancel.",
        ),
    ] = None,
    cancelled: Annotated[bool, typer.Option("--cancelled", help="Retry cancelled jobs too.")] = False,
    attempts: Annotated[int, typer.Option(min=1, help="Attempts of a job that is retried.")] = 1,
    rate: Annotated[float | None, typer.Option(metavar="N", help="At most this number of changes a second.")] = None,
    for_good: Annotated[
        bool, typer.Option("--for-good", help="Delete without copies: frees space at once, and cannot be undone.")
    ] = False,
    expect: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="How many jobs fit, as --dry-run tells: `bulk list` shows it then."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing: show how many jobs fit, and some of them.")
    ] = False,
) -> None:
    """Begin to retry, delete or cancel many jobs. The options choose the jobs. The servers do it in the background, also over restarts.

    `bulk list` shows how far it is and when about it ends. A job whose state has changed meanwhile stays as it is.
    `bulk undo` brings deleted jobs back for a day.

    Example: pinlater bulk start emails --action retry --error 'Connection refused' --rate 100 --dry-run
    """
    does = BulkAction(action.value)
    with options.naming("--state"):
        of_state = state_for(does, None if state is None else state.wire)
    _check_rate(rate)
    if for_good and does is not BulkAction.DELETE:
        raise typer.BadParameter("only a delete can be for good", param_hint="--for-good")
    wanted = chosen.of(of_state, skip_cancelled=does is BulkAction.RETRY and not cancelled)
    order = BulkOrder(queue, does, wanted, attempts, rate, for_good, expected=expect)
    if dry_run:
        show_fitting(call, queue, wanted)
        return
    _answer_started(call, call.ask(lambda client: client.start_bulk_run(order)))
    if not call.json:
        jobs = f"{of_state.name.lower()} jobs of {queue}"
        notes.write(f"the servers {action.value} {jobs} now: `pinlater bulk list {queue}` shows how far they are")


def list_runs(
    call: ServerCall,
    watching: Watching,
    queues: options.QueueNames = None,
) -> None:
    """List the bulk runs of the last 30 days, newest first. Without QUEUE, it lists those of all queues.

    Example: pinlater bulk list emails --watch
    """
    watching.ask_and_show(
        call,
        lambda client: client.list_bulk_runs(*(queues or [])),
        lambda found: _answer_list(call, found, in_one_line=watching.watch),
    )


def stop(
    call: ServerCall,
    queue: options.QueueName,
    run: Annotated[str, typer.Argument(metavar="RUN", show_default=False)],
) -> None:
    """Stop a bulk run. The jobs that it has changed stay changed.

    Example: pinlater bulk stop emails 0123456789abcdef
    """
    stopped = call.ask(lambda client: client.stop_bulk_run(queue, run))
    _answer(call, [stopped], {"runs": [as_json(stopped)]})
    if stopped.state in {BulkState.DONE, BulkState.FAILED} and not call.json:
        notes.write("the run had ended: there was nothing to stop")


def undo(
    call: ServerCall,
    queue: options.QueueName,
    run: Annotated[str, typer.Argument(metavar="RUN", show_default=False)],
    rate: Annotated[float | None, typer.Option(metavar="N", help="About this number of jobs a second at most.")] = None,
) -> None:
    """Bring back the jobs that a bulk run has deleted. That is possible for a day, and the jobs are as they were. The servers do
    it in the background.

    A job is not restored while another job holds its unique key; `bulk list` shows how many. Undo again once the keys are free.

    Example: pinlater bulk undo emails 0123456789abcdef
    """
    _check_rate(rate)
    _answer_started(call, call.ask(lambda client: client.undo_bulk_run(queue, run, jobs_per_second=rate)))
    if not call.json:
        notes.write(f"the servers bring jobs of {queue} back now: `pinlater bulk list {queue}` shows how far they are")


def _answer_started(call: ServerCall, run: BulkRun) -> None:
    with output.only_record(f"run {run.id} has begun"):
        call.answer(as_json(run), [run.id])


def _check_rate(rate: float | None) -> None:
    if rate is not None and not RATE_MIN <= rate <= RATE_MAX:
        raise typer.BadParameter(f"must be from {RATE_MIN} to {RATE_MAX:,.0f}", param_hint="--rate")


def show_fitting(call: ServerCall, queue: str, wanted: JobFilter, limit: int | None = None) -> None:
    """Prints how many jobs a change with this filter, and this limit, would change now, and the newest of them."""

    async def ask(client: AsyncClient) -> tuple[JobCount, Sequence[JobInfo]]:
        samples = await newest_of(client, queue, wanted, SAMPLES if limit is None else min(SAMPLES, limit))
        return await count_all(client, queue, wanted, halves_of(wanted.state)), samples

    count, samples = call.ask(ask)
    jobs = count.jobs if limit is None else min(limit, count.jobs)
    more = count.incomplete and jobs != limit
    takes_others = jobs < count.jobs and wanted._replace(skip_cancelled=False).is_plain
    if takes_others:
        samples = ()
    told = f"{'at least ' if more else ''}{counted(jobs, f'{wanted.state.name.lower()} job')} would change"
    call.answer({"jobs": jobs, "more": more, "samples": list(map(output.info_json, samples))}, [told])
    if call.json:
        return
    if samples:
        output.print_blocks(_SAMPLES, samples)
        if jobs > len(samples):
            notes.write(f"these are the newest {len(samples)} of them")
    if takes_others:
        notes.write("the oldest are taken first, which a list does not show: there are no samples")


def _answer_list(call: ServerCall, found: BulkRunList, *, in_one_line: bool) -> None:
    undone = _undone_by(found.runs)
    runs = [{**as_json(run), "undone_by": undone.get(run.id)} for run in found.runs]
    about = {"incomplete": found.incomplete, "missing_shards": list(found.missing_shards)}
    _answer(call, found.runs, {"runs": runs, **about}, in_one_line=in_one_line)
    if found.incomplete and not call.json:
        output.warn_incomplete(unreachable(found.missing_shards))


def _answer(call: ServerCall, runs: Sequence[BulkRun], document: object, *, in_one_line: bool = False) -> None:
    undone = _undone_by(runs)
    columns: output.Columns[BulkRun] = {
        "run": lambda run: run.id,
        "queue": lambda run: run.order.queue,
        "action": lambda run: _action(run.order),
        "state": lambda run: run.state.value,
        "progress": lambda run: progress_in_words(run.state, run.percent, run.left_ms) or None,
        "looked at": lambda run: run.looked,
        "changed": _changed,
        "started": lambda run: output.iso(run.started_ms),
        "undo": lambda run: _undo(run, undone.get(run.id)),
        "by": lambda run: run.who or None,
        "detail": lambda run: run.detail or None,
    }
    without_rows = "no bulk run in the last 30 days"
    call.answer(
        document, lambda: output.print_blocks(columns, runs, without_rows=without_rows), in_one_line=in_one_line
    )


def _undone_by(runs: Sequence[BulkRun]) -> dict[str, str]:
    return undone_by(Undo(run.id, run.order.undoes, run.state, run.detail) for run in runs)


def _undo(run: BulkRun, undone: str | None) -> str | None:
    """Returns until when the run can be undone, or which run undoes it."""
    if undone is not None:
        return f"undone by {undone}"
    return None if run.undo_until_ms is None else f"until {output.iso(run.undo_until_ms)}"


def _action(order: BulkOrder) -> str:
    if order.undoes is not None:
        return f"undo {order.undoes}"
    return f"{order.action.value} {order.filter.state.name.lower()}{' for good' if order.for_good else ''}"


def _changed(run: BulkRun) -> int | str:
    """Returns the number of changes, with the expected number while the run is under way."""
    if run.expected is None or run.state is not BulkState.RUNNING:
        return run.changed
    return f"{run.changed} of about {run.expected}"


def as_json(run: BulkRun) -> dict[str, object]:
    """A run in JSON."""
    order = run.order
    wanted = {"state": order.filter.state.name, **words_of(order.filter)}
    told = order._asdict() | {"action": order.action.value, "filter": wanted}
    return run._asdict() | {"order": told, "state": run.state.value}
