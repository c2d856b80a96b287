"""One job within one call of a store, as named values. The body is not loaded."""

from __future__ import annotations

import msgspec

from pinlater.domain.descriptor import I64_MAX
from pinlater.domain.job import JobState
from pinlater.domain.transitions import FAILED, PENDING, SUCCEEDED
from pinlater.server.storage.options import NONE, Options

# Flags of a claim. A plain ack is one of a claim without flags: it needs no look at the job.
HAS_PROGRESS = 1
HAS_KEY = 2


class JobRecord(msgspec.Struct, frozen=True):
    """A job as it is now. msgspec's struct, because a replaced copy of one costs a tenth of a named tuple's.

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
    # The claim. `holder` stays when the job finishes, the rest means nothing then.
    claimed_at_ms: int | None = None
    deadline_ms: int | None = None
    timeout_ms: int | None = None
    flags: int = 0
    token: str | None = None
    source: str | None = None
    holder: str | None = None
    # What the store keeps of it. `has_progress`: fields that differ from those at enqueue are stored. `counted_future`: the counters
    # count it as not yet due (MySQL). `body_bytes`: 0 where the store has not loaded it.
    has_progress: bool = False
    counted_future: bool = False
    body_bytes: int = 0
    # Only after an event. `changed`: the fields that differ have to be stored again.
    changed: bool = False
    new_body: bytes | None = None

    @property
    def finished(self) -> bool:
        return self.state is SUCCEEDED or self.state is FAILED


def later(now_ms: int, by_ms: int) -> int:
    """`now_ms + by_ms`, cut to what a store can hold."""
    time_ms = now_ms + by_ms
    if -I64_MAX <= time_ms <= I64_MAX:
        return time_ms
    return I64_MAX if time_ms > 0 else -I64_MAX
