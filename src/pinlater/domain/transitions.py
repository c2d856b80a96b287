"""The lifecycle of a job, as one table: `storage/decide.py`, the tests and the docs read it.

A row maps an event and a state to the next state, and to the number of attempts that it costs. An event that has no row for the state
of a job changes nothing. `event_of` in `storage/decide.py` decides whether a failure or a time-out was that of the last attempt.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from pinlater.domain.job import PROGRESS_MARK, JobState, ShownAttempt, progress_lines, without_progress

# Reading a member from its class takes a Python call in 3.11: code that runs for each job uses these.
PENDING, IN_PROGRESS, SUCCEEDED, FAILED = JobState.PENDING, JobState.IN_PROGRESS, JobState.SUCCEEDED, JobState.FAILED

CUSTOM_STATUS_CHARS_MAX = 5_000
ATTEMPTS_KEPT_MAX = 20
ATTEMPT_ERROR_TEXT_BYTES_MAX = 1_024
ERROR_TEXT_CHARS_MAX = 4_000
ERROR_TYPE_CHARS_MAX = 200
STATUS_CANCELLED = "cancelled"
STATUS_EXPIRED = "expired"
_BEFORE_WORD = "; "  # between a status that ends with a letter or a digit and one of these words


class Event(Enum):
    """What can happen to a job once it is stored."""

    CLAIM = "claim"
    SUCCEED = "ack: success"
    RETRY = "ack: failure, attempts left"
    FAIL = "ack: failure, the last attempt or final"
    TIME_OUT_RETRY = "claim timed out, attempts left"
    TIME_OUT_FAIL = "claim timed out, the last attempt"
    HEARTBEAT = "heartbeat"
    CHECKPOINT = "checkpoint"
    CHECKPOINT_TO_PENDING = "checkpoint, moveToPending"
    RELEASE = "release"
    CANCEL = "cancel"
    EXPIRE = "past its expiry"
    RETRY_FAILED = "retryFailedJobs"
    RUN = "runJobs"

    __hash__ = object.__hash__  # that of `Enum` is a Python function, and each decision looks an event up


class Transition(NamedTuple):
    """One row: `spends` is how many attempts the event costs."""

    event: Event
    before: JobState
    after: JobState
    spends: int = 0


TRANSITIONS: tuple[Transition, ...] = (
    Transition(Event.CLAIM, PENDING, IN_PROGRESS),
    Transition(Event.SUCCEED, IN_PROGRESS, SUCCEEDED),
    Transition(Event.RETRY, IN_PROGRESS, PENDING, spends=1),
    Transition(Event.FAIL, IN_PROGRESS, FAILED, spends=1),
    Transition(Event.TIME_OUT_RETRY, IN_PROGRESS, PENDING, spends=1),
    Transition(Event.TIME_OUT_FAIL, IN_PROGRESS, FAILED, spends=1),
    Transition(Event.HEARTBEAT, IN_PROGRESS, IN_PROGRESS),
    Transition(Event.CHECKPOINT, IN_PROGRESS, IN_PROGRESS),
    Transition(Event.CHECKPOINT_TO_PENDING, IN_PROGRESS, PENDING),
    Transition(Event.RELEASE, IN_PROGRESS, PENDING),
    Transition(Event.CANCEL, PENDING, FAILED),
    Transition(Event.CANCEL, IN_PROGRESS, FAILED),
    Transition(Event.EXPIRE, PENDING, FAILED),
    Transition(Event.RETRY_FAILED, FAILED, PENDING),
    Transition(Event.RUN, PENDING, PENDING),
    Transition(Event.RUN, FAILED, PENDING),
)


# By event and state. States are small integers, which are faster to look up than members of an enumeration.
_ROWS = {
    event: tuple(
        next((row for row in TRANSITIONS if (row.event, row.before) == (event, state)), None) for state in JobState
    )
    for event in Event
}


def transition_of(event: Event, before: JobState) -> Transition | None:
    """The row for this event and state, or None if the event changes nothing."""
    return _ROWS[event][before]


def append_status(status: str, addition: str, *, chars_max: int = CUSTOM_STATUS_CHARS_MAX) -> str:
    """Returns the custom status after an ack (MySQL's rule, which SQLite and memory follow): appended, cut at the end."""
    return (status + addition)[:chars_max]


def prepend_status(status: str, addition: str, *, chars_max: int = CUSTOM_STATUS_CHARS_MAX) -> str:
    """Returns the custom status after a checkpoint: prepended, cut at the end. A line of progress replaces the previous one."""
    if addition.startswith(PROGRESS_MARK):
        status = without_progress(status)
    return (addition + status)[:chars_max]


def given_up(status: str, finished_at_ms: int | None, last_attempt: ShownAttempt | None) -> str:
    """Returns why a FAILED job was given up: `STATUS_CANCELLED` or `STATUS_EXPIRED`, with which its custom status ends; '' if its attempts
    failed.

    A job whose last attempt failed or timed out as the job finished was neither cancelled nor expired: that word is its producer's.
    """
    if last_attempt is not None and last_attempt.ended_at_ms == finished_at_ms and last_attempt.outcome != "cancelled":
        return ""
    return next((word for word in (STATUS_CANCELLED, STATUS_EXPIRED) if status.endswith(word)), "")


def was_cancelled(status: str, finished_at_ms: int | None, last_attempt: ShownAttempt | None) -> bool:
    """Returns whether a FAILED job is FAILED because it was cancelled."""
    return given_up(status, finished_at_ms, last_attempt) == STATUS_CANCELLED


def status_when_requeued(status: str, finished_at_ms: int | None, last_attempt: ShownAttempt | None) -> str:
    """Returns the custom status of a FAILED job that waits again, without the word that its cancel or expiry has appended."""
    word = given_up(status, finished_at_ms, last_attempt)
    return status.removesuffix(word).removesuffix(_BEFORE_WORD) if word else status


class StatusRule(NamedTuple):
    """How custom statuses are cut and joined. Stores differ here, since the original's do."""

    chars_max: int = CUSTOM_STATUS_CHARS_MAX
    ack_replaces: bool = False

    def at_enqueue(self, status: str) -> str:
        return status[: self.chars_max]

    def after_ack(self, status: str, addition: str) -> str:
        """An ack that replaces the status keeps the line of progress, which the original does not have."""
        kept = progress_lines(status) if self.ack_replaces else status
        return append_status(kept, addition, chars_max=self.chars_max)

    def when_given_up(self, status: str, word: str) -> str:
        """Returns the status of a job that was given up: `STATUS_CANCELLED` or `STATUS_EXPIRED` is appended on every store."""
        addition = _BEFORE_WORD + word if status[-1:].isalnum() else word
        return append_status(status, addition, chars_max=self.chars_max)

    def after_checkpoint(self, status: str, addition: str) -> str:
        return prepend_status(status, addition, chars_max=self.chars_max)


MYSQL_STATUS = StatusRule()
REDIS_STATUS = StatusRule(3_000, ack_replaces=True)
