"""What commands print: JSON, a table on a terminal, or lines with tabs where the output goes elsewhere.

JSON bodies: `body` holds the text where the body is UTF-8; else `body` is null and `body_base64` holds the bytes. Times are
milliseconds since the epoch under names that end in `_ms`, and ISO 8601 in tables.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pinlater.client.values import AckResult, ClaimedJob, JobInfo

Row = Sequence[object]


def print_json(data: object) -> None:
    """One JSON document, text as it is."""
    sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False, default=_plain) + "\n")


def print_lines(lines: Sequence[str]) -> None:
    """Plain lines."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def print_table(columns: Sequence[str], rows: Sequence[Row]) -> None:
    """A table on a terminal; elsewhere a line of names and a line for each row, with tabs between."""
    console = Console()
    if not console.is_terminal:
        print_lines(["\t".join(map(_cell, row)) for row in (columns, *rows)])
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    console.print(table)


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.name
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(_cell, value))
    if isinstance(value, float):
        return f"{value:.1f}"
    return one_line(str(value))


def one_line(text: str) -> str:
    """What others wrote, with control characters escaped."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def iso(moment_ms: int | None) -> str | None:
    """ISO 8601 in UTC, or None; the number itself where no calendar holds it."""
    if moment_ms is None:
        return None
    try:
        text = datetime.fromtimestamp(moment_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return str(moment_ms)
    return text.replace("+00:00", "Z")


def body_text(body: bytes) -> str:
    """A body in a table: text, or `base64:` and its bytes where it isn't UTF-8."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(body).decode()


def body_json(body: bytes | None) -> dict[str, Any]:
    """A body in JSON; nothing where it wasn't asked for."""
    if body is None:
        return {}
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body": None, "body_base64": base64.b64encode(body).decode()}


def claimed_json(job: ClaimedJob) -> dict[str, Any]:
    """A job in hand."""
    return {
        "descriptor": job.descriptor,
        "queue": job.queue,
        **body_json(job.body),
        "token": job.token or None,
        "attempt": job.attempt,
        "attempts_allowed": job.attempts_allowed,
        "attempts_remaining": job.attempts_remaining,
        "headers": dict(job.headers),
        "created_at_ms": job.created_at_ms,
        "claim_deadline_ms": job.claim_deadline_ms,
    }


def info_json(job: JobInfo) -> dict[str, Any]:
    """All that is known of a job."""
    known = job._asdict()
    known.pop("body")
    known["state"] = job.state.name
    known["headers"] = dict(job.headers)
    known["attempts"] = [attempt._asdict() for attempt in job.attempts]
    return {**known, **body_json(job.body)}


def result_json(result: AckResult) -> Mapping[str, Any]:
    """What became of an ack or a cancel."""
    return {
        "descriptor": result.descriptor,
        "outcome": result.outcome.name,
        "holder": result.holder or None,
        "held_since_ms": result.held_since_ms,
    }
