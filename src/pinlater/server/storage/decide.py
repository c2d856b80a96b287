"""Decides what an event does to a job: a pure function over the table in `domain/transitions.py`.

The stores load records, ask `decide` and write the result. The model in `tests/storage_model` decides for itself: tests compare the two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from pinlater.domain.job import QUARANTINE_MS, QUARANTINED, TASK_HEADER, TIMED_OUT, Attempt, quarantine_text
from pinlater.domain.transitions import (
    ATTEMPT_ERROR_TEXT_BYTES_MAX,
    ATTEMPTS_KEPT_MAX,
    ERROR_TEXT_CHARS_MAX,
    ERROR_TYPE_CHARS_MAX,
    IN_PROGRESS,
    MYSQL_STATUS,
    PENDING,
    STATUS_CANCELLED,
    STATUS_EXPIRED,
    Event,
    StatusRule,
    Transition,
    status_when_requeued,
    transition_of,
    was_cancelled,
)
from pinlater.server.storage.options import has_expired
from pinlater.server.storage.record import JobRecord, later
from pinlater.server.storage.values import JobAck, JobCheckpoint, Requeue

# This takes a tenth of the time of the standard library.
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Heartbeat(Struct, frozen=True):
    """The holder keeps its claim for another claim timeout."""


class Release(Struct, frozen=True):
    """The holder gives its claim back."""

    delay_ms: int = 0


class Cancel(Struct, frozen=True):
    """A caller ends the job."""


class TimeOut(Struct, frozen=True):
    """The claim's deadline has passed. `quarantine_after`: a task's job is given up after this number in a row; 0: never."""

    quarantine_after: int = 0


class Expire(Struct, frozen=True):
    """The job's expiry has passed while it waited."""


class RetryFailed(Struct, frozen=True):
    """An operator retries a FAILED job."""

    attempts: int
    run_after_ms: int


class Run(Struct, frozen=True):
    """An operator makes a job due. A FAILED one gets `attempts`."""

    attempts: int
    run_after_ms: int


# The fields of a record that an event changes. Made by `{}`: a call of this name takes eight times as long.
Fields = dict[str, Any]
Happening = JobAck | Heartbeat | JobCheckpoint | Release | Cancel | TimeOut | Expire | RetryFailed | Run


class Change(Struct, frozen=True):
    """The row of the table that applies, and the job afterwards."""

    transition: Transition
    after: JobRecord


class Context(Struct, frozen=True):
    """What an event's effect depends on besides the job."""

    transition: Transition
    now_ms: int
    rule: StatusRule


def decide(job: JobRecord, happening: Happening, now_ms: int, rule: StatusRule = MYSQL_STATUS) -> Change | None:
    """Returns the job after the event, or None if the table has no row for the event and the state. The caller fences claims
    (`outcomes.py`).
    """
    transition = transition_of(event_of(job, happening, now_ms), job.state)
    if transition is None:
        return None
    fields = _EFFECTS[type(happening)](job, happening, Context(transition, now_ms, rule))
    if transition.after is PENDING:
        _wait(fields, job, now_ms)
    elif transition.after is not IN_PROGRESS:
        fields["state"] = transition.after
        fields["updated_at_ms"] = fields["finished_at_ms"] = now_ms
    return Change(transition, replace(job, **fields))


def event_of(job: JobRecord, happening: Happening, now_ms: int) -> Event:
    """The table's name for the event: a failure of the last attempt is another event than one that leaves attempts."""
    event = _EVENTS.get(type(happening))
    if event is not None:
        return event
    if isinstance(happening, JobAck):
        if happening.succeeded:
            return Event.SUCCEED
        return Event.FAIL if happening.final or job.attempts_remaining <= 1 else Event.RETRY
    if isinstance(happening, TimeOut):
        last = job.attempts_remaining <= 1 or is_quarantined(job, happening.quarantine_after, now_ms)
        return Event.TIME_OUT_FAIL if last else Event.TIME_OUT_RETRY
    if isinstance(happening, JobCheckpoint) and happening.move_to_pending:
        return Event.CHECKPOINT_TO_PENDING
    return Event.CHECKPOINT


