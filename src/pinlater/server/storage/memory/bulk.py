"""Many jobs at an operator's word: retry what failed, delete what is named or what is oldest."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from pinlater.domain.job import JobState, Outcome
from pinlater.server.storage.memory import events
from pinlater.server.storage.memory.finishing import answer
from pinlater.server.storage.memory.queue_state import QueueState
from pinlater.server.storage.memory.record import HeldClaim, MemoryJob
from pinlater.server.storage.values import Acked, JobKey, Purge, Requeue, Requeued, RunOrder


def requeue_failed(queue: QueueState, order: Requeue, now_ms: int) -> Requeued:
    """Oldest finish first. A job whose key another has taken is passed over and doesn't count against the limit."""
    requeued = 0
    stopped_at = order.after
    for place in list(queue.in_state(JobState.FAILED, order.priority)):
        if requeued >= order.limit:
            return Requeued(requeued, stopped_at)
        if order.after is not None and place <= order.after:
            continue
        stopped_at = place
        job = queue.jobs[place[1]]
        if job.expired(now_ms) or (order.skip_cancelled and events.was_cancelled(job)):
            continue
        if not queue.retake_key(job, now_ms):
            continue
        with queue.changing(job):
            events.requeue(job, order.attempts, order.run_after_ms, now_ms)
        requeued += 1
    return Requeued(requeued)


def run(queue: QueueState, job: MemoryJob, order: RunOrder, now_ms: int) -> Acked:
    """A waiting job becomes due, a failed one goes back to the queue unless its expiry has passed or another job has its key."""
    if job.claim is not None:
        return _held(job, job.claim)
    if job.state is JobState.SUCCEEDED or (order.only_failed and job.state is JobState.PENDING):
        return answer(Outcome.ALREADY_FINAL, job)
    if job.state is JobState.FAILED and (job.expired(now_ms) or not queue.retake_key(job, now_ms)):
        return answer(Outcome.ALREADY_FINAL, job)
    attempts = order.attempts if job.state is JobState.FAILED else job.attempts_remaining
    with queue.changing(job):
        events.requeue(job, attempts, order.run_after_ms, now_ms)
    return answer(Outcome.APPLIED, job)


def move(queue: QueueState, job: MemoryJob, priority: int, now_ms: int) -> Acked:
    """A waiting or failed job gets another priority. One that has it already stays as it is."""
    if job.priority == priority:
        return answer(Outcome.APPLIED, job)
    if job.claim is not None:
        return _held(job, job.claim)
    if job.state is JobState.SUCCEEDED:
        return answer(Outcome.ALREADY_FINAL, job)
    with queue.changing(job):
        job.priority = priority
        if job.state is JobState.PENDING:
            job.updated_at_ms = now_ms
    queue.rename_holder(job)
    queue.failures.move(job)
    return answer(Outcome.APPLIED, job)


def _held(job: MemoryJob, claim: HeldClaim) -> Acked:
    return answer(Outcome.STALE_CLAIM, job)._replace(holder=claim.holder.descriptor, held_since_ms=claim.at_ms)


def purge(queue: QueueState, order: Purge) -> int:
    """Oldest first, by the time that orders the state."""
    chosen = list(islice(queue.in_state(order.state, order.priority), max(0, order.limit)))
    for _, job_id in chosen:
        queue.drop(queue.jobs[job_id])
    return len(chosen)


def delete(queue: QueueState, keys: Sequence[JobKey], state: JobState | None) -> int:
    """Deletes the jobs that are there, and in that state if one is named; how many."""
    deleted = 0
    for key in keys:
        job = queue.find(key)
        if job is not None and (state is None or job.state is state):
            queue.drop(job)
            deleted += 1
    return deleted
