"""`pinlater bulk ...`: changes of many jobs that the servers execute in the background."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Annotated

import typer

from pinlater.cli import notes, options, output
from pinlater.cli.filter_options import ChosenJobs, with_filter
from pinlater.cli.watch import EVERY, Every, Watch, interval_ms, show_answers
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
    JobState,
)
from pinlater.client._filtered_jobs import count_all, halves_of, newest_of
from pinlater.client.bulk import Undo, progress_in_words, state_for, undone_by, unreachable
from pinlater.domain.bulk import RATE_MAX, RATE_MIN
from pinlater.domain.job_filter import words_of
from pinlater.domain.wording import counted

SAMPLES = 10


class BulkActionName(str, Enum):  # noqa: UP042 - the option's words, not the enum's
    """What happens to each job."""

    RETRY = "retry"
    DELETE = "delete"
    CANCEL = "cancel"


@with_filter
def start(
    queue: options.QueueName,
    action: Annotated[
        BulkActionName,
        typer.Option("--action", case_sensitive=False, metavar="ACTION", help="What to do: retry, delete or cancel."),
    ],
    chosen: ChosenJobs,
    state: Annotated[
        options.State | None,
        typer.Option(
            "--state",
            case_sensitive=False,
            metavar="STATE",
            help=f"Jobs in this state: {options.STATES}. Needed to delete and to cancel.",
        ),
    ] = None,
    cancelled: Annotated[bool, typer.Option("--cancelled", help="Retry cancelled jobs too.")] = False,
    attempts: Annotated[int, typer.Option("--attempts", min=1, help="Attempts of a job that is retried.")] = 1,
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="N", help="At most this number of changes a second.")
    ] = None,
    for_good: Annotated[
        bool, typer.Option("--for-good", help="Delete without copies: frees space at once, and cannot be undone.")
    ] = False,
    expect: Annotated[
        int | None,
        typer.Option(
            "--expect", metavar="N", min=0, help="How many jobs fit, as --dry-run tells: `bulk list` shows it then."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing: show how many jobs fit, and some of them.")
    ] = False,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Begin to retry, delete or cancel many jobs. The options choose the jobs. The servers do it in the background, also over restarts.

    `bulk list` shows how far it is and when about it ends. A job whose state has changed meanwhile stays as it is.
    `bulk undo` brings deleted jobs back for a day.

    Example: pinlater bulk start emails --action retry --error 'Connection refused' --rate 100 --dry-run
    """
    does = BulkAction(action.value)
    of_state = _state_for(does, state)
    _check_rate(rate)
    if for_good and does is not BulkAction.DELETE:
        raise typer.BadParameter("only a delete can be for good", param_hint="--for-good")
    wanted = chosen.of(of_state, skip_cancelled=does is BulkAction.RETRY and not cancelled)
    order = BulkOrder(queue, does, wanted, attempts, rate, for_good, expected=expect)
    if dry_run:
        show_fitting(server, timeout, queue, wanted, json)
        return
    run = options.ask(server, timeout, lambda client: client.start_bulk_run(order))
    _print_started(run, json)
    if json:
        return
    jobs = f"{of_state.name.lower()} jobs of {queue}"
    notes.write(f"the servers {action.value} {jobs} now: `pinlater bulk list {queue}` shows how far they are")


