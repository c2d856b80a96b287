"""`pinlater audit`: who changed what."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from pinlater.cli import notes, options, output
from pinlater.cli.call import ServerCall
from pinlater.cli.queue_notes import say_if_missing
from pinlater.client import AsyncClient, AuditEntry, AuditPage
from pinlater.domain.audit import ENTRIES_A_PAGE_MAX
from pinlater.domain.clock import SystemClock
from pinlater.domain.durations import duration_ms

_PAGES_MAX = 100
_COLUMNS: output.Columns[AuditEntry] = {
    "time": lambda entry: output.iso(entry.at_ms),
    "who": lambda entry: entry.who + (f" ({', '.join(entry.roles)})" if entry.roles else ""),
    "operation": lambda entry: entry.operation,
    "queue": lambda entry: entry.queue or None,
    "jobs": lambda entry: entry.jobs,
    "outcome": lambda entry: f"{entry.outcome}: {entry.detail}" if entry.detail else entry.outcome,
    "arguments": lambda entry: (
        " ".join(f"{name}={_value(value)}" for name, value in entry.shown_arguments().items()) or None
    ),
    "from": lambda entry: entry.address or None,
    "source": lambda entry: entry.source or None,
    "server": lambda entry: entry.server or None,
}


def audit(
    call: ServerCall,
    queues: options.QueueNames = None,
    who: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only by this token, or 'no token' or 'admin password'.")
    ] = None,
    operation: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this one: pauseQueue, deleteJobs, tokenAdded, ...")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="From this time on: 2h, 7d ago, or a time as for --at.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Before this time, as for --since.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="The most entries to show.")] = 50,
    after: Annotated[str, typer.Option(help="The continuation of an earlier list.")] = "",
) -> None:
    """Show who changed queues, jobs, tokens and shards. The newest changes come first. With QUEUE, it shows the changes of that queue
    only.

    Example: pinlater audit emails --operation pauseQueue --since 7d
    """
    if len(queues or ()) > 1:
        raise typer.BadParameter("name one queue, or none for all changes", param_hint="QUEUE")
    [queue] = queues or [""]
    since_ms, until_ms = _moment_ms(since, "--since"), _moment_ms(until, "--until")

    async def ask(client: AsyncClient) -> AuditPage:
        found: list[AuditEntry] = []
        continuation, incomplete = after, False
        for _ in range(_PAGES_MAX):  # a page may be empty although more follow
            page = await client.audit(
                queue=queue,
                who=who or "",
                operation=operation or "",
                since_ms=since_ms,
                until_ms=until_ms,
                limit=min(limit - len(found), ENTRIES_A_PAGE_MAX),
                continuation=continuation,
            )
            found += page.entries
            continuation, incomplete = page.continuation, incomplete or page.incomplete
            if not continuation or len(found) >= limit:
                break
        if queue and not found and not incomplete:
            await say_if_missing(client, queue)
        return AuditPage(found, continuation, incomplete)

    found = call.ask(ask)
    entries = [{**entry._asdict(), "arguments": entry.shown_arguments()} for entry in found.entries]
    call.answer(
        {"entries": entries, "continuation": found.continuation or None, "incomplete": found.incomplete},
        lambda: output.print_blocks(_COLUMNS, found.entries, without_rows="no entry of the audit"),
    )
    if found.continuation and not call.json:
        notes.write(f"more: --after {found.continuation}")
    if found.incomplete and not call.json:
        output.warn_incomplete("a shard is unreachable, and its entries are not shown")


def _moment_ms(text: str | None, option: str) -> int | None:
    """A time, or a duration before now."""
    if text is None or text == "now":
        return options.moment_ms(text, option)
    if text[-1:].isalpha():
        with contextlib.suppress(ValueError):
            return SystemClock().now_ms() - duration_ms(text)
    try:
        return options.moment_ms(text, option)
    except typer.BadParameter as error:
        raise typer.BadParameter(f"{error.message}, or a span before now such as 2h or 7d", param_hint=option) from None


def _value(in_json: str) -> str:
    """An argument in a table: a setting that a change has removed is `none`."""
    return "none" if in_json == "null" else in_json
