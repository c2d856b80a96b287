"""What an event makes of a job: a pure function over the table in `domain/transitions.py`.

The stores load records, ask `decide` and write the result. The memory store does not use this module: tests compare the two.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from msgspec.structs import replace

from pinlater.domain.job import Attempt, JobState
from pinlater.domain.transitions import (
    ATTEMPT_ERROR_TEXT_BYTES_MAX,
    ATTEMPTS_KEPT_MAX,
    ERROR_TEXT_CHARS_MAX,
    ERROR_TYPE_CHARS_MAX,
    MYSQL_STATUS,
    STATUS_CANCELLED,
    STATUS_EXPIRED,
    Event,
    StatusRule,
    Transition,
    transition_of,
)
from pinlater.storage.interface import Ack, Checkpoint
from pinlater.storage.record import JobRecord, later


class Heartbeat(NamedTuple):
    """The holder keeps its claim for another claim timeout."""


class Release(NamedTuple):
    """The holder gives its claim back."""

    delay_ms: int = 0


class Cancel(NamedTuple):
    """A caller ends the job."""


class TimeOut(NamedTuple):
    """The claim's deadline has passed."""


class Expire(NamedTuple):
    """The job's expiry has passed while it waited."""


class RetryFailed(NamedTuple):
    """An operator retries a FAILED job."""

    attempts: int
    run_after_ms: int


Happening = Ack | Heartbeat | Checkpoint | Release | Cancel | TimeOut | Expire | RetryFailed


class Change(NamedTuple):
    """The row of the table that applies, and the job afterwards."""

    transition: Transition
    after: JobRecord


def decide(job: JobRecord, happening: Happening, now_ms: int, rule: StatusRule = MYSQL_STATUS) -> Change | None:
    """None where the table has no row for the event and the job's state. Claims are fenced by the caller (`outcomes.py`)."""
    transition = transition_of(event_of(job, happening), job.state)
    if transition is None:
        return None
    match happening:
        case Ack(succeeded=True):
            after = _succeeded(job, happening, now_ms, rule)
        case Ack():
            after = _failed(job, happening, transition, now_ms, rule)
        case TimeOut():
            timed_out = _with_attempt(job, "timed_out", now_ms)
            after = replace(timed_out, attempts_remaining=_remaining(job, transition))
        case Checkpoint():
            after = _checkpointed(job, happening, now_ms, rule)
        case Heartbeat():
            after = _extended(job, now_ms)
        case Release():
            after = replace(job, run_after_ms=later(now_ms, happening.delay_ms))
        case Cancel():
            held = job.state is JobState.IN_PROGRESS
            ended = _with_attempt(job, "cancelled", now_ms) if held else job
            after = _given_up(ended, STATUS_CANCELLED, rule)
        case Expire():
            after = _given_up(job, STATUS_EXPIRED, rule)
        case RetryFailed():
            after = replace(job, attempts_remaining=happening.attempts, run_after_ms=happening.run_after_ms)
    return Change(transition, _moved(after, transition.after, now_ms))


def event_of(job: JobRecord, happening: Happening) -> Event:
    """The table's name for it: a failure of the last attempt is another event than one that leaves attempts."""
    last = job.attempts_remaining <= 1
    match happening:
        case Ack(succeeded=True):
            return Event.SUCCEED
        case Ack():
            return Event.FAIL if happening.final or last else Event.RETRY
        case TimeOut():
            return Event.TIME_OUT_FAIL if last else Event.TIME_OUT_RETRY
        case Checkpoint():
            return Event.CHECKPOINT_TO_PENDING if happening.move_to_pending else Event.CHECKPOINT
        case Heartbeat():
            return Event.HEARTBEAT
        case Release():
            return Event.RELEASE
        case Cancel():
            return Event.CANCEL
        case Expire():
            return Event.EXPIRE
        case RetryFailed():
            return Event.RETRY_FAILED


# --- events -----------------------------------------------------------------------------------------------------------------------


def _succeeded(job: JobRecord, ack: Ack, now_ms: int, rule: StatusRule) -> JobRecord:
    """A success at the first attempt leaves no record of the attempt."""
    if job.history != "[]":
        job = _with_attempt(job, "succeeded", now_ms)
    return _with_status(job, rule.after_ack(job.custom_status, ack.append_status))


