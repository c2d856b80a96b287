"""`pinlater lookup`, `count` and `scan`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from pinlater.cli import exits, options, output
from pinlater.client import AsyncClient, JobInfo, Scanned

StateOption = Annotated[options.State, typer.Option("--state", help="Jobs in this state.")]
Future = Annotated[bool, typer.Option("--future", help="Of the pending jobs those that are not due yet.")]


def lookup(
    descriptors: options.Descriptors,
    body: Annotated[bool, typer.Option("--body", help="Show the bodies too.")] = False,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Show all that is known of jobs. Exit code 1 if any of them does not exist.

    Example: pinlater lookup emails:s1:p1:42 --body
    """
    options.by_queue(descriptors)
    found = options.ask(server, timeout, lambda client: client.lookup(descriptors, bodies=body))
    missing = [name for name in descriptors if name not in found]
    if json:
        output.print_json({"jobs": [output.info_json(job) for job in found.values()], "missing": missing})
    else:
        for job in found.values():
            _print_job(job)
    if missing:
        exits.fail(f"no such job: {', '.join(missing)}", exits.REFUSED)


def _print_job(job: JobInfo) -> None:
    times = {name: output.iso(value) for name, value in job._asdict().items() if name.endswith("_ms")}
    shown = {name: value for name, value in job._asdict().items() if value not in (None, "", {}, ())}
    shown |= {name: value for name, value in times.items() if value is not None}
    shown.pop("attempts", None)
    text, _, trace = job.error_text.partition("\n")
    if trace:
        shown["error_text"] = text
    if job.body is not None:
        shown["body"] = output.body_text(job.body)
    output.print_table(["field", "value"], [(name.removesuffix("_ms"), value) for name, value in shown.items()])
    if job.attempts:
        rows = [(a.number, a.outcome, a.claimed_by, _first_line(a.error_type, a.error_text)) for a in job.attempts]
        output.print_table(["attempt", "outcome", "claimed by", "error"], rows)
    if trace:
        output.print_lines(["last error:", *map(output.one_line, job.error_text.splitlines())])


def _first_line(error_type: str, error_text: str) -> str | None:
    """What failed in one line: workers put where it came from behind that."""
    return ": ".join(part for part in (error_type, error_text.partition("\n")[0]) if part) or None


def count(
    queue: options.QueueName,
    state: StateOption = options.State.PENDING,
    priority: options.Priority = None,
    future: Future = False,
    regex: options.Regex = None,
    server: options.Server = options.SERVER,
    timeout: options.TimeoutSeconds = options.TIMEOUT_S,
    json: options.Json = False,
) -> None:
    """Count jobs.

    Example: pinlater count emails --state failed
    """

    async def ask(client: AsyncClient) -> int:
        return await client.count(queue, state.wire, priority=priority, future=future, regex=regex)

    number = options.ask(server, timeout, ask)
    if json:
        output.print_json({"queue": queue, "state": state.name, "future": future, "count": number})
    else:
        output.print_lines([str(number)])


def scan(
    queue: options.QueueName,
    state: StateOption = options.State.PENDING,
    priority: options.Priority = None,
    future: Future = False,
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
