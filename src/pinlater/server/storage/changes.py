"""The jobs of one call: as they were loaded, and as the call's events have left them.

Several events may hit one job in a call. A store writes only the difference between the first state and the last.
"""

from __future__ import annotations

from collections.abc import Iterable

from pinlater.domain.transitions import FAILED, MYSQL_STATUS, PENDING, SUCCEEDED, StatusRule, Transition
from pinlater.server.storage.decide import Happening, decide
from pinlater.server.storage.record import JobRecord
from pinlater.server.storage.values import JobKey

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


class Changes:
    """Load (`add`), decide (`apply`), then write `moves()` and `totals` once."""

    def __init__(self, now_ms: int, rule: StatusRule = MYSQL_STATUS) -> None:
        self.now_ms = now_ms
        self._rule = rule
        self._loaded: dict[int, JobRecord] = {}
        self._now: dict[int, JobRecord] = {}
        self._queues: dict[int, str] = {}
        self.totals: dict[tuple[int, int], CallTotals] = {}

    def add(self, job: JobRecord, queue: str = "") -> None:
        """A job as the store has it, and the name of its queue where keys are to be found (`find`)."""
        self._loaded[job.id] = job
        self._queues[job.queue_id] = queue

    def jobs(self) -> Iterable[JobRecord]:
        """All loaded jobs as they are now."""
        return [self._now.get(job_id, job) for job_id, job in self._loaded.items()]

    def find(self, key: JobKey) -> JobRecord | None:
        """The job as it is now; None for one that is not there, or in another queue or priority."""
        job = self._now.get(key.id) or self._loaded.get(key.id)
        if job is None or job.priority != key.priority or self._queues[job.queue_id] != key.queue:
            return None
        return job

    def queue_of(self, job: JobRecord) -> str:
        return self._queues[job.queue_id]

    def apply(self, job: JobRecord, happening: Happening) -> JobRecord | None:
        """The job after the event; None if the event does not apply to its state."""
        change = decide(job, happening, self.now_ms, self._rule)
        if change is None:
            return None
        self._now[job.id] = change.after
        if change.transition.spends or change.after.finished:  # nothing else is in the totals
            line = (job.queue_id, job.priority)
            totals = self.totals.get(line)
            if totals is None:
                totals = self.totals[line] = CallTotals()
            totals.add(change.transition)
        return change.after

    def moves(self) -> list[Move]:
        """The changed jobs, by id."""
        return [(self._loaded[job_id], self._now[job_id]) for job_id in sorted(self._now)]
