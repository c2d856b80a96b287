"""Ending attempts (acks), ending jobs (cancel), and keeping or giving back claims: whatever names jobs one by one.

Each function decides on one job and answers with an `Acked`; order within a call is the order of the arguments, so the first of two
acks of one job counts and the second meets what the first left.
"""

from __future__ import annotations

from collections.abc import Callable

from pinlater.domain.job import JobState, Outcome
from pinlater.server.storage.memory import events
from pinlater.server.storage.memory.queue_state import PriorityJobs, QueueState
from pinlater.server.storage.memory.record import HeldClaim, MemoryJob
from pinlater.server.storage.values import Acked, ClaimRef, JobAck, JobCheckpoint


def finish(queue: QueueState, job: MemoryJob, ack: JobAck, now_ms: int) -> Acked:
    """A success or a failure of any holder's claim, or of the claim with the ack's token."""

    def end_attempt(line: PriorityJobs) -> None:
        if ack.succeeded:
            events.succeed(job, ack, now_ms)
            line.succeeded += 1
        else:
            events.fail(job, ack, now_ms)
            count_failure(line, job)
            has_error = ack.error_type or ack.error_text
            queue.failures.count(job, ack.error_type, ack.error_text if has_error else ack.append_status, now_ms)

    return _in_hand(queue, job, end_attempt, lambda claim: ack.token is None or claim.holder.token == ack.token)


def checkpoint(queue: QueueState, job: MemoryJob, progress: JobCheckpoint, now_ms: int) -> Acked:
    """Fenced by the token, or by the source if there is none."""

    def allowed(claim: HeldClaim) -> bool:
        if progress.token is not None:
            return claim.holder.token == progress.token
        return claim.holder.source == progress.source

    return _in_hand(queue, job, lambda line: events.checkpoint(job, progress, now_ms), allowed, renews=True)


def extend(queue: QueueState, job: MemoryJob, ref: ClaimRef, now_ms: int) -> Acked:
    """A heartbeat."""
    return _in_hand(queue, job, lambda line: events.extend(job, now_ms), _token_is(ref.token), renews=True)


def release(queue: QueueState, job: MemoryJob, ref: ClaimRef, now_ms: int) -> Acked:
    """The claim given back."""
    return _in_hand(queue, job, lambda line: events.release(job, ref.delay_ms, now_ms), _token_is(ref.token))


def cancel(queue: QueueState, job: MemoryJob, now_ms: int, only_state: JobState | None) -> Acked:
    """Whatever claim it has; only finished jobs, and those in another state than is meant, stay as they are."""
    if job.finished_at_ms is not None or only_state not in (None, job.state):
        return answer(Outcome.ALREADY_FINAL, job)
    with queue.changing(job) as line:
        events.cancel(job, now_ms)
        line.failed += 1
    return answer(Outcome.APPLIED, job)


def count_failure(line: PriorityJobs, job: MemoryJob) -> None:
    """What a failure or a time-out adds to the totals."""
    if job.state is JobState.PENDING:
        line.retried += 1
    else:
        line.failed += 1


def answer(outcome: Outcome, job: MemoryJob) -> Acked:
    """The outcome, with the job's state as it is now."""
    return Acked(outcome, job.state, job.run_after_ms if job.state is JobState.PENDING else None)


def _in_hand(
    queue: QueueState,
    job: MemoryJob,
    act: Callable[[PriorityJobs], None],
    allowed: Callable[[HeldClaim], bool],
    *,
    renews: bool = False,
) -> Acked:
    """Carries out `act` if the job is IN_PROGRESS and the claim is `allowed` to; else says why not."""
    if job.finished_at_ms is not None:
        return answer(Outcome.ALREADY_FINAL, job)
    if job.claim is None:
        return answer(Outcome.STALE_CLAIM, job)
    if not allowed(job.claim):
        refused = answer(Outcome.STALE_CLAIM, job)
        return refused._replace(holder=job.claim.holder.descriptor, held_since_ms=job.claim.at_ms)
    with queue.changing(job) as line:
        act(line)
    applied = answer(Outcome.APPLIED, job)
    if renews and job.claim is not None:
        return applied._replace(deadline_ms=job.claim.deadline_ms)
    return applied


def _token_is(token: str) -> Callable[[HeldClaim], bool]:
    return lambda claim: claim.holder.token == token
