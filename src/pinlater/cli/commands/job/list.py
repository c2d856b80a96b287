"""`pinlater job list`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import typer

from pinlater.cli import notes, options, output
from pinlater.cli.queue_notes import say_if_no_group
from pinlater.client import AsyncClient, JobInfo, JobState, Scanned
from pinlater.client._job_scan import SCAN_END, SCAN_START, ScanFilter, scan_by_task
from pinlater.domain.job_criteria import JobCriteria


class ScannedQueues(NamedTuple):
    """Jobs of all queues; `cut`: the limit was reached before the end of several queues, which have no continuation."""

    scanned: Scanned
    cut: bool


def list_jobs(
    queues: options.QueueNames = None,
    state: options.StateOption = options.State.PENDING,
    priority: options.Priority = None,
    future: options.Future = False,
    regex: options.Regex = None,
    task: options.OfTask = None,
    header: options.WithHeader = None,
    error: options.WithError = None,
    min_attempts: options.MinAttempts = None,
    older_than: options.OlderThan = None,
    newer_than: options.NewerThan = None,
    group: options.OfGroup = None,
    shard: Annotated[
        str | None, typer.Option("--shard", metavar="NAME", help="Only jobs on this shard: 2, or s2 as in descriptors.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="The most jobs to show.")] = 100,
    after: Annotated[
        str, typer.Option("--after", help="The continuation of an earlier scan of one queue.")
    ] = SCAN_START,
    body: Annotated[bool, typer.Option("--body", help="Show the bodies too.")] = False,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """List the jobs of some queues, or of all, newest first. If there are more, show the continuation.

    Example: pinlater job list emails --state failed --task send_welcome --limit 20
    """
    options.check_future(state, future)
    if after != SCAN_START and len(queues or ()) != 1:
        raise typer.BadParameter("a continuation belongs to one queue: name that queue", param_hint="--after")
    request = ScanFilter(state.wire, priority, future, regex, body, shard)
    wanted = options.criteria(task, header, error, min_attempts, older_than, newer_than, group)

    async def ask(client: AsyncClient) -> ScannedQueues:
        names = queues or await client.queue_names()
        found = await _scan_all(client, names, request, wanted, limit, after)
        if len(names) == 1 and not found.scanned.jobs:
            await say_if_no_group(client, names[0], wanted.group)
        return found

    found, cut = options.ask(server, timeout, ask)
    more = None if found.continuation == SCAN_END else found.continuation
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
    """Lists one queue after the other, up to `limit` jobs in all. Only a single queue gives a continuation."""
    jobs: list[JobInfo] = []
    incomplete = cut = False
    continuation = SCAN_END
    for queue in queues:
        if len(jobs) >= limit:
            cut = True
            break
        found = await scan_by_task(client, queue, request, wanted, limit - len(jobs), after)
        jobs += found.jobs
        incomplete |= found.incomplete
        if len(queues) == 1:
            continuation = found.continuation
        else:
            cut |= found.continuation != SCAN_END
    return ScannedQueues(Scanned(jobs, continuation, incomplete), cut)


def _without_jobs(state: options.State, future: bool) -> str:
    """Names the state, which may be the default one."""
    if state is not options.State.PENDING:
        return f"no {state.value} jobs"
    if future:
        return "no pending jobs that are due later"
    return "no pending jobs that are due (--future and --state show others)"


def _print_jobs(jobs: Sequence[JobInfo], bodies: bool, without_jobs: str) -> None:
    columns = [
        "descriptor",
        "task",
        "state",
        "age",
        "holder",
        "attempts_remaining",
        "due",
        "error",
        "progress",
        "status",
        "waits",
    ]
    rows = [
        (
            job.descriptor,
            output.task_of(job),
            job.state,
            output.age_of(job),
            output.holder_of(job),
            job.attempts_remaining,
            output.iso(job.run_after_ms if job.state is JobState.PENDING else None),
            output.error_of(job),
            job.progress or None,
            output.status_without_progress(job).rstrip() or None,
            output.waits_for(job),
            *([output.shown_body(job)] if bodies else []),
        )
        for job in jobs
    ]
    output.print_blocks([*columns, *(["body"] if bodies else [])], rows, without_rows=without_jobs)
