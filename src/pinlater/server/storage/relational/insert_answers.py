"""Makes the answer to an enqueue request, once the store knows which of its jobs already exist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pinlater.domain.errors import QueueFull
from pinlater.domain.job import UniqueKey, UniqueScope
from pinlater.server.storage.record import later
from pinlater.server.storage.values import Inserted, InsertRequest, KeyHolder, NewJob

Existing = dict[int, KeyHolder]
"""By the index of a job in its request: the job that has its unique key."""


def queue_full(request: InsertRequest, pending: int, existing: Existing) -> QueueFull | None:
    """The refusal, if the request has more new jobs than its queue may take."""
    new = len(request.jobs) - len(existing)
    if request.max_backlog is not None and new and pending + new > request.max_backlog:
        return QueueFull.of(request.queue, pending, request.max_backlog, new)
    return None


def new_jobs(jobs: Sequence[NewJob], existing: Mapping[int, object]) -> Sequence[NewJob]:
    return [job for index, job in enumerate(jobs) if index not in existing] if existing else jobs


def answer_of(jobs: Sequence[NewJob], existing: Existing) -> Inserted:
    """The ids, with those of existing jobs in their places."""
    if existing:
        return Inserted([existing[i].job_id if i in existing else job.id for i, job in enumerate(jobs)], existing)
    return tuple.__new__(Inserted, ([job.id for job in jobs], existing, False))  # faster than calling the class


def unique_until_ms(unique: UniqueKey, now_ms: int) -> int | None:
    """Returns when time frees the key of a job that is stored now, or None for a key that time doesn't free."""
    return later(now_ms, unique.for_ms) if unique.scope is UniqueScope.TIME else None