def is_quarantined(job: JobRecord, after: int, now_ms: int) -> bool:
    """Returns whether the claim that times out now is the last of `after` in a row within a day, so that the job may kill its workers.

    Only for a task's job: a client of the original expects that its job gets all its attempts.
    """
    if not after or job.attempts_ended + 1 < after or TASK_HEADER not in (job.options.headers or ()):
        return False
    attempts = _decode(job.history) if job.history != "[]" else []
    before = attempts[len(attempts) - after + 1 :]
    return len(before) == after - 1 and all(_timed_out_lately(Attempt(*attempt), now_ms) for attempt in before)


def _timed_out_lately(attempt: Attempt, now_ms: int) -> bool:
    return attempt.outcome == TIMED_OUT and attempt.ended_at_ms > now_ms - QUARANTINE_MS


# Commands that are one event whatever the job.
_EVENTS: dict[type, Event] = {
    Heartbeat: Event.HEARTBEAT,
    Release: Event.RELEASE,
    Cancel: Event.CANCEL,
    Expire: Event.EXPIRE,
    RetryFailed: Event.RETRY_FAILED,
    Run: Event.RUN,
}


# --- effects: what an event changes besides the state -----------------------------------------------------------------------------


def _acked(job: JobRecord, ack: JobAck, context: Context) -> Fields:
    """A success at the first attempt leaves no record of the attempt; a failure without an error keeps the previous error."""
    fields: Fields = {}
    if not ack.succeeded:
        fields = _attempt(job, "failed", context.now_ms, ack.error_type, ack.error_text)
        fields["attempts_remaining"] = _remaining(job, context.transition)
        fields["run_after_ms"] = later(context.now_ms, ack.retry_delay_ms)
        if ack.error_type or ack.error_text:
            fields["error_type"] = ack.error_type[:ERROR_TYPE_CHARS_MAX]
            fields["error_text"] = ack.error_text[:ERROR_TEXT_CHARS_MAX]
        if context.transition.after is not PENDING:
            del fields["run_after_ms"]
    elif job.history != "[]":
        fields = _attempt(job, "succeeded", context.now_ms)
    _set_status(fields, job, context.rule.after_ack(job.custom_status, ack.append_status))
    return fields


def _timed_out(job: JobRecord, time_out: TimeOut, context: Context) -> Fields:
    """Returns the job after a claim that timed out: as after a failure, but due as before."""
    fields = _attempt(job, TIMED_OUT, context.now_ms)
    fields["attempts_remaining"] = _remaining(job, context.transition)
    if is_quarantined(job, time_out.quarantine_after, context.now_ms):
        fields["error_type"], fields["error_text"] = QUARANTINED, quarantine_text(time_out.quarantine_after)
    return fields


def _checkpointed(job: JobRecord, progress: JobCheckpoint, context: Context) -> Fields:
    """A checkpoint that keeps the claim also renews it."""
    fields: Fields = {} if progress.move_to_pending else _extended(job, Heartbeat(), context)
    fields["custom_status"] = context.rule.after_checkpoint(job.custom_status, progress.prepend_status)
    fields["run_after_ms"] = context.now_ms if progress.run_after_ms is None else progress.run_after_ms
    fields["updated_at_ms"] = context.now_ms
    fields["changed"] = True
    if progress.new_body is not None:
        fields["body"], fields["body_bytes"] = progress.new_body, len(progress.new_body)
    if progress.attempts_allowed is not None:
        fields["attempts_allowed"] = fields["attempts_remaining"] = progress.attempts_allowed
    return fields


def _extended(job: JobRecord, _: Heartbeat, context: Context) -> Fields:
    return {"deadline_ms": renewed_deadline_ms(job.deadline_ms or 0, job.timeout_ms or 0, context.now_ms)}


def renewed_deadline_ms(deadline_ms: int, timeout_ms: int, now_ms: int) -> int:
    """A whole claim timeout from now. A delayed heartbeat never shortens the deadline that a later one set."""
    return max(deadline_ms, later(now_ms, timeout_ms))


def _released(job: JobRecord, release: Release, context: Context) -> Fields:
    """Returns the job after its release. Without a delay, it keeps its place in the queue."""
    if not release.delay_ms and job.run_after_ms <= context.now_ms:
        return {}
    return {"run_after_ms": later(context.now_ms, release.delay_ms)}


