"""Maintenance: claims past their deadline, jobs past their expiry, garbage."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import merge
from itertools import islice

from pinlater.domain.failures import CLAIM_TIMED_OUT
from pinlater.domain.job import JobState, UniqueScope
from pinlater.server.storage.memory import claiming, events, finishing
from pinlater.server.storage.memory.inserting import REQUEST_KEY_KEPT_MS
from pinlater.server.storage.memory.queue_state import QueueState
from pinlater.server.storage.memory.record import MemoryJob
from pinlater.server.storage.values import Swept, TimeToLive


class MemorySweepCounts:
    """What a sweep did, by queue and priority."""

    def __init__(self) -> None:
        self._swept: dict[tuple[str, int], Swept] = {}
        self._ended: dict[tuple[str, int], dict[int, str]] = {}

    def timed_out(self, job: MemoryJob, source: str) -> None:
        """A claim of that source has ended."""
        self._ended.setdefault((job.queue, job.priority), {})[job.id] = source

    def retried(self, job: MemoryJob) -> None:
        so_far = self._of(job)
        due = job.run_after_ms if so_far.due_at_ms is None else min(so_far.due_at_ms, job.run_after_ms)
        self._put(so_far._replace(retried=so_far.retried + 1, due_at_ms=due))

    def failed(self, job: MemoryJob) -> None:
        so_far = self._of(job)
        self._put(so_far._replace(failed=so_far.failed + 1))

    def deleted(self, job: MemoryJob) -> None:
        so_far = self._of(job)
        if job.state is JobState.SUCCEEDED:
            self._put(so_far._replace(deleted_succeeded=so_far.deleted_succeeded + 1))
        else:
            self._put(so_far._replace(deleted_failed=so_far.deleted_failed + 1))

    def freed(self, count: int) -> None:
        """Keys that time has freed."""
        if count:
            self._put(Swept("", 0, freed=count))

    def result(self) -> list[Swept]:
        return [self._swept[key]._replace(ended=self._ended.get(key, {})) for key in sorted(self._swept)]

    def _of(self, job: MemoryJob) -> Swept:
        return self._swept.get((job.queue, job.priority), Swept(job.queue, job.priority))

    def _put(self, swept: Swept) -> None:
        self._swept[swept.queue, swept.priority] = swept


def time_out_claims(queues: Iterable[QueueState], now_ms: int, limit: int, quarantine_after: int) -> list[Swept]:
    """The longest overdue first, over all queues."""
    counts = MemorySweepCounts()
    for queue, job in _overdue(((queue, queue.deadlines.through(now_ms - 1)) for queue in queues), limit):
        if job.claim is not None:
            counts.timed_out(job, job.claim.holder.source)
        with queue.changing(job) as line:
            events.time_out(job, now_ms, quarantine_after)
            finishing.count_failure(line, job)
            queue.failures.count(job, CLAIM_TIMED_OUT, "", now_ms)
        if job.state is JobState.PENDING:
            counts.retried(job)
        else:
            counts.failed(job)
    return counts.result()


def expire_jobs(queues: Iterable[QueueState], now_ms: int, limit: int) -> list[Swept]:
    """The longest expired first, over all queues."""
    counts = MemorySweepCounts()
    for queue, job in _overdue(((queue, queue.expiries.through(now_ms - 1)) for queue in queues), limit):
        claiming.expire(queue, job, now_ms)
        counts.failed(job)
    return counts.result()


def collect_garbage(queues: dict[str, QueueState], ttls: Iterable[TimeToLive], now_ms: int, limit: int) -> list[Swept]:
    """Finished jobs of the named queues past their time to live, then keys that time has freed."""
    counts = MemorySweepCounts()
    left = limit
    for ttl in ttls:
        queue = queues.get(ttl.queue)
        if queue is None:
            continue
        for state, ttl_ms in ((JobState.SUCCEEDED, ttl.succeeded_ms), (JobState.FAILED, ttl.failed_ms)):
            for priority in queue.priorities():
                past = list(islice(queue.in_state(state, priority).through(now_ms - ttl_ms - 1), left))
                for _, job_id in past:
                    job = queue.jobs[job_id]
                    queue.drop(job)
                    counts.deleted(job)
                left -= len(past)
    before = left
    for queue in queues.values():
        left -= _forget_keys(queue, now_ms, left)
    counts.freed(before - left)
    return counts.result()


def _overdue(
    sources: Iterable[tuple[QueueState, Iterable[tuple[int, int]]]], limit: int
) -> list[tuple[QueueState, MemoryJob]]:
    """The first `limit` jobs of all queues in the order of their times."""
    ordered = merge(*([(key, queue) for key in keys] for queue, keys in sources), key=lambda found: found[0])
    return [(queue, queue.jobs[job_id]) for (_, job_id), queue in islice(ordered, limit)]


def _forget_keys(queue: QueueState, now_ms: int, limit: int) -> int:
    seen_before_ms = now_ms - REQUEST_KEY_KEPT_MS
    requests = [
        *islice((key for key, seen in queue.requests.items() if seen.at_ms < seen_before_ms), limit),
    ]
    for key in requests:
        del queue.requests[key]
    timed = ((key, hold) for key, hold in queue.unique_keys.items() if hold.scope is UniqueScope.TIME)
    over = [*islice((key for key, hold in timed if hold.until_ms <= now_ms), limit - len(requests))]
    for key in over:
        del queue.unique_keys[key]
    return len(requests) + len(over)
