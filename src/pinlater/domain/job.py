"""What a job is, as plain values.

NamedTuples rather than dataclasses: a million are made each minute, and a frozen dataclass costs five times as much to make.
All times are integer milliseconds since the epoch; bodies are bytes and are never parsed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

from pinlater.domain.durations import YEAR_MS


class JobState(IntEnum):
    """The four states of the wire contract. How a job moves between them: `transitions`."""

    PENDING = 0
    IN_PROGRESS = 1
    SUCCEEDED = 2
    FAILED = 3


class UniqueScope(IntEnum):
    """How long a unique key is taken."""

    PENDING = 0  # freed at the first claim, not retaken
    UNFINISHED = 1  # freed when the job is finished or deleted
    TIME = 2  # freed by time alone


class Outcome(IntEnum):
    """The outcome of an ack, a checkpoint, a heartbeat or a release."""

    APPLIED = 0
    ALREADY_FINAL = 1
    STALE_CLAIM = 2
    NOT_FOUND = 3
    ERROR = 4  # its shard could not execute it, or it is not known whether it did; never returned by a store


# Begins the line of a custom status that contains the progress of a running job; a checkpoint replaces it.
PROGRESS_MARK = "[progress] "
_LINE_ENDS = r"\n\r\v\f\x1c-\x1e\x85\u2028\u2029"  # the line ends of `str.splitlines`
# It begins at the mark, so that it skips thousands of other lines.
_PROGRESS_LINE = re.compile(
    rf"{re.escape(PROGRESS_MARK)}(?<![^{_LINE_ENDS}]{re.escape(PROGRESS_MARK)})([^{_LINE_ENDS}]*)(?:\r\n|[{_LINE_ENDS}])?"
)
# The header of jobs for which a worker has a function: the name of the task.
TASK_HEADER = "pinlater-task"
ORDERING_KEY_BYTES_MAX = 128
# The outcome of an attempt whose claim timed out, and the text that is shown instead of an error.
TIMED_OUT = "timed_out"
CLAIM_TIMED_OUT_TEXT = "the claim timed out"
# The type of the error of a job that was given up because its claims timed out several times in a row.
QUARANTINED = "Quarantined"
QUARANTINE_MS = 24 * 3_600_000  # older time-outs do not count
ATTEMPTS_ALLOWED_MAX = 2**31 - 1
UNIQUE_FOR_MS_MAX = YEAR_MS


def quarantine_text(attempts: int) -> str:
    """Returns the error text of a job that was given up after this number of claims in a row timed out."""
    return f"the claims of {attempts} attempts in a row timed out: the job may kill its workers"


def progress_of(custom_status: str) -> str:
    """Returns the latest progress that the job reported (`40 % row 2`); '' if there is none."""
    found = _PROGRESS_LINE.search(custom_status)
    return "" if found is None else found[1]


def progress_lines(custom_status: str) -> str:
    """Its lines of progress alone, with their ends."""
    if PROGRESS_MARK not in custom_status:  # of nearly all jobs
        return ""
    return "".join(found[0] for found in _PROGRESS_LINE.finditer(custom_status))


def without_progress(custom_status: str) -> str:
    """Returns the custom status without its lines of progress."""
    return _PROGRESS_LINE.sub("", custom_status)


def source_of_claim(claim_descriptor: str) -> str | None:
    """The source in `host:port:serverStartMillis:source:counter`, which may contain colons itself, or None if the string has another
    format."""
    parts = claim_descriptor.split(":", 3)
    return parts[3].rpartition(":")[0] if len(parts) == 4 and ":" in parts[3] else None


class UniqueKey(NamedTuple):
    """A job's unique key: per queue, across priorities. `for_ms` counts from the enqueue and is used by scope TIME only."""

    key: str
    scope: UniqueScope = UniqueScope.UNFINISHED
    for_ms: int = 0


class Attempt(NamedTuple):
    """How one attempt ended. `outcome` is one of `succeeded failed timed_out cancelled`; `error_text` is at most 1 KB here."""

    number: int
    claimed_by: str
    claimed_at_ms: int
    ended_at_ms: int
    outcome: str
    error_type: str = ""
    error_text: str = ""


class ShownAttempt(Protocol):
    """An attempt, in a store, a server or a client."""

    @property
    def number(self) -> int: ...
    @property
    def ended_at_ms(self) -> int | None: ...
    @property
    def outcome(self) -> str | None: ...


class ShownJob(Protocol):
    """The fields of a job that criteria use, from a server or a client."""

    @property
    def state(self) -> int: ...
    @property
    def attempts_allowed(self) -> int: ...
    @property
    def attempts_remaining(self) -> int: ...
    @property
    def custom_status(self) -> str: ...
    @property
    def created_at_ms(self) -> int: ...
    @property
    def finished_at_ms(self) -> int | None: ...
    @property
    def headers(self) -> Mapping[str, str] | None: ...
    @property
    def error_type(self) -> str | None: ...
    @property
    def error_text(self) -> str | None: ...
    @property
    def attempts(self) -> Sequence[ShownAttempt] | None: ...
    @property
    def failure_group(self) -> str | None: ...


class Holder(NamedTuple):
    """The holder of a claim. `descriptor` is the name on the wire; `token` fences; bare checkpoints compare `source`."""

    descriptor: str
    source: str
    token: str


class HandedOutJob(NamedTuple):
    """A job as it is handed out. `attempt` counts from 1."""

    id: int
    priority: int
    body: bytes
    attempts_allowed: int
    attempts_remaining: int
    attempt: int
    headers: Mapping[str, str] | None
    created_at_ms: int
    run_after_ms: int
    claim_deadline_ms: int
