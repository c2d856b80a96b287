"""What commands print: JSON, a table on a terminal, or lines with tabs if the output goes elsewhere.

JSON bodies: `body` holds the text if the body is UTF-8; else `body` is null and `body_base64` holds the bytes. Times are
milliseconds since the epoch under names that end in `_ms`, and ISO 8601 in tables. A character that the output's encoding lacks is
escaped, in JSON as JSON does it.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import io
import json
import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, NoReturn, TypeVar

from pinlater.cli import exits, notes, tables
from pinlater.client import waiting
from pinlater.client.values import ClaimedJob, JobInfo
from pinlater.domain import wording
from pinlater.domain.body_masks import MASKED_VALUE
from pinlater.domain.clock import SystemClock
from pinlater.domain.job import (
    CLAIM_TIMED_OUT_TEXT,
    PROGRESS_MARK,
    QUARANTINED,
    TASK_HEADER,
    TIMED_OUT,
    source_of_claim,
)

T = TypeVar("T")
Row = Sequence[object]
Columns = Mapping[str, Callable[[T], object]]
"""The columns of a table by name, with what each shows of an item."""


def print_json(data: object, *, in_one_line: bool = False) -> None:
    """Prints one JSON document, with text as it is. `in_one_line`: for a command that prints several, so that a program can tell them
    apart.
    """
    indent = None if in_one_line else 2
    text = json.dumps(data, indent=indent, ensure_ascii=False, default=_plain)
    if not _can_be_encoded(text):
        text = json.dumps(data, indent=indent, default=_plain)
    _write(text + "\n")


def print_lines(lines: Sequence[str]) -> None:
    """Prints plain lines."""
    _write("".join(f"{line}\n" for line in lines))


def print_bytes(data: bytes) -> None:
    """Writes these bytes unchanged. Without a buffer (PYTHONUNBUFFERED) one write may accept only some of them without an error."""
    sys.stdout.flush()
    left = memoryview(data)
    while left:
        left = left[sys.stdout.buffer.write(left) :]


def _write(text: str) -> None:
    if isinstance(getattr(sys.stdout, "buffer", None), io.RawIOBase):
        print_bytes(text.encode(sys.stdout.encoding, sys.stdout.errors or "strict"))
    else:
        sys.stdout.write(text)


# --- output that is the only record of a change --------------------------------------------------------------------------
def check_open(undone: str) -> None:
    """Ends the command if its standard output was closed at the start. `undone`: the part that the command has not done."""
    if getattr(sys.stdout, "name", "") == os.devnull:  # which `main` has put in its place
        exits.fail(f"standard output is closed: {undone}", exits.REFUSED)


def deliver() -> None:
    """Returns when all output has left this process, and is on the disk if it goes to a file. Raises OSError if it can't."""
    sys.stdout.flush()
    with contextlib.suppress(io.UnsupportedOperation):  # a stand-in for standard output
        descriptor = sys.stdout.fileno()
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.fsync(descriptor)


@contextlib.contextmanager
def only_record(done: str) -> Iterator[None]:
    """Guards a block whose output is the only record of a change. If the output can't be printed, the command fails with `done`, which
    names the change: even if a reader has stopped, which is not an error of other commands.
    """
    try:
        yield
        deliver()
    except OSError as error:
        fail_unprinted(error, done)


def fail_unprinted(error: OSError, done: str = "") -> NoReturn:
    """Ends the command: its output can't be written, and the rest is discarded."""
    with contextlib.suppress(io.UnsupportedOperation):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    why = "its reader has gone" if error.errno == errno.EPIPE else error.strerror
    exits.fail(f"the output can't be written: {why}{done and f'; {done}'}", exits.REFUSED)


def on_terminal() -> bool:
    """Returns whether an operator reads the output, and not a program."""
    return tables.screen().columns is not None


def clear_screen() -> None:
    """Clears a terminal for the next output; does nothing elsewhere."""
    if on_terminal():
        sys.stdout.write("\x1b[H\x1b[2J")


def warn_incomplete(reason: str = "a shard is unreachable, and its jobs are not counted") -> None:
    """Reports on standard error that the answer lacks something."""
    notes.write(f"incomplete: {reason}")


def print_text(lines: Sequence[str]) -> None:
    """Lines from others, with control characters escaped; on a terminal a long one wraps between words."""
    columns = tables.screen().columns
    print_lines([part for line in lines for part in tables.wrap_line(one_line(line), columns)])


def print_table(columns: Sequence[str], rows: Sequence[Row], *, without_rows: str = tables.NONE) -> None:
    """A table on a terminal, or `without_rows` if there are none; elsewhere a line of names and a line for each row, with tabs between."""
    print_lines(tables.table(columns, _cells(rows), tables.screen(), without_rows=without_rows))


def print_narrow_table(
    columns: Columns[T], items: Sequence[T], *, shorter: Mapping[str, str], without_rows: str = tables.NONE
) -> None:
    """Prints a row for each item like `print_table`; a table too wide for the terminal gets the `shorter` names of columns and loses
    columns without information."""
    rows = _cells([[shown(item) for shown in columns.values()] for item in items])
    print_lines(tables.narrow_table(list(columns), rows, tables.screen(), shorter=shorter, without_rows=without_rows))


def print_blocks(columns: Columns[T], items: Sequence[T], head: str = "", *, without_rows: str = tables.NONE) -> None:
    """Prints a row for each item like `print_table`; a table too wide for the terminal becomes one block a row, headed by `head` and the
    row's first cell."""
    print_rows(list(columns), [[shown(item) for shown in columns.values()] for item in items], head, without_rows)


