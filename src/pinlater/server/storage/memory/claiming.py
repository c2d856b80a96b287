"""Handing out due jobs, and looking at what would be handed out."""

from __future__ import annotations

from collections.abc import Iterator

from pinlater.domain.job import HandedOutJob, JobState
from pinlater.server.storage.claim_bytes import BytesTogether, header_bytes
from pinlater.server.storage.memory import events
from pinlater.server.storage.memory.queue_state import QueueState
from pinlater.server.storage.memory.record import MemoryJob
from pinlater.server.storage.peeked_jobs import PeekedJobs
from pinlater.server.storage.values import Claimed, ClaimOrder


def claim(queue: QueueState, order: ClaimOrder, now_ms: int, together: BytesTogether) -> Claimed:
    """Goes through the due jobs once; the first call is served first."""
    expired = 0
    due = _due_jobs(queue, now_ms)
    waiting: MemoryJob | None = None  # a job that did not fit into the call before
    given: list[list[HandedOutJob]] = []
    short = cut_short = False
    for call in order.calls:
        jobs: list[HandedOutJob] = []
        left_bytes = call.max_bytes
        while len(jobs) < call.limit:
            job = waiting or next(due, None)
            waiting = None
            if job is None:
                break
            if job.expired(now_ms):
                expire(queue, job, now_ms)
                expired += 1
                continue
            job_bytes = len(job.body) + header_bytes(job.headers)
            if together.left <= 0 or (jobs and job_bytes > left_bytes):
                waiting = job
                cut_short = together.left <= 0
                break
            left_bytes -= job_bytes
            together.left -= job_bytes
            with queue.changing(job) as line:
                events.claim(job, call.holder, order.claim_timeout_ms, now_ms)
                line.claimed += 1
            assert job.claim is not None  # noqa: S101
            jobs.append(job.handed_out(job.claim.deadline_ms))
        short = short or len(jobs) < call.limit
        given.append(jobs)
    return Claimed(given, next_due(queue) if short else None, expired, cut_short)


def peek(queue: QueueState, limit: int, now_ms: int, max_bytes: int) -> list[HandedOutJob]:
    """What `claim` would give to one call."""
    peeked = PeekedJobs(limit, max_bytes)
    for job in _due_jobs(queue, now_ms):
        if not job.expired(now_ms) and not peeked.add(job.handed_out(0)):
            break
    return peeked.jobs


def expire(queue: QueueState, job: MemoryJob, now_ms: int) -> None:
    with queue.changing(job) as line:
        events.expire(job, now_ms)
        line.failed += 1


def next_due(queue: QueueState) -> int | None:
    """The earliest run-after of all that wait."""
    firsts = [queue.in_state(JobState.PENDING, priority).first() for priority in queue.priorities()]
    return min((first[0] for first in firsts if first), default=None)


def _due_jobs(queue: QueueState, now_ms: int) -> Iterator[MemoryJob]:
    """Priority first, then run-after, then as enqueued."""
    for priority in queue.priorities():
        for _, job_id in queue.in_state(JobState.PENDING, priority).through(now_ms):
            yield queue.jobs[job_id]
