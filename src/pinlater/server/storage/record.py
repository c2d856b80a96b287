"""A job within one call of a store, as named values, and how a store makes it from its stored form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from pinlater.domain.descriptor import I64_MAX
from pinlater.domain.job import JobState
from pinlater.domain.transitions import FAILED, PENDING, SUCCEEDED
from pinlater.server.storage.options import NONE, Options, is_behind, options_of

# Flags of a claim. A plain ack needs a claim without flags: then the job need not be read.
HAS_PROGRESS = 1
HAS_KEY = 2
HAS_ORDER = 4
_STATES = tuple(JobState)


class JobRecord(msgspec.Struct, frozen=True):
    """A job as it is now. msgspec's struct, because a modified copy of one costs a tenth of a named tuple's.

    The stores make one by position, in the order of its fields: by name it costs seven times as much.
    """

    id: int
    queue_id: int
    priority: int
    created_at_ms: int
    run_after_ms: int
    updated_at_ms: int
    attempts_allowed: int
    attempts_remaining: int
    options: Options = NONE
    state: JobState = PENDING
    finished_at_ms: int | None = None
    # Attempts that have ended. `history` is a JSON list of the last ones.
    attempts_ended: int = 0
    custom_status: str = ""
    error_type: str = ""
    error_text: str = ""
    history: str = "[]"
    # The claim. `holder` stays when the job finishes; the other fields have no meaning then.
    claimed_at_ms: int | None = None
    deadline_ms: int | None = None
    timeout_ms: int | None = None
    flags: int = 0
    token: str | None = None
    source: str | None = None
    holder: str | None = None
    # The stored fields of the job. `has_progress`: fields that differ from those at enqueue are stored. `counted_future`: the counters
    # count it as not yet due (MySQL). `body_bytes`: 0 where the store has not loaded it. `body`: loaded for callers and copies only;
    # after a checkpoint the new one, which has to be stored.
    has_progress: bool = False
    counted_future: bool = False
    body_bytes: int = 0
    body: bytes | None = None
    # Only after an event: the fields that differ have to be stored again.
    changed: bool = False

    @property
    def finished(self) -> bool:
        return self.state is SUCCEEDED or self.state is FAILED

    @property
    def behind(self) -> bool:
        """Whether it waits behind others of its ordering key."""
        return self.state is PENDING and is_behind(self.options, self.run_after_ms)

    def due_at(self, run_after_ms: int, now_ms: int) -> JobRecord:
        """The waiting job with another run-after, which must be stored."""
        is_future = run_after_ms > now_ms
        return replace(self, run_after_ms=run_after_ms, counted_future=is_future, changed=True)


_OPTIONS_AT, STATE_AT, _STATUS_AT = map(JobRecord.__struct_fields__.index, ("options", "state", "custom_status"))


def record_of(values: Sequence[Any]) -> JobRecord:
    """The job with its first fields in stored form: options as text, the state as a number, no custom status if it never changed."""
    fields = list(values)
    text = fields[_OPTIONS_AT]
    fields[_OPTIONS_AT] = options = NONE if text is None else options_of(text)
    fields[STATE_AT] = _STATES[fields[STATE_AT]]
    if fields[_STATUS_AT] is None:
        fields[_STATUS_AT] = options.status
    return JobRecord(*fields)


def progress_of(job: JobRecord) -> tuple[object, ...]:
    """Returns the data that the first change of a job adds, in the order in which stores keep it."""
    return (
        job.attempts_allowed,
        job.attempts_remaining,
        job.attempts_ended,
        job.run_after_ms,
        job.updated_at_ms,
        job.custom_status,
        job.error_type,
        job.error_text,
        job.history,
    )


def later(now_ms: int, by_ms: int) -> int:
    """Returns `now_ms + by_ms`, limited to the range of a store."""
    time_ms = now_ms + by_ms
    if -I64_MAX <= time_ms <= I64_MAX:
        return time_ms
    return I64_MAX if time_ms > 0 else -I64_MAX
