"""`pinlater job list`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, NamedTuple

import typer

from pinlater.cli import notes, options, output
from pinlater.cli.call import ServerCall
from pinlater.cli.filter_options import ChosenJobs
from pinlater.cli.queue_notes import say_if_no_group
from pinlater.client import AsyncClient, JobInfo, JobState, Scanned
from pinlater.client._filtered_jobs import SCAN_END, SCAN_START, scan_to_limit

_Scan = Callable[[AsyncClient, str, int, str], Awaitable[Scanned]]
_COLUMNS: output.Columns[JobInfo] = {
    "descriptor": lambda job: job.descriptor,
    "task": output.task_of,
    "state": lambda job: job.state,
    "age": output.age_of,
    "holder": output.holder_of,
    "attempts_remaining": lambda job: job.attempts_remaining,
    "due": lambda job: output.iso(job.run_after_ms if job.state is JobState.PENDING else None),
    "error": output.error_of,
    "progress": lambda job: job.progress or None,
    "status": lambda job: output.status_without_progress(job).rstrip() or None,
    "waits": output.waits_for,
}
_BODY: output.Columns[JobInfo] = {"body": output.shown_body}


class ScannedQueues(NamedTuple):
    """Jobs of all queues; `cut`: the limit was reached before the end of several queues, which have no continuation."""

    scanned: Scanned
    cut: bool


def list_jobs(
    call: ServerCall,
    chosen: ChosenJobs,
    queues: options.QueueNames = None,
    state: options.StateOption = options.State.PENDING,
    future: options.Future = False,
    shard: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only jobs on this shard: 2, or s2 as in descriptors.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="The most jobs to show.")] = 100,
    after: Annotated[str, typer.Option(help="The continuation of an earlier scan of one queue.")] = SCAN_START,
    body: Annotated[bool, typer.Option("--body", help="Show the bodies too.")] = False,
) -> None:
    """List the jobs of some queues, or of all, newest first. If there are more, show the continuation.

    Example: pinlater job list emails --state failed --task send_welcome --limit 20
    """
    options.check_future(state, future)
    if after != SCAN_START and len(queues or ()) != 1:
        raise typer.BadParameter("a continuation is one queue's: name that queue", param_hint="--after")
    wanted = chosen.of(state.wire)

    def scan(client: AsyncClient, queue: str, limit: int, after: str) -> Awaitable[Scanned]:
        return scan_to_limit(client, queue, wanted, limit, future=future, after=after, bodies=body, shard=shard)

    async def ask(client: AsyncClient) -> ScannedQueues:
        names = queues or await client.queue_names()
        found = await _scan_all(client, names, scan, limit, after)
        if len(names) == 1 and not found.scanned.jobs:
            await say_if_no_group(client, names[0], wanted.group)
        return found

    found, cut = call.ask(ask)
    more = None if found.continuation == SCAN_END else found.continuation
    document = {"jobs": list(map(output.info_json, found.jobs)), "continuation": more}
    columns = {**_COLUMNS, **_BODY} if body else _COLUMNS
    without_jobs = _without_jobs(state, future)
    call.answer(
        {**document, "incomplete": found.incomplete or cut},
        lambda: output.print_blocks(columns, found.jobs, without_rows=without_jobs),
    )
    if call.json:
        return
    if more:
        notes.write(f"more: --after {more}")
    if found.incomplete:
        output.warn_incomplete("a shard is unreachable, or a time limit made the list shorter")
    elif cut:
        output.warn_incomplete(
            "--limit was reached, there may be more: raise it, or scan one queue to get a continuation"
        )


async def _scan_all(client: AsyncClient, queues: Sequence[str], scan: _Scan, limit: int, after: str) -> ScannedQueues:
    """One queue after the other, up to `limit` jobs together. The continuation is the only queue's."""
    jobs: list[JobInfo] = []
    incomplete = cut = False
    continuation = SCAN_END
    for queue in queues:
        if len(jobs) >= limit:
            cut = True
            break
        found = await scan(client, queue, limit - len(jobs), after)
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
