"""What chooses jobs by itself: claims, retries and purges of a queue, scans, and the sweeps over all queues."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from pinlater.domain.job import HandedOutJob, JobState, UniqueScope
from pinlater.domain.request_keys import REQUEST_KEY_KEPT_MS
from pinlater.server.storage.values import (
    Claimed,
    ClaimOrder,
    JobKey,
    Page,
    PageRow,
    Purge,
    Requeue,
    Requeued,
    Swept,
    TimeToLive,
)
from tests.storage_model.model import events
from tests.storage_model.model.job import ModelJob
from tests.storage_model.model.queue import ModelQueue


def claim(queue: ModelQueue, order: ClaimOrder, now_ms: int) -> Claimed:
    """Goes through the due jobs once; the first call is served first."""
    expired = 0
    last = order.through_priority
    due = iter([job for job in _due(queue, now_ms) if last is None or job.priority <= last])
    given: list[list[HandedOutJob]] = []
    for call in order.calls:
        jobs: list[HandedOutJob] = []
        while len(jobs) < call.limit and (job := next(due, None)) is not None:
            if job.expired(now_ms):
                _expire(queue, job, now_ms)
                expired += 1
                continue
            with queue.changing(job) as totals:
                deadline_ms = events.claim(job, call.holder, order.claim_timeout_ms, now_ms)
                totals.claimed += 1
            jobs.append(job.handed_out(deadline_ms))
        given.append(jobs)
    short = any(len(jobs) < call.limit for jobs, call in zip(given, order.calls, strict=True))
    if not short:
        return Claimed(given, None, expired)
    next_due_ms = min((job.sort_ms for job in queue.waiting()), default=None)
    head = next(((job.priority, job.run_after_ms) for job in _due(queue, now_ms)), None)
    return Claimed(given, next_due_ms, expired, head=head)


def _due(queue: ModelQueue, now_ms: int) -> list[ModelJob]:
    return [job for job in queue.waiting() if job.sort_ms <= now_ms]


def peek(queue: ModelQueue, limit: int, now_ms: int) -> list[HandedOutJob]:
    """What `claim` would give to one call."""
    due = [job for job in queue.waiting() if job.sort_ms <= now_ms and not job.expired(now_ms)]
    return [job.handed_out(0) for job in due[:limit]]


def requeue_failed(queue: ModelQueue, order: Requeue, now_ms: int) -> Requeued:
    """Oldest finish first. A job whose key another job or shard has taken is passed over and doesn't count against the limit."""
    done = 0
    for job in queue.in_state(JobState.FAILED, order.priority):
        may = done < order.limit and not job.expired(now_ms) and queue.may_wait_again(job)
        if may and queue.retake_key(job, now_ms):
            with queue.changing(job):
                events.requeue(job, order.attempts, order.run_after_ms, now_ms)
            done += 1
    return Requeued(done)


def purge(queue: ModelQueue, order: Purge) -> int:
    """Oldest first, by the time that orders the state."""
    chosen = queue.in_state(order.state, order.priority)[: order.limit]
    for job in chosen:
        queue.drop(job)
    return len(chosen)


def scan(queue: ModelQueue, page: Page, shard: str) -> list[PageRow]:
    """Newest first."""
    jobs = [job for priority in page.priorities for job in queue.in_state(page.state, priority)]
    if page.state is JobState.PENDING:
        jobs = [job for job in jobs if (job.sort_ms > page.due_by_ms) == page.future]
    if page.after is not None:
        jobs = [job for job in jobs if (job.sort_ms, job.id) < page.after]
    jobs.sort(key=lambda job: (job.sort_ms, job.id), reverse=True)
    return [
        PageRow(job.sort_ms, JobKey(page.queue, job.priority, job.id), job.shown(shard, body=page.bodies))
        for job in jobs[: page.limit]
    ]


# --- sweeps ---------------------------------------------------------------------------------------------------------------


