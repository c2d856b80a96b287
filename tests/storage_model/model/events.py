"""What each event of the table in `domain.transitions` does to one job's record.

Nothing else changes a record but a move. The queue counts the change and frees keys (`ModelQueue.changing`).
"""

from __future__ import annotations

from pinlater.domain.job import Attempt, Holder, JobState
from pinlater.domain.transitions import (
    ATTEMPT_ERROR_TEXT_BYTES_MAX,
    ATTEMPTS_KEPT_MAX,
    ERROR_TEXT_CHARS_MAX,
    ERROR_TYPE_CHARS_MAX,
    STATUS_CANCELLED,
    STATUS_EXPIRED,
    status_when_requeued,
)
from pinlater.server.storage.values import JobAck, JobCheckpoint
from tests.storage_model.model.job import HeldClaim, ModelJob


def claim(job: ModelJob, holder: Holder, timeout_ms: int, now_ms: int) -> int:
    """Hands the job out; returns the deadline. Spends nothing."""
    timeout = timeout_ms if job.claim_timeout_ms is None else job.claim_timeout_ms
    job.state = JobState.IN_PROGRESS
    job.claim = HeldClaim(holder, now_ms, timeout, now_ms + timeout)
    job.updated_at_ms = now_ms
    return job.claim.deadline_ms


def succeed(job: ModelJob, ack: JobAck, now_ms: int) -> None:
    """A clean first success leaves no record of the attempt: it would say nothing that the job doesn't."""
    if job.attempts:
        _record_attempt(job, "succeeded", now_ms)
    job.custom_status = job.status_rule.after_ack(job.custom_status, ack.append_status)
    _finish(job, JobState.SUCCEEDED, now_ms)


def fail(job: ModelJob, ack: JobAck, now_ms: int) -> None:
    """Back to the queue after the delay, or FAILED. An empty error leaves the one before to be seen."""
    _record_attempt(job, "failed", now_ms, ack.error_type, ack.error_text)
    if ack.error_type or ack.error_text:
        job.error_type = ack.error_type[:ERROR_TYPE_CHARS_MAX]
        job.error_text = ack.error_text[:ERROR_TEXT_CHARS_MAX]
    job.custom_status = job.status_rule.after_ack(job.custom_status, ack.append_status)
    _spend(job, now_ms, final=ack.final)
    if job.state is JobState.PENDING:
        job.run_after_ms = now_ms + ack.retry_delay_ms


def time_out(job: ModelJob, now_ms: int) -> None:
    """As a failure, but due as before: what spreads the jobs of a dead worker is the sweeper."""
    _record_attempt(job, "timed_out", now_ms)
    _spend(job, now_ms, final=False)


def checkpoint(job: ModelJob, progress: JobCheckpoint, now_ms: int) -> None:
    """Saves progress and renews the claim, or gives the job back to the queue with it."""
    assert job.claim is not None
    job.run_after_ms = now_ms if progress.run_after_ms is None else progress.run_after_ms
    if progress.new_body is not None:
        job.body = progress.new_body
    if progress.attempts_allowed is not None:
        job.attempts_allowed = job.attempts_remaining = progress.attempts_allowed
    job.custom_status = job.status_rule.after_checkpoint(job.custom_status, progress.prepend_status)
    if progress.move_to_pending:
        _to_pending(job, now_ms)
    else:
        extend(job, now_ms)
        job.updated_at_ms = now_ms


def extend(job: ModelJob, now_ms: int) -> None:
    """A heartbeat: the claim lasts its whole timeout from now on. Not a change of the job.

    One that was held up on its way says an earlier time than the holder's next one did, and ends the claim no sooner for it.
    """
    assert job.claim is not None
    job.claim.deadline_ms = max(job.claim.deadline_ms, now_ms + job.claim.timeout_ms)


def release(job: ModelJob, delay_ms: int, now_ms: int) -> None:
    """Given back untried: attempts as they were, nothing in the history. Without a delay the job keeps its place in the queue."""
    _to_pending(job, now_ms)
    if delay_ms or job.run_after_ms > now_ms:
        job.run_after_ms = now_ms + delay_ms


def cancel(job: ModelJob, now_ms: int) -> None:
    """The job fails without a further attempt; a claim on it ends."""
    if job.claim is not None:
        _record_attempt(job, "cancelled", now_ms)
    job.custom_status = job.status_rule.when_given_up(job.custom_status, STATUS_CANCELLED)
    job.attempts_remaining = 0
    _finish(job, JobState.FAILED, now_ms)


def expire(job: ModelJob, now_ms: int) -> None:
    """Too late to run it."""
    job.custom_status = job.status_rule.when_given_up(job.custom_status, STATUS_EXPIRED)
    job.attempts_remaining = 0
    _finish(job, JobState.FAILED, now_ms)


def requeue(job: ModelJob, attempts: int, run_after_ms: int, now_ms: int) -> None:
    """An operator's retry of a FAILED job, or run of a waiting one. Errors and attempts stay, not the old claim nor its `cancelled`."""
    if job.state is JobState.FAILED:
        job.custom_status = status_when_requeued(job.custom_status, job.finished_at_ms, _last_attempt(job))
    job.attempts_remaining = attempts
    job.run_after_ms = run_after_ms
    job.finished_at_ms = None
    _to_pending(job, now_ms)


def _last_attempt(job: ModelJob) -> Attempt | None:
    return job.attempts[-1] if job.attempts else None


def _spend(job: ModelJob, now_ms: int, *, final: bool) -> None:
    state, job.attempts_remaining = _after_failure(job.attempts_remaining, final=final)
    if state is JobState.PENDING:
        _to_pending(job, now_ms)
    else:
        _finish(job, state, now_ms)


def _after_failure(attempts_remaining: int, *, final: bool) -> tuple[JobState, int]:
    """The state and the attempts remaining after an attempt that failed or timed out.

    On purpose a second statement of the rule in `storage/decide.py`, which all other stores use: tests compare the two.
    """
    left = attempts_remaining - 1
    if final or left <= 0:
        return JobState.FAILED, 0
    return JobState.PENDING, left


def _to_pending(job: ModelJob, now_ms: int) -> None:
    job.state = JobState.PENDING
    job.claim = None
    job.last_claim_descriptor = None
    job.updated_at_ms = now_ms


def _finish(job: ModelJob, state: JobState, now_ms: int) -> None:
    """A finished job shows its last holder."""
    job.state = state
    job.last_claim_descriptor = job.claim.holder.descriptor if job.claim else None
    job.claim = None
    job.finished_at_ms = job.updated_at_ms = now_ms


def _record_attempt(job: ModelJob, outcome: str, now_ms: int, error_type: str = "", error_text: str = "") -> None:
    assert job.claim is not None
    job.attempts_ended += 1
    attempt = Attempt(
        number=job.attempts_ended,
        claimed_by=job.claim.holder.descriptor,
        claimed_at_ms=job.claim.at_ms,
        ended_at_ms=now_ms,
        outcome=outcome,
        error_type=error_type[:ERROR_TYPE_CHARS_MAX],
        error_text=cut_bytes(error_text, ATTEMPT_ERROR_TEXT_BYTES_MAX),
    )
    job.attempts = [*job.attempts, attempt][-ATTEMPTS_KEPT_MAX:]


def cut_bytes(text: str, bytes_max: int) -> str:
    """`text` cut so that its UTF-8 form fits, never in the middle of a character."""
    return text.encode()[:bytes_max].decode(errors="ignore")
