"""`pinlater job retry`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, NamedTuple

import typer

from pinlater.cli import notes, options, output
from pinlater.cli.commands.bulk import show_fitting
from pinlater.cli.commands.job.count import count_jobs
from pinlater.cli.commands.job.run_now import run_each_queue, show_runs
from pinlater.cli.filter_options import ALL_JOBS, ChosenJobs, with_filter
from pinlater.cli.queue_notes import say_if_no_group, say_if_paused
from pinlater.client import AsyncClient, JobCount, JobFilter, JobState, Outcome
from pinlater.client._filtered_jobs import FoundJobsChange
from pinlater.client.errors import PinLaterError
from pinlater.domain.clock import SystemClock
from pinlater.domain.wording import counted

UNREACHABLE = "a shard is unreachable, or the server did not say whether all took part: its jobs stay as they are; repeat the command"
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing: show how many jobs fit, and some of them.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="The most jobs to change.")]


@with_filter
def retry_jobs(
    queue: options.QueueIfAny = None,
    chosen: ChosenJobs = ALL_JOBS,
    descriptor: Annotated[
        list[str] | None,
        typer.Option("--descriptor", "-d", help="These jobs, failed (cancelled ones too) or waiting; may be repeated."),
    ] = None,
    cancelled: Annotated[bool, typer.Option("--cancelled", help="Cancelled jobs too.")] = False,
    attempts: Annotated[int, typer.Option("--attempts", min=1, help="Attempts they get.")] = 1,
    delay: Annotated[str | None, typer.Option("--delay", help="Due after this span: 90s, 5m, 2h, 1d.")] = None,
    at: Annotated[str | None, typer.Option("--at", help="Due at this time: 2030-01-31T12:00:00Z, now, or ms.")] = None,
    limit: Limit = 1000,
    dry_run: DryRun = False,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Put failed jobs back into the queue. With --descriptor, it takes the named jobs. Prints their number, or the result of each.

    Expired jobs stay as they are, and so do cancelled ones, unless --cancelled or --descriptor takes them. With an option that chooses
    jobs, other than --priority, it takes the jobs that `job list` shows, newest first.

    Example: pinlater job retry emails --attempts 3 --delay 5m
    """
    run_after_ms = options.due_ms(delay, at)
    wanted = chosen.of(JobState.FAILED, skip_cancelled=not cancelled)
    if descriptor:
        if not chosen.is_all or dry_run:
            raise typer.BadParameter("--descriptor excludes --dry-run and the options that choose jobs")
        options.queue_of(queue, descriptor)
        found = run_each_queue(server, timeout, descriptor, attempts, run_after_ms)
        show_runs(found, json, f"retried {{}}; it is {_due(run_after_ms)}")
        return

    of_queue = options.queue_of(queue, descriptor)
    if dry_run:
        show_fitting(server, timeout, of_queue, wanted, json, limit)
        return
    retry = _FailedJobsRetry(of_queue, wanted.priority, attempts, run_after_ms, limit)
    if wanted._replace(skip_cancelled=False).is_plain:
        retried, left = options.ask(server, timeout, lambda client: retry.all_failed(client, cancelled=cancelled))
        more = retried == limit and (left.jobs > 0 or left.incomplete)
        print_changed("retried", Changed(retried, left.incomplete, more), json, UNREACHABLE, _due(run_after_ms))
        if retried < limit and left.jobs and not json:
            notes.write(_are_failed(left.jobs, retried))
    else:
        done = options.ask(server, timeout, lambda client: retry.chosen(client, wanted, json))
        print_changed("retried", done, json, UNREACHABLE, _due(run_after_ms))


def _due(run_after_ms: int | None) -> str:
    """Returns when retried jobs are due, in words that follow `it is`."""
    if run_after_ms is None or run_after_ms <= SystemClock().now_ms():
        return "due now"
    return f"due at {output.iso(run_after_ms)}"