def _cancelled(job: JobRecord, _: Cancel, context: Context) -> Fields:
    fields: Fields = {} if job.state is PENDING else _attempt(job, "cancelled", context.now_ms)
    return _given_up(fields, job, STATUS_CANCELLED, context)


def _expired(job: JobRecord, _: Expire, context: Context) -> Fields:
    return _given_up({}, job, STATUS_EXPIRED, context)


def _retried(job: JobRecord, retry: RetryFailed | Run, _: Context) -> Fields:
    fields: Fields = {"attempts_remaining": retry.attempts, "run_after_ms": retry.run_after_ms}
    _set_status(fields, job, status_when_requeued(job.custom_status, job.finished_at_ms, _last_attempt(job)))
    return fields


def stays_failed(order: Requeue, job: JobRecord, now_ms: int) -> bool:
    """Returns whether a retry of failed jobs leaves this one as it is: it is past its expiry and would only fail again, or it was
    cancelled."""
    if has_expired(job.options, now_ms):
        return True
    return order.skip_cancelled and was_cancelled(job.custom_status, job.finished_at_ms, _last_attempt(job))


def _last_attempt(job: JobRecord) -> Attempt | None:
    return Attempt(*_decode(job.history)[-1]) if job.history != "[]" else None


def _run(job: JobRecord, run: Run, context: Context) -> Fields:
    """A PENDING job keeps its attempts."""
    return _retried(job, run, context) if job.finished else {"run_after_ms": run.run_after_ms}


_EFFECTS: dict[type, Callable[[JobRecord, Any, Context], Fields]] = {
    JobAck: _acked,
    TimeOut: _timed_out,
    JobCheckpoint: _checkpointed,
    Heartbeat: _extended,
    Release: _released,
    Cancel: _cancelled,
    Expire: _expired,
    RetryFailed: _retried,
    Run: _run,
}


# --- parts of effects -------------------------------------------------------------------------------------------------------------


_WAITING: Fields = {
    "state": PENDING,
    "changed": True,
    "claimed_at_ms": None,
    "deadline_ms": None,
    "timeout_ms": None,
    "finished_at_ms": None,
    "token": None,
    "source": None,
    "holder": None,
}


def _wait(fields: Fields, job: JobRecord, now_ms: int) -> None:
    """The job waits again: without a claim, and all its fields have to be stored."""
    fields["updated_at_ms"] = now_ms
    fields["counted_future"] = fields.get("run_after_ms", job.run_after_ms) > now_ms
    fields.update(_WAITING)


def _given_up(fields: Fields, job: JobRecord, status: str, context: Context) -> Fields:
    fields["attempts_remaining"] = 0
    fields["changed"] = True
    _set_status(fields, job, context.rule.when_given_up(job.custom_status, status))
    return fields


def _remaining(job: JobRecord, transition: Transition) -> int:
    return job.attempts_remaining - transition.spends if transition.after is PENDING else 0


def _set_status(fields: Fields, job: JobRecord, status: str) -> None:
    if status != job.custom_status:
        fields["custom_status"] = status
        fields["changed"] = True


def _attempt(job: JobRecord, outcome: str, now_ms: int, error_type: str = "", error_text: str = "") -> Fields:
    """Returns the records of the attempts, with this one appended."""
    attempt = Attempt(
        number=job.attempts_ended + 1,
        claimed_by=job.holder or "",
        claimed_at_ms=job.claimed_at_ms or 0,
        ended_at_ms=now_ms,
        outcome=outcome,
        error_type=error_type[:ERROR_TYPE_CHARS_MAX],
        error_text=cut_bytes(error_text, ATTEMPT_ERROR_TEXT_BYTES_MAX),
    )
    attempts = [*_decode(job.history), attempt] if job.history != "[]" else [attempt]
    history = _encode(attempts[-ATTEMPTS_KEPT_MAX:]).decode()
    return {"attempts_ended": attempt.number, "history": history, "changed": True}


def cut_bytes(text: str, bytes_max: int) -> str:
    """Returns `text`, cut so that its UTF-8 form fits, never in the middle of a character."""
    return text if len(text) * 4 <= bytes_max else text.encode()[:bytes_max].decode(errors="ignore")