def _failed(job: JobRecord, ack: Ack, transition: Transition, now_ms: int, rule: StatusRule) -> JobRecord:
    """An ack without an error keeps the error of the attempt before."""
    job = _with_attempt(job, "failed", now_ms, ack.error_type, ack.error_text)
    if ack.error_type or ack.error_text:
        error_type, error_text = ack.error_type[:ERROR_TYPE_CHARS_MAX], ack.error_text[:ERROR_TEXT_CHARS_MAX]
        job = replace(job, error_type=error_type, error_text=error_text)
    job = _with_status(job, rule.after_ack(job.custom_status, ack.append_status))
    retried = transition.after is JobState.PENDING
    run_after_ms = later(now_ms, ack.retry_delay_ms) if retried else job.run_after_ms
    return replace(job, attempts_remaining=_remaining(job, transition), run_after_ms=run_after_ms)


def _checkpointed(job: JobRecord, progress: Checkpoint, now_ms: int, rule: StatusRule) -> JobRecord:
    """A checkpoint that keeps the claim also renews it."""
    if progress.new_body is not None:
        job = replace(job, new_body=progress.new_body, body_bytes=len(progress.new_body))
    if progress.attempts_allowed is not None:
        allowed = progress.attempts_allowed
        job = replace(job, attempts_allowed=allowed, attempts_remaining=allowed)
    job = replace(
        job,
        custom_status=rule.after_checkpoint(job.custom_status, progress.prepend_status),
        run_after_ms=now_ms if progress.run_after_ms is None else progress.run_after_ms,
        updated_at_ms=now_ms,
        changed=True,
    )
    return job if progress.move_to_pending else _extended(job, now_ms)


def _extended(job: JobRecord, now_ms: int) -> JobRecord:
    """The deadline is a whole claim timeout from now. A delayed heartbeat never takes back what a later one gave."""
    return replace(job, deadline_ms=max(job.deadline_ms or 0, later(now_ms, job.timeout_ms or 0)))


def _given_up(job: JobRecord, status: str, rule: StatusRule) -> JobRecord:
    job = _with_status(job, rule.appended(job.custom_status, status))
    return replace(job, attempts_remaining=0, changed=True)


# --- parts of events --------------------------------------------------------------------------------------------------------------


def _remaining(job: JobRecord, transition: Transition) -> int:
    return job.attempts_remaining - transition.spends if transition.after is JobState.PENDING else 0


def _with_status(job: JobRecord, status: str) -> JobRecord:
    return job if status == job.custom_status else replace(job, custom_status=status, changed=True)


def _with_attempt(job: JobRecord, outcome: str, now_ms: int, error_type: str = "", error_text: str = "") -> JobRecord:
    attempt = Attempt(
        number=job.attempts_ended + 1,
        claimed_by=job.holder or "",
        claimed_at_ms=job.claimed_at_ms or 0,
        ended_at_ms=now_ms,
        outcome=outcome,
        error_type=error_type[:ERROR_TYPE_CHARS_MAX],
        error_text=cut_bytes(error_text, ATTEMPT_ERROR_TEXT_BYTES_MAX),
    )
    attempts = [*json.loads(job.history), attempt] if job.history != "[]" else [attempt]
    history = json.dumps(attempts[-ATTEMPTS_KEPT_MAX:], ensure_ascii=False, separators=(",", ":"))
    return replace(job, attempts_ended=attempt.number, history=history, changed=True)


def _moved(job: JobRecord, state: JobState, now_ms: int) -> JobRecord:
    """The job in its new state: without a claim where it waits, with a finish time where it is finished."""
    if state is JobState.IN_PROGRESS:
        return job
    if state is not JobState.PENDING:
        return replace(job, state=state, updated_at_ms=now_ms, finished_at_ms=now_ms)
    return replace(
        job,
        state=state,
        updated_at_ms=now_ms,
        changed=True,
        counted_future=job.run_after_ms > now_ms,
        claimed_at_ms=None,
        deadline_ms=None,
        timeout_ms=None,
        finished_at_ms=None,
        token=None,
        source=None,
        holder=None,
    )


def cut_bytes(text: str, bytes_max: int) -> str:
    """`text` cut so that its UTF-8 form fits, never in the middle of a character."""
    return text if len(text) * 4 <= bytes_max else text.encode()[:bytes_max].decode(errors="ignore")
