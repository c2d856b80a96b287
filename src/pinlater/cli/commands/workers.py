"""`pinlater workers`: who waits for jobs and who holds some, by what workers call themselves (their source)."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, NamedTuple

import typer

from pinlater.cli import options, output
from pinlater.cli.watch import EVERY, Every, Watch, interval_ms, show_answers
from pinlater.client import AsyncClient, JobState

_PAGE_JOBS, _JOBS_MAX = 1_000, 20_000


class WorkersFound(NamedTuple):
    """Numbers by worker and queue. `incomplete`: a shard was unreachable, or more jobs are held than one look counts."""

    holds: Counter[tuple[str, str]]
    waits: Counter[tuple[str, str]]
    incomplete: bool


def workers(
    queues: Annotated[
        list[str] | None,
        typer.Argument(metavar="QUEUE...", show_default=False, autocompletion=options.complete_queue),
    ] = None,
    watch: Watch = False,
    every: Every = EVERY,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Show which workers hold jobs, and which wait for jobs in a long poll on the servers of --server.

    --watch --json prints one line each time.

    Example: pinlater workers emails --server a:9010,b:9010
    """
    every_ms = interval_ms(watch, every)

    async def find(client: AsyncClient) -> WorkersFound:
        holds, incomplete = await _holders(client, queues or [])
        waits: Counter[tuple[str, str]] = Counter()
        for address in client.servers:
            async with options.client_for(str(address), timeout) as one:
                for poll in await one.waiting_dequeues():
                    if not queues or poll.queue in queues:
                        waits[poll.source, poll.queue] += poll.number
        return WorkersFound(holds, waits, incomplete)

    async def show(client: AsyncClient) -> None:
        await show_answers(lambda: find(client), lambda found: _print(found, json, in_one_line=watch), every_ms)

    options.ask(server, timeout, show)


def _print(found: WorkersFound, as_json: bool, *, in_one_line: bool) -> None:
    rows = [(*key, found.holds[key], found.waits[key]) for key in sorted({*found.holds, *found.waits})]
    columns = ["worker", "queue", "holds", "waits"]
    if as_json:
        listed = [dict(zip(columns, row, strict=True)) for row in rows]
        output.print_json({"workers": listed, "incomplete": found.incomplete}, in_one_line=in_one_line)
        return
    output.print_table(columns, rows, without_rows="no worker holds a job or waits for one")
    if found.incomplete:
        output.warn_incomplete("a shard was unreachable, or more jobs are held than one look counts")


async def _holders(client: AsyncClient, queues: list[str]) -> tuple[Counter[tuple[str, str]], bool]:
    holds: Counter[tuple[str, str]] = Counter()
    incomplete = False
    for stats in await client.queue_stats(*queues):
        incomplete |= stats.incomplete
        after, looked_at = "0", 0
        while stats.total("in_progress") and after != "-1" and looked_at < _JOBS_MAX:
            page = await client.scan(
                stats.queue, JobState.IN_PROGRESS, limit=_PAGE_JOBS, continuation=after, paged=True
            )
            holds.update((output.holder_of(job) or "?", stats.queue) for job in page.jobs)
            incomplete |= page.incomplete
            looked_at += len(page.jobs)
            after = page.continuation
        incomplete |= after not in ("0", "-1")
    return holds, incomplete
