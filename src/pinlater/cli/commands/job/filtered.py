"""`pinlater job count`, `retry` and `delete`: of the jobs that a filter chooses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, NamedTuple

import typer

from pinlater.cli import notes, options, output
from pinlater.cli.call import ServerCall
from pinlater.cli.commands.bulk import show_fitting
from pinlater.cli.commands.job.named import run_jobs
from pinlater.cli.filter_options import ChosenJobs
from pinlater.cli.queue_notes import say_if_no_group, say_if_paused
from pinlater.client import AsyncClient, BulkAction, BulkOrder, BulkState, JobCount, JobFilter, JobState, Outcome
from pinlater.client._filtered_jobs import FoundJobsChange, count_all, wait_for_end
from pinlater.client.errors import CallerError, InvalidArgument, PinLaterError, UnknownMethod
from pinlater.domain.clock import SystemClock
from pinlater.domain.errors import adding
from pinlater.domain.wording import counted

_UNREACHABLE = "a shard is unreachable, or the server did not say whether all took part: its jobs stay as they are; repeat the command"
_NOT_RETRIED = "expired, cancelled (--cancelled takes these), or another job has their unique key"
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing: show how many jobs fit, and some of them.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="The most jobs to change.")]


class Changed(NamedTuple):
    """How many jobs were changed. `incomplete`: the server did not read all jobs of the queue. `more`: --limit was reached before.
    `run`: the bulk run that changed them, if one did."""

    number: int
    incomplete: bool
    more: bool = False
    run: str | None = None


def count(
    call: ServerCall,
    queue: options.QueueName,
    chosen: ChosenJobs,
    state: options.StateOption = options.State.PENDING,
    future: options.Future = False,
) -> None:
    """Count jobs. The output says `incomplete` if a shard is unreachable.

    Example: pinlater job count emails --state failed
    """
    options.check_future(state, future)
    wanted = chosen.of(state.wire)
    found = call.ask(lambda client: _count(client, queue, wanted, future=future))
    asked = {"queue": queue, "state": state.name, "future": future}
    call.answer({**asked, "count": found.jobs, "incomplete": found.incomplete}, [str(found.jobs)])
    if found.incomplete and not call.json:
        output.warn_incomplete()


def retry_jobs(
    call: ServerCall,
    chosen: ChosenJobs,
    queue: options.QueueIfAny = None,
    descriptor: Annotated[
        list[str] | None,
        typer.Option("--descriptor", "-d", help="These jobs, failed (cancelled ones too) or waiting; may be repeated."),
    ] = None,
    cancelled: Annotated[bool, typer.Option("--cancelled", help="Cancelled jobs too.")] = False,
    attempts: Annotated[int, typer.Option(min=1, help="Attempts they get.")] = 1,
    delay: options.Delay = None,
    at: options.At = None,
    limit: Limit = 1000,
    dry_run: DryRun = False,
) -> None:
    """Put failed jobs back into the queue. With --descriptor, it takes the named jobs. Prints their number, or the result of each.

    Expired jobs stay as they are, and so do cancelled ones, unless --cancelled or --descriptor takes them. With an option that chooses
    jobs, other than --priority, it takes the jobs that `job list` shows, newest first.

    Example: pinlater job retry emails --attempts 3 --delay 5m
    """
    run_after_ms = options.due_ms(delay, at)
    wanted = chosen.of(JobState.FAILED, skip_cancelled=not cancelled)
    if descriptor and (not chosen.is_all or dry_run):
        raise typer.BadParameter("--descriptor excludes --dry-run and the options that choose jobs")
    of_queue, due = options.queue_of(queue, descriptor), _due(run_after_ms)
    if descriptor:
        run_jobs(call, descriptor, attempts, run_after_ms, f"retried {{}}; it is {due}")
        return
    if dry_run:
        show_fitting(call, of_queue, wanted, limit)
        return

    async def retry_oldest(client: AsyncClient) -> tuple[int, JobCount]:
        retried = await client.retry_failed(
            of_queue,
            priority=wanted.priority,
            attempts=attempts,
            run_after_ms=run_after_ms,
            limit=limit,
            cancelled=cancelled,
        )
        if retried:
            await say_if_paused(client, of_queue)
        return retried, await _count_left(client, of_queue, JobState.FAILED, wanted.priority)

    async def retry_found(client: AsyncClient) -> Changed:
        async def retry(piece: Sequence[str]) -> int:
            results = await client.run_jobs(
                of_queue, piece, attempts=attempts, run_after_ms=run_after_ms, only_failed=True
            )
            return sum(result.outcome is Outcome.APPLIED for result in results)

        done = await change_found("retried", call, client, of_queue, wanted, retry, limit, due)
        if done.number:
            await say_if_paused(client, of_queue)
        return done

    if not wanted._replace(skip_cancelled=False).is_plain:
        _print_changed("retried", call.ask(retry_found), call, _UNREACHABLE, due)
        return
    retried, left = call.ask(retry_oldest)
    more = retried == limit and (left.jobs > 0 or left.incomplete)
    _print_changed("retried", Changed(retried, left.incomplete, more), call, _UNREACHABLE, due)
    if retried < limit and left.jobs and not call.json:
        notes.write(_are_failed(left.jobs, retried))


def delete_jobs(
    call: ServerCall,
    chosen: ChosenJobs,
    queue: options.QueueIfAny = None,
    state: options.StateIfAny = None,
    descriptor: Annotated[
        list[str] | None, typer.Option("--descriptor", "-d", help="These jobs, in whatever state; may be repeated.")
    ] = None,
    limit: Limit = 1000,
    for_good: Annotated[
        bool, typer.Option("--for-good", help="Delete chosen jobs without copies: frees space at once; no undo.")
    ] = False,
    dry_run: DryRun = False,
) -> None:
    """Delete jobs of one state, or the jobs of --descriptor. Prints their number.

    With an option that chooses jobs, other than --priority, it deletes the jobs that `job list` shows, newest first, by a bulk run:
    `bulk undo` brings them back for a day. Other deletes, and those with --for-good, cannot be undone.

    Example: pinlater job delete emails --state failed --regex 'example\\.org'
    """
    if state is not None and descriptor:
        raise typer.BadParameter("--state and --descriptor exclude each other")
    if state is None and not descriptor:
        raise typer.BadParameter(
            f"delete needs the state of the jobs: {options.STATES}; or name jobs with --descriptor",
            param_hint="--state",
        )
    of_queue = options.queue_of(queue, descriptor)
    if state is None:
        if not chosen.is_all or dry_run:
            raise typer.BadParameter("--descriptor excludes --dry-run and the options that choose jobs")
        deleted = call.ask(lambda client: client.delete_jobs_by_descriptor(of_queue, descriptor or []))
        _print_changed("deleted", Changed(deleted, incomplete=False), call)
        return
    wanted = chosen.of(state.wire)
    if dry_run:
        show_fitting(call, of_queue, wanted, limit)
        return

    async def ask(client: AsyncClient) -> Changed:
        if wanted.is_plain or (for_good and not wanted.compares):
            return await _delete_by_state(client, of_queue, wanted, limit)
        if not for_good:
            return await _delete_by_run(call, client, of_queue, wanted, limit)

        async def delete(piece: Sequence[str]) -> int:
            return await client.delete_jobs_by_descriptor(of_queue, piece, state=wanted.state)

        return await change_found("deleted", call, client, of_queue, wanted, delete, limit)

    changed = call.ask(ask)
    _print_changed("deleted", changed, call, "" if changed.run else _UNREACHABLE)


def _due(run_after_ms: int | None) -> str:
    """Returns when retried jobs are due, in words that follow `it is`."""
    if run_after_ms is None or run_after_ms <= SystemClock().now_ms():
        return "due now"
    return f"due at {output.iso(run_after_ms)}"


def _are_failed(failed: int, retried: int) -> str:
    """Why jobs are FAILED after the command. Workers may have run the retried ones in the meantime."""
    if retried:
        verb = "is" if failed == 1 else "are"
        return f"{failed} {verb} failed now: retried and failed again, or not retried ({_NOT_RETRIED})"
    verb = "stays" if failed == 1 else "stay"
    return f"{failed} {verb} failed: {_NOT_RETRIED}"


async def _delete_by_state(client: AsyncClient, queue: str, wanted: JobFilter, limit: int) -> Changed:
    number = await client.delete_jobs(queue, wanted.state, priority=wanted.priority, regex=wanted.regex, limit=limit)
    left = await _count_left(client, queue, wanted.state, wanted.priority)
    more = number == limit and (left.jobs > 0 or left.incomplete)
    return Changed(number, left.incomplete, more)


async def _delete_by_run(call: ServerCall, client: AsyncClient, queue: str, wanted: JobFilter, limit: int) -> Changed:
    """Deletes by a bulk run, and waits for its end. If the command is stopped, the run continues, and its id has been printed."""
    try:
        run = await client.start_bulk_run(BulkOrder(queue, BulkAction.DELETE, wanted, max_jobs=limit))
    except CallerError as error:
        if isinstance(error, UnknownMethod) or error.detail == "TOO_MANY":
            raise adding(error, " (--for-good deletes without a bulk run)") from None
        raise
    notes.write(
        f"run {run.id} deletes the jobs, also if this command ends; `pinlater bulk stop {queue} {run.id}` stops it"
    )
    run = await wait_for_end(client, run, tell=lambda detail: notes.write(f"run {run.id} {detail}"))
    if run.state is BulkState.FAILED:
        raise InvalidArgument(f"run {run.id} failed after {run.changed} jobs: {run.detail}")
    if run.detail:
        notes.write(f"run {run.id}: {run.detail}")
    if run.state is BulkState.STOPPED:
        notes.write(f"run {run.id} was stopped before its end")
    if not run.changed:
        await say_if_no_group(client, queue, wanted.group)
    elif not call.json:
        notes.write(f"for a day, `pinlater bulk undo {queue} {run.id}` brings them back")
    return Changed(run.changed, run.state is not BulkState.DONE, run.changed >= limit, run.id)


async def _count(client: AsyncClient, queue: str, wanted: JobFilter, *, future: bool = False) -> JobCount:
    """Their number. An original server does not report whether a shard is unreachable."""
    try:
        return await count_all(client, queue, wanted, (future,))
    except UnknownMethod:
        if wanted.compares:
            raise
        state, priority, regex, *_ = wanted
        return JobCount(await client.count(queue, state, priority=priority, future=future, regex=regex))


async def _count_left(client: AsyncClient, queue: str, state: JobState, priority: int | None) -> JobCount:
    """The jobs in a state after a change of such jobs; incomplete if a shard is unreachable now, or the server can't tell."""
    try:
        return await _count(client, queue, JobFilter(state, priority))
    except PinLaterError:  # the caller must still learn how many changed
        return JobCount(0, incomplete=True)


