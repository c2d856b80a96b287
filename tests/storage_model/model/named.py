"""What names jobs one by one: acks, checkpoints, heartbeats, releases; cancel, run and move at an operator's word.

Each function decides on one job and answers with an `Acked`; order within a call is the order of the arguments, so the first of two
acks of one job counts and the second meets what the first left.
"""

from __future__ import annotations

from collections.abc import Callable

from pinlater.domain.job import JobState, Outcome
from pinlater.server.storage.values import Acked, ClaimRef, JobAck, JobCheckpoint, RunOrder
from tests.storage_model.model import events
from tests.storage_model.model.job import HeldClaim, ModelJob
from tests.storage_model.model.queue import ModelQueue, Totals


def finish(queue: ModelQueue, job: ModelJob, ack: JobAck, now_ms: int) -> Acked:
    """A success or a failure of any holder's claim, or of the claim with the ack's token."""

    def end_attempt(totals: Totals) -> None:
        if ack.succeeded:
            events.succeed(job, ack, now_ms)
            totals.succeeded += 1
        else:
            events.fail(job, ack, now_ms)
            totals.count_failure(job)

    return _in_hand(queue, job, end_attempt, lambda claim: ack.token is None or claim.holder.token == ack.token)


def checkpoint(queue: ModelQueue, job: ModelJob, progress: JobCheckpoint, now_ms: int) -> Acked:
    """Fenced by the token, or by the source if there is none."""

    def allowed(claim: HeldClaim) -> bool:
        if progress.token is not None:
            return claim.holder.token == progress.token
        return claim.holder.source == progress.source

    return _in_hand(queue, job, lambda _: events.checkpoint(job, progress, now_ms), allowed, renews=True)


def extend(queue: ModelQueue, job: ModelJob, ref: ClaimRef, now_ms: int) -> Acked:
    """A heartbeat."""
    return _in_hand(queue, job, lambda _: events.extend(job, now_ms), _token_is(ref.token), renews=True)


def release(queue: ModelQueue, job: ModelJob, ref: ClaimRef, now_ms: int) -> Acked:
    """The claim given back."""
    return _in_hand(queue, job, lambda _: events.release(job, ref.delay_ms, now_ms), _token_is(ref.token))


def cancel(queue: ModelQueue, job: ModelJob, now_ms: int) -> Acked:
    """Whatever claim it has; only finished jobs stay as they are."""
    if job.finished_at_ms is not None:
        return _answer(Outcome.ALREADY_FINAL, job)
    with queue.changing(job) as totals:
        events.cancel(job, now_ms)
        totals.failed += 1
    return _answer(Outcome.APPLIED, job)


def run(queue: ModelQueue, job: ModelJob, order: RunOrder, now_ms: int) -> Acked:
    """A waiting job becomes due, a failed one goes back to the queue unless its expiry has passed, or another job or shard has its key."""
    if job.claim is not None:
        return _held(job, job.claim)
    if job.is_behind:
        return _answer(Outcome.STALE_CLAIM, job)
    if job.state is JobState.SUCCEEDED:
        return _answer(Outcome.ALREADY_FINAL, job)
    if job.state is JobState.FAILED:
        may = not job.expired(now_ms) and queue.may_wait_again(job)
        if not may or not queue.retake_key(job, now_ms):
            return _answer(Outcome.ALREADY_FINAL, job)
    attempts = order.attempts if job.state is JobState.FAILED else job.attempts_remaining
    with queue.changing(job):
        events.requeue(job, attempts, order.run_after_ms, now_ms)
    return _answer(Outcome.APPLIED, job)


def move(queue: ModelQueue, job: ModelJob, priority: int, now_ms: int) -> Acked:
    """A waiting or failed job gets another priority. One that has it already stays as it is."""
    if job.priority == priority:
        return (
            _answer(Outcome.APPLIED, job)._replace(due_at_ms=None) if job.is_behind else _answer(Outcome.APPLIED, job)
        )
    if job.claim is not None:
        return _held(job, job.claim)
    if job.is_behind:
        return _answer(Outcome.STALE_CLAIM, job)
    if job.state is JobState.SUCCEEDED:
        return _answer(Outcome.ALREADY_FINAL, job)
    queue.total(priority)
    job.priority = priority
    if job.state is JobState.PENDING:
        job.updated_at_ms = now_ms
    queue.rename_holder(job)
    return _answer(Outcome.APPLIED, job)


def _in_hand(
    queue: ModelQueue,
    job: ModelJob,
    act: Callable[[Totals], None],
    allowed: Callable[[HeldClaim], bool],
    *,
    renews: bool = False,
) -> Acked:
    """Carries out `act` if the job is IN_PROGRESS and the claim is `allowed` to; else says why not."""
    if job.finished_at_ms is not None:
        return _answer(Outcome.ALREADY_FINAL, job)
    if job.claim is None:
        return _answer(Outcome.STALE_CLAIM, job)
    if not allowed(job.claim):
        return _held(job, job.claim)
    with queue.changing(job) as totals:
        act(totals)
    applied = _answer(Outcome.APPLIED, job)
    if renews and job.claim is not None:
        return applied._replace(deadline_ms=job.claim.deadline_ms)
    return applied


def _token_is(token: str) -> Callable[[HeldClaim], bool]:
    return lambda claim: claim.holder.token == token


def _held(job: ModelJob, claim: HeldClaim) -> Acked:
    return _answer(Outcome.STALE_CLAIM, job)._replace(holder=claim.holder.descriptor, held_since_ms=claim.at_ms)


def _answer(outcome: Outcome, job: ModelJob) -> Acked:
    """The outcome, with the job's state as it is now."""
    tells_due = job.ordering_key is None or outcome is Outcome.APPLIED
    return Acked(outcome, job.state, job.run_after_ms if job.state is JobState.PENDING and tells_due else None)
