"""`pinlater worker cron`: the timetable of a Worker. Cron entries live in the Worker's code, so no server is asked."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from typing import Annotated

import typer

from pinlater.cli import options, output
from pinlater.cli.call import CommandReply
from pinlater.cli.worker_module import find_worker
from pinlater.worker.cron import Cron


def cron(
    reply: CommandReply,
    application: Annotated[str, typer.Argument(metavar="MODULE:NAME", help="Where the Worker is: jobs:worker")],
    firings: Annotated[int, typer.Option("--next", min=1, max=100, help="How many firings to show of each entry.")] = 1,
    after: Annotated[
        str | None, typer.Option(help="Firings after this time: 2030-01-31T12:00:00Z, or ms; else now.")
    ] = None,
) -> None:
    """Show the cron entries of a Worker and their next firings. Times are in the zone of the entry. Asks no server.

    Example: pinlater worker cron jobs:worker --next 3
    """
    entries = find_worker(application).cron_entries
    after_ms = options.moment_ms(after, "--after")
    start = datetime.now(UTC) if after_ms is None else datetime.fromtimestamp(after_ms / 1000, UTC)
    columns: output.Columns[Cron] = {
        "name": lambda entry: entry.name,
        "expression": lambda entry: entry.expression,
        "zone": lambda entry: str(entry.zone),
        "queue": lambda entry: entry.task.queue,
        "missed": lambda entry: entry.missed.value,
        "overlap": lambda entry: entry.overlap,
        "days": lambda entry: _DAYS.get(entry.days or ""),
        "next": lambda entry: _shown(entry, start, firings),
    }
    reply.answer(
        {"cron": [_json(entry, start, firings) for entry in entries]},
        lambda: output.print_blocks(columns, entries, without_rows="the Worker has no cron entries"),
    )


# The effect of an expression with both a day of the month and a weekday.
_DAYS = {"both": "day of month and weekday must match", "either": "day of month or weekday is enough"}


def _next(entry: Cron, start: datetime, firings: int) -> list[datetime]:
    return list(islice(entry.after(start), firings))


def _shown(entry: Cron, start: datetime, firings: int) -> list[str] | None:
    """Returns the firings in ISO 8601 and the zone of the entry, without a blank at which a line could break."""
    local = (firing.astimezone(entry.zone) for firing in _next(entry, start, firings))
    return [firing.isoformat(timespec="seconds") for firing in local] or None


def _json(entry: Cron, start: datetime, firings: int) -> dict[str, object]:
    return {
        "name": entry.name,
        "task": entry.task.name,
        "queue": entry.task.queue,
        "expression": entry.expression,
        "zone": str(entry.zone),
        "missed": entry.missed.value,
        "overlap": entry.overlap,
        "days": entry.days,
        "next_ms": [int(firing.timestamp() * 1000) for firing in _next(entry, start, firings)],
    }