def print_rows(columns: Sequence[str], rows: Sequence[Row], head: str = "", without_rows: str = tables.NONE) -> None:
    """Prints rows as `print_blocks` prints items."""
    print_lines(tables.blocks_or_table(columns, _cells(rows), tables.screen(), head, without_rows=without_rows))


def print_fields(named: Mapping[str, object]) -> None:
    """A line for each name and value."""
    print_lines(tables.fields([(name, cell(value)) for name, value in named.items()], tables.screen()))


def _cells(rows: Sequence[Row]) -> list[list[str]]:
    return [[cell(value) for value in row] for row in rows]


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.name
    raise TypeError(f"{type(value).__name__} has no JSON form")


def cell(value: object) -> str:
    """A value in a table. Control characters are escaped; an unknown value is `-`."""
    if value is None:
        return "-"
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(cell, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{cell(name)}={cell(each)}" for name, each in value.items())
    if isinstance(value, float):
        return f"{value:.1f}"
    return one_line(str(value))


def one_line(text: str) -> str:
    """Returns text from others, with control characters escaped, and those that the output's encoding lacks."""
    if text.isprintable() and _can_be_encoded(text):
        return text
    return "".join(c if c.isprintable() and _can_be_encoded(c) else ascii(c)[1:-1] for c in text)


def _can_be_encoded(text: str) -> bool:
    """Returns whether standard output accepts it as it is."""
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def iso(moment_ms: int | None) -> str | None:
    """Returns the time in ISO 8601 and UTC, or None; the number itself if it is outside the calendar."""
    return None if moment_ms is None else wording.moment(moment_ms)


def age(span_ms: int | None) -> str | None:
    """A duration for people, in two units at most: `3d 4h`, `12m 5s`, `850ms`, or None if it is not known."""
    return None if span_ms is None else wording.span(span_ms)


def size(size_bytes: int | None) -> str | None:
    """An amount of bytes for people: `1.5 MiB`, or None if it is not known."""
    return None if size_bytes is None else wording.size(size_bytes)


def body_text(body: bytes) -> str:
    """A body in a table: text, or `base64:` and its bytes if it isn't UTF-8."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(body).decode()


def shown_body(job: JobInfo | ClaimedJob) -> str:
    """The body of a job in a table, or a note that it is masked completely."""
    return MASKED_VALUE if job.body_masked and not job.body else body_text(job.body or b"")


def body_json(body: bytes | None) -> dict[str, Any]:
    """A body in JSON; nothing if it wasn't requested."""
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
        "body_masked": job.body_masked,
    }


def task_of(job: JobInfo) -> str | None:
    """The task that the job is for, if its headers name one."""
    return job.headers.get(TASK_HEADER)


def holder_of(job: JobInfo) -> str | None:
    """The source that holds the job, or held it last, or None if none does."""
    return source_of(job.claim_descriptor or "")


def source_of(claim_descriptor: str) -> str | None:
    """The source in the name of a claim, or None if it has another format."""
    return source_of_claim(claim_descriptor)


def age_of(job: JobInfo) -> str | None:
    """Returns how long ago the job was enqueued, by this machine's clock."""
    return age(max(0, SystemClock().now_ms() - job.created_at_ms))


def waits_for(job: JobInfo) -> str | None:
    """Returns why a PENDING job is not due yet, in a few words, or None for others. By this machine's clock."""
    reason = waiting.not_due(job, SystemClock().now_ms())
    return None if reason is None else reason.brief


def why_put_off(job: JobInfo) -> str:
    """Returns what postpones a job without an attempt. The server does not record which of these it was."""
    task = task_of(job)
    unknown = f"does not know the task {task!r}" if task else "has no default task for jobs that name none"
    return f"a worker {unknown} (its log says so), the task snoozed the job, or an operator moved it"


def error_line(error_type: str, error_text: str) -> str | None:
    """An error in one line."""
    return ": ".join(part for part in (error_type, wording.error_line(error_text)) if part) or None


def error_of(job: JobInfo) -> str | None:
    """Returns how the job's latest attempt failed, in one line. A claim that timed out leaves no error: the job keeps that of an earlier
    attempt.
    """
    if job.attempts and job.attempts[-1].outcome == TIMED_OUT and job.error_type != QUARANTINED:
        return CLAIM_TIMED_OUT_TEXT
    return error_line(job.error_type, job.error_text)


def status_without_progress(job: JobInfo) -> str:
    """The custom status without the line that `JobInfo.progress` reads."""
    lines = job.custom_status.splitlines(keepends=True)
    shown = next((number for number, line in enumerate(lines) if line.startswith(PROGRESS_MARK)), None)
    return job.custom_status if shown is None else "".join(lines[:shown] + lines[shown + 1 :])


def info_json(job: JobInfo) -> dict[str, Any]:
    """Returns all that is known about a job."""
    known = job._asdict()
    known.pop("body")
    known["state"] = job.state.name
    known["task"] = task_of(job)
    known["holder"] = holder_of(job)
    known["waits"] = waits_for(job)
    known["progress"] = job.progress or None
    known["custom_status"] = status_without_progress(job)
    known["headers"] = dict(job.headers)
    known["attempts"] = [attempt._asdict() for attempt in job.attempts]
    return {**known, **body_json(job.body)}
