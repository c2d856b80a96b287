"""`pinlater scan`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from pinlater.cli import options, output
from pinlater.cli.commands.lookup import _first_line
from pinlater.client import AsyncClient, JobInfo, Scanned


def scan(
    queue: options.QueueName,
    state: options.StateOption = options.State.PENDING,
    priority: options.Priority = None,
    future: options.Future = False,
    regex: options.Regex = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many jobs.")] = 100,
    after: Annotated[str, typer.Option("--after", help="Go on where a scan stopped: its continuation.")] = "0",
    body: Annotated[bool, typer.Option("--body", help="Show the bodies too.")] = False,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """List jobs, newest first. Where there are more, the continuation for --after is shown.

    Example: pinlater scan emails --state failed --limit 20
    """

    async def ask(client: AsyncClient) -> Scanned:
        return await client.scan(
            queue,
            state.wire,
            priority=priority,
            future=future,
            regex=regex,
            limit=limit,
            continuation=after,
            paged=True,
            bodies=body,
        )

    page = options.ask(server, timeout, ask)
    more = None if page.continuation == "-1" else page.continuation
    if json:
        jobs = [output.info_json(job) for job in page.jobs]
        output.print_json({"jobs": jobs, "continuation": more, "incomplete": page.incomplete})
        return
    _print_page(page.jobs, body)
    if more:
        typer.echo(f"more: --after {more}", err=True)
    if page.incomplete:
        typer.echo("incomplete: a shard was out of reach, or the time was up", err=True)


def _print_page(jobs: Sequence[JobInfo], bodies: bool) -> None:
    columns = ["descriptor", "state", "left", "due", "error", "status", *(["body"] if bodies else [])]
    rows = [
        (
            job.descriptor,
            job.state,
            job.attempts_remaining,
            output.iso(job.run_after_ms),
            _first_line(job.error_type, job.error_text),
            job.custom_status or None,
            *([output.body_text(job.body or b"")] if bodies else []),
        )
        for job in jobs
    ]
    output.print_table(columns, rows)
