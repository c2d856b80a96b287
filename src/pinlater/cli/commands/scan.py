"""`pinlater scan`.

The server chooses by state, priority and body; task and header are looked at here, page by page, so that a scan for a rare task reads many
jobs and stops at `_LOOKED_AT_MAX` of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import typer

from pinlater.cli import notes, options, output
from pinlater.client import AsyncClient, JobInfo, JobState, Scanned
from pinlater.domain.transitions import was_cancelled

_START, _END = "0", "-1"
_PAGE_JOBS, _LOOKED_AT_MAX = 500, 100_000


class JobCriteria(NamedTuple):
    """Of which tasks a job must be, and what headers it must have, to be shown; no tasks: of any."""

    tasks: frozenset[str]
    headers: dict[str, str]
    skip_cancelled: bool = False

    @classmethod
    def of(cls, tasks: list[str] | None, headers: dict[str, str], *, skip_cancelled: bool = False) -> JobCriteria:
        return cls(frozenset(tasks or ()), headers, skip_cancelled)

    @property
    def of_any_task(self) -> bool:
        return not self.tasks and not self.headers

    @property
    def fits_all(self) -> bool:
        return self.of_any_task and not self.skip_cancelled

    def fits(self, job: JobInfo) -> bool:
        last_attempt = job.attempts[-1] if job.attempts else None
        if self.skip_cancelled and was_cancelled(job.custom_status, job.finished_at_ms, last_attempt):
            return False
        if self.tasks and output.task_of(job) not in self.tasks:
            return False
        return all(job.headers.get(name) == value for name, value in self.headers.items())


class ScanFilter(NamedTuple):
    """What the server chooses by."""

    state: options.State
    priority: int | None
    future: bool = False
    regex: str | None = None
    bodies: bool = False

    async def page(self, client: AsyncClient, queue: str, limit: int, after: str) -> Scanned:
        return await client.scan(
            queue,
            self.state.wire,
            priority=self.priority,
            future=self.future,
            regex=self.regex,
            limit=limit,
            continuation=after,
            paged=True,
            bodies=self.bodies,
        )


class ScannedQueues(NamedTuple):
    """Jobs of all queues; `cut`: the limit was reached before the end of several queues, which have no continuation."""

    scanned: Scanned
    cut: bool


def scan(
    queues: Annotated[
        list[str] | None,
        typer.Argument(metavar="QUEUE", show_default=False, autocompletion=options.complete_queue),
    ] = None,
    state: options.StateOption = options.State.PENDING,
    priority: options.Priority = None,
    future: options.Future = False,
    regex: options.Regex = None,
    task: options.OfTask = None,
    header: options.WithHeader = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="The most jobs to show.")] = 100,
    after: Annotated[str, typer.Option("--after", help="The continuation of an earlier scan of one queue.")] = _START,
    body: Annotated[bool, typer.Option("--body", help="Show the bodies too.")] = False,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """List the jobs of the named queues, or of all queues, newest first in each. If there are more, show the continuation.

    Example: pinlater scan emails --state failed --task send_welcome --limit 20
    """
    if after != _START and len(queues or ()) != 1:
        raise typer.BadParameter("a continuation is one queue's: name that queue", param_hint="--after")
    request = ScanFilter(state, priority, future, regex, body)
    wanted = JobCriteria.of(task, options.headers_of(header or []) or {})

    async def ask(client: AsyncClient) -> ScannedQueues:
        names = queues or await client.queue_names()
        return await _scan_all(client, names, request, wanted, limit, after)

    found, cut = options.ask(server, timeout, ask)
    more = None if found.continuation == _END else found.continuation
    if json:
        jobs = [output.info_json(job) for job in found.jobs]
        output.print_json({"jobs": jobs, "continuation": more, "incomplete": found.incomplete or cut})
        return
    _print_jobs(found.jobs, body, without_jobs=_without_jobs(state, future))
    if more:
        notes.write(f"more: --after {more}")
    if found.incomplete:
        output.warn_incomplete("a shard is unreachable, or one scan cannot read all jobs")
    elif cut:
        output.warn_incomplete(
            "--limit was reached, there may be more: raise it, or scan one queue to get a continuation"
        )


async def _scan_all(
    client: AsyncClient, queues: Sequence[str], request: ScanFilter, wanted: JobCriteria, limit: int, after: str
) -> ScannedQueues:
    """One queue after the other, up to `limit` jobs together. The continuation is the only queue's."""
    jobs: list[JobInfo] = []
    incomplete = cut = False
    continuation = _END
    for queue in queues:
        if len(jobs) >= limit:
            cut = True
            break
        found = await scan_queue(client, queue, request, wanted, limit - len(jobs), after)
        jobs += found.jobs
        incomplete |= found.incomplete
        if len(queues) == 1:
            continuation = found.continuation
        else:
            cut |= found.continuation != _END
    return ScannedQueues(Scanned(jobs, continuation, incomplete), cut)


async def scan_queue(
    client: AsyncClient, queue: str, request: ScanFilter, wanted: JobCriteria, limit: int, after: str = _START
) -> Scanned:
    """Up to `limit` jobs that fit, newest first; incomplete if it stopped earlier, since it looked at too many."""
    if wanted.fits_all:
        return await request.page(client, queue, limit, after)
    jobs: list[JobInfo] = []
    looked_at = 0
    while True:
        page = await request.page(client, queue, _PAGE_JOBS, after)
        chosen = [number for number, job in enumerate(page.jobs, 1) if wanted.fits(job)]
        left = limit - len(jobs)
        if len(chosen) > left or (len(chosen) == left and page.continuation != _END):
            # The page again, up to the last job that is shown, for the continuation behind that one.
            page = await request.page(client, queue, chosen[left - 1], after)
            return Scanned([*jobs, *filter(wanted.fits, page.jobs)], page.continuation, page.incomplete)
        jobs += [page.jobs[number - 1] for number in chosen]
        looked_at += len(page.jobs)
        after = page.continuation
        if after == _END or page.incomplete or looked_at >= _LOOKED_AT_MAX:
            return Scanned(jobs, after, page.incomplete or after != _END)


def _without_jobs(state: options.State, future: bool) -> str:
    """Names the state, which may be the default one."""
    if state is not options.State.PENDING:
        return f"no {state.value} jobs"
    if future:
        return "no pending jobs that are due later"
    return "no pending jobs that are due (--future and --state show others)"


def _print_jobs(jobs: Sequence[JobInfo], bodies: bool, without_jobs: str) -> None:
    columns = ["descriptor", "task", "state", "age", "holder", "attempts_remaining", "due", "error", "status", "waits"]
    rows = [
        (
            job.descriptor,
            output.task_of(job),
            job.state,
            output.age_of(job),
            output.holder_of(job),
            job.attempts_remaining,
            output.iso(job.run_after_ms if job.state is JobState.PENDING else None),
            output.first_line(job.error_type, job.error_text),
            job.custom_status.rstrip() or None,
            output.waits_for(job),
            *([output.body_text(job.body or b"")] if bodies else []),
        )
        for job in jobs
    ]
    output.print_blocks([*columns, *(["body"] if bodies else [])], rows, without_rows=without_jobs)