async def change_found(
    what: str,
    call: ServerCall,
    client: AsyncClient,
    queue: str,
    wanted: JobFilter,
    change: Callable[[Sequence[str]], Awaitable[int]],
    limit: int,
    due: str = "",
) -> Changed:
    """Changes the jobs that `job list` shows, the newest first, in several requests. If a later one fails, prints how many changed
    before."""
    done = FoundJobsChange(client, queue, wanted)
    try:
        await done.run(change, limit)
    except BaseException:
        if done.number:
            _print_changed(what, Changed(done.number, incomplete=True), call, due=due)
        raise
    if not done.found:
        await say_if_no_group(client, queue, wanted.group)
    return Changed(done.number, done.incomplete, done.more)


def _print_changed(what: str, changed: Changed, call: ServerCall, warning: str = "", due: str = "") -> None:
    """The number, and what may remain: keys in JSON, otherwise lines on standard error, of which `warning` is that of `incomplete`.
    `due`: when the jobs are due, if that is worth a line."""
    told = f"{what} {counted(changed.number, 'job')}"
    if due and changed.number and not call.json:
        told += f"; {'it is' if changed.number == 1 else 'they are'} {due}"
    run = {} if changed.run is None else {"run": changed.run}
    with output.only_record(told):
        call.answer({what: changed.number, "incomplete": changed.incomplete, "more": changed.more, **run}, [told])
    if changed.more and not call.json:
        notes.write("more may remain: repeat the command, or raise --limit")
    if changed.incomplete and warning and not call.json:
        output.warn_incomplete(warning)