class SweepCounts:
    """What a sweep did, by queue and priority."""

    def __init__(self) -> None:
        self._swept: dict[tuple[str, int], Swept] = {}

    def timed_out(self, job: ModelJob, source: str) -> None:
        """A claim of that source has ended."""
        so_far = self._of(job)._replace(ended={**self._of(job).ended, job.id: source})
        if job.state is JobState.PENDING:
            due = job.run_after_ms if so_far.due_at_ms is None else min(so_far.due_at_ms, job.run_after_ms)
            self._put(so_far._replace(retried=so_far.retried + 1, due_at_ms=due))
        else:
            self._put(so_far._replace(failed=so_far.failed + 1))

    def failed(self, job: ModelJob) -> None:
        self._put(self._of(job)._replace(failed=self._of(job).failed + 1))

    def deleted(self, job: ModelJob) -> None:
        so_far = self._of(job)
        if job.state is JobState.SUCCEEDED:
            self._put(so_far._replace(deleted_succeeded=so_far.deleted_succeeded + 1))
        else:
            self._put(so_far._replace(deleted_failed=so_far.deleted_failed + 1))

    def result(self) -> list[Swept]:
        return [self._swept[key] for key in sorted(self._swept)]

    def _of(self, job: ModelJob) -> Swept:
        return self._swept.get((job.queue, job.priority), Swept(job.queue, job.priority))

    def _put(self, swept: Swept) -> None:
        self._swept[swept.queue, swept.priority] = swept


def time_out_claims(queues: Mapping[str, ModelQueue], now_ms: int, limit: int) -> list[Swept]:
    """The longest overdue first, over all queues."""
    counts = SweepCounts()
    overdue = _first(queues, lambda job: job.claim.deadline_ms if job.claim else now_ms, now_ms)
    for queue, job in overdue[:limit]:
        source = job.claim.holder.source if job.claim else ""
        with queue.changing(job) as totals:
            events.time_out(job, now_ms)
            totals.count_failure(job)
        counts.timed_out(job, source)
    return counts.result()


def expire_jobs(queues: Mapping[str, ModelQueue], now_ms: int, limit: int) -> list[Swept]:
    """The longest expired first, over all queues."""
    counts = SweepCounts()

    def expires_at_ms(job: ModelJob) -> int:
        waits = job.state is JobState.PENDING and job.expires_at_ms is not None
        return job.expires_at_ms or 0 if waits else now_ms

    for queue, job in _first(queues, expires_at_ms, now_ms)[:limit]:
        _expire(queue, job, now_ms)
        counts.failed(job)
    return counts.result()


def collect_garbage(queues: Mapping[str, ModelQueue], ttls: Iterable[TimeToLive], now_ms: int) -> list[Swept]:
    """Deletes finished jobs of the named queues past their time to live, and forgets keys that time has freed."""
    counts = SweepCounts()
    for ttl in ttls:
        queue = queues.get(ttl.queue)
        for job in [] if queue is None else list(queue.jobs.values()):
            ttl_ms = ttl.succeeded_ms if job.state is JobState.SUCCEEDED else ttl.failed_ms
            if queue is not None and job.finished_at_ms is not None and job.finished_at_ms < now_ms - ttl_ms:
                queue.drop(job)
                counts.deleted(job)
    for queue in queues.values():
        queue.requests = {
            key: seen for key, seen in queue.requests.items() if seen.at_ms >= now_ms - REQUEST_KEY_KEPT_MS
        }
        queue.unique_keys = {
            key: hold
            for key, hold in queue.unique_keys.items()
            if hold.scope is not UniqueScope.TIME or hold.until_ms > now_ms
        }
    return counts.result()


def _first(
    queues: Mapping[str, ModelQueue], at_ms: Callable[[ModelJob], int], before_ms: int
) -> list[tuple[ModelQueue, ModelJob]]:
    """The jobs of all queues whose time is before `before_ms`, in the order of their times."""
    found = [(queue, job) for queue in queues.values() for job in queue.jobs.values() if at_ms(job) < before_ms]
    return sorted(found, key=lambda each: (at_ms(each[1]), each[1].id))


def _expire(queue: ModelQueue, job: ModelJob, now_ms: int) -> None:
    with queue.changing(job) as totals:
        events.expire(job, now_ms)
        totals.failed += 1
