"""The jobs of one call: as they were loaded, and as the call's events have left them.

Several events may hit one job in a call. A store writes only the difference between the first state and the last.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from pinlater.domain.failures import CLAIM_TIMED_OUT, FailureKind, failure_of
from pinlater.domain.job import TASK_HEADER
from pinlater.domain.transitions import (
    ERROR_TYPE_CHARS_MAX,
    FAILED,
    MYSQL_STATUS,
    PENDING,
    SUCCEEDED,
    Event,
    StatusRule,
    Transition,
)
from pinlater.server.storage.decide import Happening, TimeOut, decide
from pinlater.server.storage.record import JobRecord
from pinlater.server.storage.values import JobAck, JobKey

_LAST = (Event.FAIL, Event.TIME_OUT_FAIL)
Move = tuple[JobRecord, JobRecord]
"""A job that the call changed, before and after."""


class CallTotals:
    """What a call adds to the running totals of one queue and priority."""

    __slots__ = ("failed", "retried", "succeeded")

    def __init__(self) -> None:
        self.succeeded = self.failed = self.retried = 0

    def add(self, transition: Transition) -> None:
        if transition.after is SUCCEEDED:
            self.succeeded += 1
        elif transition.after is FAILED:
            self.failed += 1
        elif transition.after is PENDING and transition.spends:
            self.retried += 1


class CountedFailure:
    """How many attempts of one kind failed in a call, and the job that failed last."""

    __slots__ = ("failures", "job")

    def __init__(self, job: JobRecord) -> None:
        self.job = job
        self.failures = 0


class Changes:
    """Load (`add`), decide (`apply`), then write `moves()`, `totals` and `failures` once."""

    def __init__(self, now_ms: int, rule: StatusRule = MYSQL_STATUS) -> None:
        self.now_ms = now_ms
        self._rule = rule
        self._loaded: dict[int, JobRecord] = {}
        self._now: dict[int, JobRecord] = {}
        self._queues: dict[int, str] = {}
        self.totals: dict[tuple[int, int], CallTotals] = {}
        self.failures: dict[tuple[int, FailureKind], CountedFailure] = {}  # by queue
        self.spent: dict[int, Event] = {}  # the end of the last attempt of a job that failed or timed out, by id

    def add(self, job: JobRecord, queue: str = "") -> None:
        """A job as the store has it, and the name of its queue if keys are to be looked up (`find`)."""
        self._loaded[job.id] = job
        self._queues[job.queue_id] = queue

    def jobs(self) -> Iterable[JobRecord]:
        """All loaded jobs as they are now."""
        return [self._now.get(job_id, job) for job_id, job in self._loaded.items()]

    def find(self, key: JobKey) -> JobRecord | None:
        """The job as it is now, or None if it does not exist, or is in another queue or priority."""
        job = self.now_of(key.id)
        if job is None or job.priority != key.priority or self._queues[job.queue_id] != key.queue:
            return None
        return job

    def now_of(self, job_id: int) -> JobRecord | None:
        """The job as it is now, or None for one that is not loaded."""
        return self._now.get(job_id) or self._loaded.get(job_id)

    def queue_of(self, job: JobRecord) -> str:
        return self._queues[job.queue_id]

    def apply(self, job: JobRecord, happening: Happening) -> JobRecord | None:
        """The job after the event, or None if the event does not apply to its state."""
        change = decide(job, happening, self.now_ms, self._rule)
        if change is None:
            return None
        self._now[job.id] = change.after
        if change.transition.spends or change.after.finished:  # the totals contain nothing else
            line = (job.queue_id, job.priority)
            totals = self.totals.get(line)
            if totals is None:
                totals = self.totals[line] = CallTotals()
            totals.add(change.transition)
        if change.transition.spends:
            self.spent[job.id] = change.transition.event
            self._count_failure(job, happening)
        return change.after

    def move(self, job: JobRecord, priority: int) -> JobRecord:
        """Moves the job to another priority. Its state, its attempts and their errors stay. The update time of a failed job is its
        finish.
        """
        updated_at_ms = self.now_ms if job.state is PENDING else job.updated_at_ms
        after = replace(job, priority=priority, updated_at_ms=updated_at_ms, changed=True)
        self._now[job.id] = after
        return after

    def place(self, job: JobRecord) -> None:
        """A job whose ordering key gives it another run-after: not an event of its life."""
        self._now[job.id] = job

    def _count_failure(self, job: JobRecord, happening: Happening) -> None:
        """Counts a failed attempt or a claim that timed out. A client without error fields describes the failure in the status."""
        error_type = error_text = ""
        if isinstance(happening, TimeOut):
            error_type = CLAIM_TIMED_OUT
        elif isinstance(happening, JobAck):
            error_type, error_text = happening.error_type, happening.error_text
            if not error_type and not error_text:
                error_text = happening.append_status
        failure = failure_of(job.options.headers, TASK_HEADER, error_type[:ERROR_TYPE_CHARS_MAX], error_text)
        key = (job.queue_id, failure)
        counted = self.failures.get(key)
        if counted is None:
            counted = self.failures[key] = CountedFailure(job)
        counted.job = job
        counted.failures += 1

    def finally_failed(self, job: JobRecord) -> bool:
        """Returns whether the job failed in this call because its last attempt failed or timed out."""
        return job.state is FAILED and self.spent.get(job.id) in _LAST

    def will_retry(self, job: JobRecord) -> bool:
        """Returns whether the job waits again after a worker reported a failed attempt in this call."""
        return job.state is PENDING and self.spent.get(job.id) is Event.RETRY

    def decided(self) -> list[Move]:
        """The changed jobs, in the order in which they first changed."""
        return [(self._loaded[job_id], job) for job_id, job in self._now.items()]

    def moves(self) -> list[Move]:
        """The changed jobs, by id."""
        return [(self._loaded[job_id], self._now[job_id]) for job_id in sorted(self._now)]