def list_runs(
    queues: options.QueueNames = None,
    watch: Watch = False,
    every: Every = EVERY,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """List the bulk runs of the last 30 days, newest first. Without QUEUE, it lists those of all queues.

    Example: pinlater bulk list emails --watch
    """
    every_ms = interval_ms(watch, every)

    async def show(client: AsyncClient) -> None:
        async def ask() -> BulkRunList:
            return await client.list_bulk_runs(*(queues or []))

        await show_answers(ask, lambda found: _print_list(found, json, in_one_line=watch), every_ms)

    options.ask(server, timeout, show)


def stop(
    queue: options.QueueName,
    run: Annotated[str, typer.Argument(metavar="RUN", show_default=False)],
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Stop a bulk run. The jobs that it has changed stay changed.

    Example: pinlater bulk stop emails 0123456789abcdef
    """
    stopped = options.ask(server, timeout, lambda client: client.stop_bulk_run(queue, run))
    _print([stopped], json, in_one_line=False)
    if stopped.state in {BulkState.DONE, BulkState.FAILED} and not json:
        notes.write("the run had ended: there was nothing to stop")


def undo(
    queue: options.QueueName,
    run: Annotated[str, typer.Argument(metavar="RUN", show_default=False)],
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="N", help="About this number of jobs a second at most.")
    ] = None,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Bring back the jobs that a bulk run has deleted. That is possible for a day, and the jobs are as they were. The servers do
    it in the background.

    A job is not restored while another job holds its unique key; `bulk list` shows how many. Undo again once the keys are free.

    Example: pinlater bulk undo emails 0123456789abcdef
    """
    _check_rate(rate)
    undoing = options.ask(server, timeout, lambda client: client.undo_bulk_run(queue, run, jobs_per_second=rate))
    _print_started(undoing, json)
    if json:
        return
    notes.write(f"the servers bring jobs of {queue} back now: `pinlater bulk list {queue}` shows how far they are")


def _print_started(run: BulkRun, as_json: bool) -> None:
    with output.only_record(f"run {run.id} has begun"):
        if as_json:
            output.print_json(_as_json(run))
        else:
            output.print_lines([run.id])


def _state_for(action: BulkAction, named: options.State | None) -> JobState:
    try:
        return state_for(action, None if named is None else named.wire)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--state") from None


def _check_rate(rate: float | None) -> None:
    if rate is not None and not RATE_MIN <= rate <= RATE_MAX:
        raise typer.BadParameter(f"must be from {RATE_MIN} to {RATE_MAX:,.0f}", param_hint="--rate")


def show_fitting(
    server: str, timeout_s: float, queue: str, wanted: JobFilter, as_json: bool, limit: int | None = None
) -> None:
    """Prints how many jobs a change with this filter, and this limit, would change now, and the newest of them."""

    async def ask(client: AsyncClient) -> tuple[JobCount, Sequence[JobInfo]]:
        samples = await newest_of(client, queue, wanted, SAMPLES if limit is None else min(SAMPLES, limit))
        return await count_all(client, queue, wanted, halves_of(wanted.state)), samples

    count, samples = options.ask(server, timeout_s, ask)
    jobs = count.jobs if limit is None else min(limit, count.jobs)
    more = count.incomplete and jobs != limit
    takes_others = jobs < count.jobs and wanted._replace(skip_cancelled=False).is_plain
    if takes_others:
        samples = ()
    if as_json:
        output.print_json({"jobs": jobs, "more": more, "samples": list(map(output.info_json, samples))})
        return
    told = f"{'at least ' if more else ''}{counted(jobs, f'{wanted.state.name.lower()} job')} would change"
    output.print_lines([told])
    if samples:
        rows = [(job.descriptor, output.task_of(job), output.age_of(job), output.error_of(job)) for job in samples]
        output.print_blocks(["descriptor", "task", "age", "error"], rows)
        if jobs > len(rows):
            notes.write(f"these are the newest {len(rows)} of them")
    if takes_others:
        notes.write("the oldest are taken first, which a list does not show: there are no samples")


def _print_list(found: BulkRunList, as_json: bool, *, in_one_line: bool) -> None:
    if as_json:
        shown = {"incomplete": found.incomplete, "missing_shards": list(found.missing_shards)}
        undone = _undone_by(found.runs)
        runs = [{**_as_json(run), "undone_by": undone.get(run.id)} for run in found.runs]
        output.print_json({"runs": runs, **shown}, in_one_line=in_one_line)
        return
    _print(found.runs, as_json, in_one_line=in_one_line)
    if found.incomplete:
        output.warn_incomplete(unreachable(found.missing_shards))


def _print(runs: Sequence[BulkRun], as_json: bool, *, in_one_line: bool) -> None:
    if as_json:
        output.print_json({"runs": list(map(_as_json, runs))}, in_one_line=in_one_line)
        return
    columns = ["run", "queue", "action", "state", "progress", "looked at", "changed", "started", "undo", "by"]
    undone = _undone_by(runs)
    rows = [
        (
            run.id,
            run.order.queue,
            _action(run.order),
            run.state.value,
            progress_in_words(run.state, run.percent, run.left_ms) or None,
            run.looked,
            _changed(run),
            output.iso(run.started_ms),
            _undo(run, undone.get(run.id)),
            run.who or None,
            run.detail or None,
        )
        for run in runs
    ]
    output.print_blocks([*columns, "detail"], rows, without_rows="no bulk run in the last 30 days")


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


def _as_json(run: BulkRun) -> dict[str, object]:
    order = run.order
    wanted = {"state": order.filter.state.name, **words_of(order.filter)}
    told = order._asdict() | {"action": order.action.value, "filter": wanted}
    return run._asdict() | {"order": told, "state": run.state.value}
