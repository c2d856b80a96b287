"""`pinlater retry-failed`."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, NamedTuple

import typer

from pinlater.cli import options, output
from pinlater.cli.commands.run_now import print_runs, run_all
from pinlater.cli.commands.scan import JobCriteria, ScanFilter, scan_queue
from pinlater.client import AsyncClient, JobState, Outcome

_PIECE = 500
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="The most jobs to change.")]


def retry_failed(
    queue: options.QueueName,
    descriptor: Annotated[
        list[str] | None,
        typer.Option("--descriptor", "-d", help="These jobs, failed or waiting; may be repeated."),
    ] = None,
    priority: options.Priority = None,
    task: options.OfTask = None,
    header: options.WithHeader = None,
    regex: options.Regex = None,
    cancelled: Annotated[bool, typer.Option("--cancelled", help="Cancelled jobs too.")] = False,
    attempts: Annotated[int, typer.Option("--attempts", min=1, help="Attempts they get.")] = 1,
    delay: Annotated[str | None, typer.Option("--delay", help="Due after this span: 90s, 5m, 2h, 1d.")] = None,
    at: Annotated[str | None, typer.Option("--at", help="Due at this time: 2030-01-31T12:00:00Z, now, or ms.")] = None,
    limit: Limit = 1000,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Put failed jobs, or the jobs named by --descriptor, back into the queue. Prints their number, or the result of each.

    Expired jobs stay as they are, and so do cancelled ones without --cancelled. With --task, --header or --regex it takes the jobs that
    `scan` shows, newest first.

    Example: pinlater retry-failed emails --attempts 3 --delay 5m
    """
    run_after_ms = options.due_ms(delay, at)
    if descriptor:
        if priority is not None or task or header or regex is not None:
            raise typer.BadParameter("--descriptor excludes --priority, --task, --header and --regex")
        options.check_queue(queue, descriptor)
        runs = options.ask(server, timeout, lambda client: run_all(client, descriptor, attempts, run_after_ms))
        print_runs(runs, json)
        return

    wanted = JobCriteria.of(task, options.headers_of(header or []) or {}, skip_cancelled=not cancelled)
    retry = _Retry(queue, priority, attempts, run_after_ms, limit)
    if wanted.of_any_task and regex is None:
        retried = options.ask(server, timeout, lambda client: retry.all_failed(client, cancelled=cancelled))
        print_number("retried", retried, json)
        if retried < limit and not json:
            _tell_how_many_stay(options.ask(server, timeout, retry.count_failed))
    else:
        print_changed("retried", options.ask(server, timeout, lambda c: retry.chosen(c, wanted, regex, json)), json)


class _Retry(NamedTuple):
    """Which jobs go back into the queue, and how."""

    queue: str
    priority: int | None
    attempts: int
    run_after_ms: int | None
    limit: int

    async def all_failed(self, client: AsyncClient, *, cancelled: bool) -> int:
        """Retries jobs, the oldest first; the number of retried jobs."""
        return await client.retry_failed(
            self.queue,
            priority=self.priority,
            attempts=self.attempts,
            run_after_ms=self.run_after_ms,
            limit=self.limit,
            cancelled=cancelled,
        )

    async def count_failed(self, client: AsyncClient) -> int:
        """The number of FAILED jobs."""
        return await client.count(self.queue, JobState.FAILED, priority=self.priority)

    async def chosen(self, client: AsyncClient, wanted: JobCriteria, regex: str | None, as_json: bool) -> Changed:
        """Retries the jobs that `scan` shows, the newest first."""
        request = ScanFilter(options.State.FAILED, self.priority, regex=regex)
        found = await scan_queue(client, self.queue, request, wanted, self.limit)

        async def retry(piece: Sequence[str]) -> int:
            results = await client.run_jobs(self.queue, piece, attempts=self.attempts, run_after_ms=self.run_after_ms)
            return sum(result.outcome is Outcome.APPLIED for result in results)

        descriptors = [job.descriptor for job in found.jobs]
        return Changed(await change_in_pieces("retried", descriptors, retry, as_json), found.incomplete)


def _tell_how_many_stay(failed: int) -> None:
    if failed:
        sys.stderr.write(
            f"{failed} stay failed: expired, cancelled (--cancelled takes these), or another job has their unique key\n"
        )


class Changed(NamedTuple):
    """How many jobs were changed; `incomplete`: not all jobs of the queue were looked at."""

    number: int
    incomplete: bool


async def change_in_pieces(
    what: str, descriptors: Sequence[str], change: Callable[[Sequence[str]], Awaitable[int]], as_json: bool
) -> int:
    """Changes the jobs in several requests and returns how many changed. If a later one fails, prints how many changed before."""
    number = 0
    try:
        for start in range(0, len(descriptors), _PIECE):
            number += await change(descriptors[start : start + _PIECE])
    except BaseException:
        if number:
            print_number(what, number, as_json)
        raise
    return number


def print_changed(what: str, changed: Changed, as_json: bool) -> None:
    """Prints the number, and a warning if the command did not read all jobs of the queue."""
    print_number(what, changed.number, as_json)
    if changed.incomplete:
        output.warn_incomplete("a shard is unreachable, or one scan cannot read all jobs: repeat the command")


def print_number(what: str, number: int, as_json: bool) -> None:
    if as_json:
        output.print_json({what: number})
    else:
        output.print_lines([f"{what} {number}"])
