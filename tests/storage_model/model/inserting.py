"""Storing new jobs: all of a request or none of it."""

from __future__ import annotations

from pinlater.domain.errors import OrderElsewhere, PinLaterError, QueueFull, RequestKeyConflict
from pinlater.domain.job import JobState
from pinlater.domain.request_keys import REQUEST_KEY_KEPT_MS
from pinlater.server.storage.values import Inserted, InsertRequest, KeyHolder, has_order
from tests.storage_model.model.job import ModelJob
from tests.storage_model.model.queue import SHARD, ModelQueue, RequestSeen


def insert(queue: ModelQueue, request: InsertRequest, now_ms: int) -> Inserted | PinLaterError:
    """Decides first (known request, jobs already there, space in the queue), then stores."""
    seen = None if request.request_key is None else queue.requests.get(request.request_key)
    if seen is not None and seen.at_ms + REQUEST_KEY_KEPT_MS >= now_ms:
        if seen.fingerprint != request.fingerprint:
            return RequestKeyConflict.of(request.request_key or "")
        return seen.answer._replace(repeated=True)
    if not queue.takes_order and has_order(request.jobs):
        return OrderElsewhere.of(request.queue, SHARD)
    answer = _plan(queue, request, now_ms)
    growth = len(request.jobs) - len(answer.existing)
    pending = sum(job.state is JobState.PENDING for job in queue.jobs.values())
    if request.max_backlog is not None and growth and pending + growth > request.max_backlog:
        return QueueFull.of(request.queue, pending, request.max_backlog, growth)
    for index, job in enumerate(request.jobs):
        if (
            index not in answer.existing and job.id not in queue.jobs
        ):  # the same insert may come again after a lost answer
            queue.take_key(job, now_ms)
            queue.jobs[job.id] = stored = ModelJob.of(request.queue, job, now_ms, queue.status_rule)
            queue.join_line(stored)
            queue.total(job.priority).enqueued += 1
    if request.request_key is not None:
        queue.requests[request.request_key] = RequestSeen(request.fingerprint, answer, now_ms)
    return answer


def _plan(queue: ModelQueue, request: InsertRequest, now_ms: int) -> Inserted:
    """Which jobs are there already, under their unique keys or earlier in the same request."""
    ids: list[int] = []
    existing: dict[int, KeyHolder] = {}
    taken: dict[str, KeyHolder] = {}
    for index, job in enumerate(request.jobs):
        job_id = job.id
        if job.options is not None and job.options.unique is not None:
            key = job.options.unique.key
            hold = queue.key_holder(key, now_ms)
            duplicate = KeyHolder(hold.job_id, hold.priority) if hold else taken.get(key)
            if duplicate is None:
                taken[key] = KeyHolder(job.id, job.priority)
            else:
                existing[index] = duplicate
                job_id = duplicate.job_id
        ids.append(job_id)
    return Inserted(ids, existing)