class _FailedJobsRetry(NamedTuple):
    """Which jobs go back into the queue, and how."""

    queue: str
    priority: int | None
    attempts: int
    run_after_ms: int | None
    limit: int

    async def all_failed(self, client: AsyncClient, *, cancelled: bool) -> tuple[int, JobCount]:
        """Retries jobs, the oldest first. Returns the number of retried jobs, and of those that are FAILED afterwards."""
        retried = await client.retry_failed(
            self.queue,
            priority=self.priority,
            attempts=self.attempts,
            run_after_ms=self.run_after_ms,
            limit=self.limit,
            cancelled=cancelled,
        )
        if retried:
            await say_if_paused(client, self.queue)
        return retried, await count_left(client, self.queue, options.State.FAILED, self.priority)

    async def chosen(self, client: AsyncClient, wanted: JobFilter, as_json: bool) -> Changed:
        """Retries the jobs that `job list` shows, the newest first."""

        async def retry(piece: Sequence[str]) -> int:
            results = await client.run_jobs(
                self.queue, piece, attempts=self.attempts, run_after_ms=self.run_after_ms, only_failed=True
            )
            return sum(result.outcome is Outcome.APPLIED for result in results)

        done = await change_found(
            "retried", client, self.queue, wanted, retry, self.limit, as_json, _due(self.run_after_ms)
        )
        if done.number:
            await say_if_paused(client, self.queue)
        return done


_NOT_RETRIED = "expired, cancelled (--cancelled takes these), or another job has their unique key"


def _are_failed(failed: int, retried: int) -> str:
    """Why jobs are FAILED after the command. Workers may have run the retried ones in the meantime."""
    if retried:
        verb = "is" if failed == 1 else "are"
        return f"{failed} {verb} failed now: retried and failed again, or not retried ({_NOT_RETRIED})"
    verb = "stays" if failed == 1 else "stay"
    return f"{failed} {verb} failed: {_NOT_RETRIED}"


async def count_left(client: AsyncClient, queue: str, state: options.State, priority: int | None) -> JobCount:
    """The jobs in a state after a change of such jobs; incomplete if a shard is unreachable now, or the server can't tell."""
    try:
        return await count_jobs(client, queue, JobFilter(state.wire, priority))
    except PinLaterError:  # the caller must still learn how many changed
        return JobCount(0, incomplete=True)


class Changed(NamedTuple):
    """How many jobs were changed. `incomplete`: the server did not read all jobs of the queue. `more`: --limit was reached before.
    `run`: the bulk run that changed them, if one did."""

    number: int
    incomplete: bool
    more: bool = False
    run: str | None = None


async def change_found(
    what: str,
    client: AsyncClient,
    queue: str,
    wanted: JobFilter,
    change: Callable[[Sequence[str]], Awaitable[int]],
    limit: int,
    as_json: bool,
    due: str = "",
) -> Changed:
    """Changes the jobs that match, in several requests. If a later one fails, prints how many changed before."""
    done = FoundJobsChange(client, queue, wanted)
    try:
        await done.run(change, limit)
    except BaseException:
        if done.number:
            print_changed(what, Changed(done.number, incomplete=True), as_json, due=due)
        raise
    if not done.found:
        await say_if_no_group(client, queue, wanted.group)
    return Changed(done.number, done.incomplete, done.more)


def print_changed(what: str, changed: Changed, as_json: bool, warning: str = "", due: str = "") -> None:
    """The number, and what may remain: keys in JSON, otherwise lines on standard error, of which `warning` is that of `incomplete`.
    `due`: when the jobs are due, if that is worth a line."""
    told = f"{what} {counted(changed.number, 'job')}"
    if as_json:
        with output.only_record(told):
            run = {} if changed.run is None else {"run": changed.run}
            output.print_json({what: changed.number, "incomplete": changed.incomplete, "more": changed.more, **run})
        return
    if due and changed.number:
        told += f"; {'it is' if changed.number == 1 else 'they are'} {due}"
    with output.only_record(told):
        output.print_lines([told])
    if changed.more:
        notes.write("more may remain: repeat the command, or raise --limit")
    if changed.incomplete and warning:
        output.warn_incomplete(warning)
