"""What happens to one job, decided on values: every store loads records, lets `Events` act on them, and writes what became of them.

A `Record` is one job within one call. Several events may hit it there; a store writes only the first place and the last. The table
of what may happen to a job is in `domain.transitions`; the executable specification, `memory`, has words of its own for the same.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Protocol

from pinlater.domain.descriptor import I64_MAX
from pinlater.domain.job import Attempt, JobState, Outcome
from pinlater.domain.transitions import (
    ATTEMPT_ERROR_TEXT_BYTES_MAX,
    ATTEMPTS_KEPT_MAX,
    ERROR_TEXT_CHARS_MAX,
    ERROR_TYPE_CHARS_MAX,
    MYSQL_STATUS,
    STATUS_CANCELLED,
    STATUS_EXPIRED,
    StatusRule,
    after_failure,
)
from pinlater.storage.interface import Ack, Acked, Checkpoint
from pinlater.storage.options import NONE, Options, options_of

# Flags of a claim.
HAS_PROGRESS = 1
HAS_KEY = 2

PENDING, IN_PROGRESS, SUCCEEDED, FAILED = JobState.PENDING, JobState.IN_PROGRESS, JobState.SUCCEEDED, JobState.FAILED


def later(now_ms: int, by_ms: int) -> int:
    """A time that a store can hold, however long the wait."""
    return max(-I64_MAX, min(now_ms + by_ms, I64_MAX))


class JobCounter(Protocol):
    """The counters of a queue and priority, as far as events change them; waiting jobs are counted by the store."""

    in_progress: int
    failed_total: int
    retried_total: int
    succeeded_total: int

    def add_finished(self, state: JobState, count: int = 1) -> None: ...


class Record:
    """One job as it is now, and where its row was when it was loaded. The body is not loaded."""

    def __init__(self, row: tuple[Any, ...], counter: JobCounter) -> None:
        self.counter = counter
        (self.id, self.queue_id, self.priority, run_after, allowed, self.created_at_ms, options) = row[:7]
        (had_progress, p_allowed, p_remaining, ended, p_run_after, updated, status, e_type, e_text, history) = row[7:17]
        (claimed, self.claimed_at_ms, self.deadline_ms, self.timeout_ms, self.flags) = row[17:22]
        (self.token, self.source, self.holder, done_state, self.finished_at_ms) = row[22:27]
        self.options: Options = options_of(options) if options is not None else NONE
        self.has_progress = had_progress is not None
        self.attempts_allowed: int = p_allowed if self.has_progress else allowed
        self.attempts_remaining: int = p_remaining if self.has_progress else allowed
        self.attempts_ended: int = ended or 0
        self.run_after_ms: int = p_run_after if self.has_progress else run_after
        self.updated_at_ms: int = updated if self.has_progress else self.created_at_ms
        self.custom_status: str = status if self.has_progress else self.options.status
        self.error_type: str = e_type or ""
        self.error_text: str = e_text or ""
        self.history: str = history or "[]"
        self.counted_future = False
        self.new_body: bytes | None = None
        self.changed = False
        self.state = IN_PROGRESS if claimed is not None else PENDING if done_state is None else JobState(done_state)
        self.was = self.state
        self.was_run_after_ms = self.run_after_ms

    @property
    def finished(self) -> bool:
        return self.state is SUCCEEDED or self.state is FAILED


class Events(ABC):
    """The events of one call on loaded records; a store adds loading, the counting of waiting jobs, and writing."""

    status_rule: ClassVar[StatusRule] = MYSQL_STATUS

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._touched: dict[int, Record] = {}

    @abstractmethod
    def _leave_waiting(self, job: Record) -> None:
        """Counts a job out of those that wait, by its run-after as it was."""

    @abstractmethod
    def _enter_waiting(self, job: Record) -> None:
        """Counts a job in among those that wait, by its new run-after."""

    # --- events -------------------------------------------------------------------------------------------------------------

    def succeed(self, job: Record, ack: Ack) -> None:
        """A clean first success leaves no record of the attempt."""
        if job.history != "[]":
            self._record_attempt(job, "succeeded")
        self._set_status(job, self.status_rule.after_ack(job.custom_status, ack.append_status))
        job.counter.succeeded_total += 1
        self._move(job, SUCCEEDED)

    def fail(self, job: Record, ack: Ack) -> None:
        """Back to the queue after the delay, or FAILED. An empty error leaves the one before to be seen."""
        self._record_attempt(job, "failed", ack.error_type, ack.error_text)
        if ack.error_type or ack.error_text:
            job.error_type = ack.error_type[:ERROR_TYPE_CHARS_MAX]
            job.error_text = ack.error_text[:ERROR_TEXT_CHARS_MAX]
        self._set_status(job, self.status_rule.after_ack(job.custom_status, ack.append_status))
        self._spend(job, final=ack.final, run_after_ms=later(self._now_ms, ack.retry_delay_ms))

    def time_out(self, job: Record) -> None:
        """As a failure, but due as before."""
        self._record_attempt(job, "timed_out")
        self._spend(job, final=False, run_after_ms=job.run_after_ms)

    def checkpoint(self, job: Record, progress: Checkpoint) -> None:
        run_after_ms = self._now_ms if progress.run_after_ms is None else progress.run_after_ms
        if progress.new_body is not None:
            job.new_body = progress.new_body
        if progress.attempts_allowed is not None:
            job.attempts_allowed = job.attempts_remaining = progress.attempts_allowed
        job.custom_status = self.status_rule.after_checkpoint(job.custom_status, progress.prepend_status)
        if progress.move_to_pending:
            self._to_pending(job, run_after_ms)
            return
        job.run_after_ms = run_after_ms
        job.updated_at_ms = self._now_ms
        job.changed = True
        self.extend(job)

    def extend(self, job: Record) -> None:
        """A heartbeat: the claim lasts its whole timeout from now on. Not a change of the job.

        One that was held up on its way says an earlier time than the holder's next one did, and ends the claim no sooner for it.
        """
        job.deadline_ms = max(job.deadline_ms or 0, later(self._now_ms, job.timeout_ms))
        self._touched[job.id] = job

    def release(self, job: Record, delay_ms: int) -> None:
        self._to_pending(job, later(self._now_ms, delay_ms))

    def cancel(self, job: Record) -> None:
        if job.state is IN_PROGRESS:
            self._record_attempt(job, "cancelled")
        self._set_status(job, self.status_rule.appended(job.custom_status, STATUS_CANCELLED))
        self._give_up(job)

    def expire(self, job: Record) -> None:
        self._set_status(job, self.status_rule.appended(job.custom_status, STATUS_EXPIRED))
        self._give_up(job)

    def requeue(self, job: Record, attempts: int, run_after_ms: int) -> None:
        """An operator's retry of a FAILED job. What it went through stays to be seen, but not the old claim."""
        job.attempts_remaining = attempts
        self._to_pending(job, run_after_ms)

    def run(self, job: Record, run_after_ms: int) -> None:
        """A PENDING job becomes due at another time."""
        self._to_pending(job, run_after_ms)

    # --- parts of events ------------------------------------------------------------------------------------------------------

    def _give_up(self, job: Record) -> None:
        job.attempts_remaining = 0
        job.counter.failed_total += 1
        job.changed = True
        self._move(job, FAILED)

    def _spend(self, job: Record, *, final: bool, run_after_ms: int) -> None:
        state, job.attempts_remaining = after_failure(job.attempts_remaining, final=final)
        job.changed = True
        if state is PENDING:
            job.counter.retried_total += 1
            self._to_pending(job, run_after_ms)
        else:
            job.counter.failed_total += 1
            self._move(job, state)

    def _set_status(self, job: Record, status: str) -> None:
        if status != job.custom_status:
            job.custom_status = status
            job.changed = True

    def _record_attempt(self, job: Record, outcome: str, error_type: str = "", error_text: str = "") -> None:
        job.attempts_ended += 1
        job.changed = True
        attempt = Attempt(
            number=job.attempts_ended,
            claimed_by=job.holder or "",
            claimed_at_ms=job.claimed_at_ms,
            ended_at_ms=self._now_ms,
            outcome=outcome,
            error_type=error_type[:ERROR_TYPE_CHARS_MAX],
            error_text=cut_bytes(error_text, ATTEMPT_ERROR_TEXT_BYTES_MAX),
        )
        history = [*json.loads(job.history), attempt] if job.history != "[]" else [attempt]
        job.history = json.dumps(history[-ATTEMPTS_KEPT_MAX:], ensure_ascii=False, separators=(",", ":"))

    def _to_pending(self, job: Record, run_after_ms: int) -> None:
        job.changed = True
        self._move(job, PENDING, run_after_ms)
        job.claimed_at_ms = job.deadline_ms = job.timeout_ms = job.finished_at_ms = None
        job.token = job.source = job.holder = None

    def _move(self, job: Record, state: JobState, run_after_ms: int | None = None) -> None:
        """Counts the job out of its state and into another one."""
        counter = job.counter
        if job.state is PENDING:
            self._leave_waiting(job)
        elif job.state is IN_PROGRESS:
            counter.in_progress -= 1
        else:
            counter.add_finished(job.state, -1)
        job.state = state
        job.updated_at_ms = self._now_ms
        if state is PENDING:
            if run_after_ms is not None:
                job.run_after_ms = run_after_ms
            self._enter_waiting(job)
        else:
            job.finished_at_ms = self._now_ms
            counter.add_finished(state)
        self._touched[job.id] = job


def acked(outcome: Outcome, job: Record) -> Acked:
    """The outcome, with the job's state as it is now."""
    return Acked(outcome, job.state, job.run_after_ms if job.state is PENDING else None)


def cut_bytes(text: str, bytes_max: int) -> str:
    """`text` cut so that its UTF-8 form fits, never in the middle of a character."""
    return text if len(text) * 4 <= bytes_max else text.encode()[:bytes_max].decode(errors="ignore")
