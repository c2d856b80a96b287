"""Storing new jobs: all of a request or none of it."""

from __future__ import annotations

from pinlater.domain.errors import PinLaterError, QueueFull, RequestKeyConflict
from pinlater.domain.request_keys import REQUEST_KEY_KEPT_MS as REQUEST_KEY_KEPT_MS
from pinlater.server.storage.memory.queue_state import QueueState, RequestSeen
from pinlater.server.storage.memory.record import MemoryJob
from pinlater.server.storage.values import Inserted, InsertRequest, KeyHolder


def insert(queue: QueueState, request: InsertRequest, now_ms: int) -> Inserted | PinLaterError:
    """Decides first (known request, jobs already there, space in the queue), then stores."""
    if request.request_key is not None:
        known = answered(queue, request.request_key, request.fingerprint, now_ms)
        if known is not None:
            return known
    answer = _plan(queue, request, now_ms)
    growth = len(request.jobs) - len(answer.existing)
    pending = queue.pending()
    if request.max_backlog is not None and growth and pending + growth > request.max_backlog:
        return QueueFull.of(request.queue, pending, request.max_backlog, growth)
    _store(queue, request, answer, now_ms)
    return answer


def answered(queue: QueueState, key: str, fingerprint: bytes, now_ms: int) -> Inserted | PinLaterError | None:
    """What this keyed request was answered before, if it was."""
    seen = queue.requests.get(key)
    if seen is None or seen.at_ms + REQUEST_KEY_KEPT_MS < now_ms:
        return None
    return RequestKeyConflict.of(key) if seen.fingerprint != fingerprint else seen.answer._replace(repeated=True)


def _plan(queue: QueueState, request: InsertRequest, now_ms: int) -> Inserted:
    """Which jobs are there already, under their unique keys or earlier in the same request."""
    ids: list[int] = []
    existing: dict[int, KeyHolder] = {}
    taken: dict[str, KeyHolder] = {}
    for index, job in enumerate(request.jobs):
        job_id = job.id
        if job.unique is not None:
            hold = queue.key_holder(job.unique.key, now_ms)
            duplicate = KeyHolder(hold.job_id, hold.priority) if hold else taken.get(job.unique.key)
            if duplicate is None:
                taken[job.unique.key] = KeyHolder(job.id, job.priority)
            else:
                existing[index] = duplicate
                job_id = duplicate.job_id
        ids.append(job_id)
    return Inserted(ids, existing)


def _store(queue: QueueState, request: InsertRequest, answer: Inserted, now_ms: int) -> None:
    for index, job in enumerate(request.jobs):
        if index in answer.existing or job.id in queue.jobs:  # or the same insert comes again after a lost answer
            continue
        queue.take_key(job, now_ms)
        queue.add(MemoryJob.of(request.queue, job, now_ms, queue.status_rule))
        queue.line(job.priority).enqueued += 1
    if request.request_key is not None:
        queue.requests[request.request_key] = RequestSeen(request.fingerprint, answer, now_ms)
