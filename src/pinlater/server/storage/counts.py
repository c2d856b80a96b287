"""Counts of the changes of a sweep, by queue and priority."""

from __future__ import annotations

from pinlater.domain.job import JobState
from pinlater.server.storage.record import JobRecord
from pinlater.server.storage.values import Swept


class SweepCounts:
    """Collects the rows that a sweep returns."""

    def __init__(self) -> None:
        self._swept: dict[tuple[str, int], Swept] = {}
        self._ended: dict[tuple[str, int], dict[int, str]] = {}

    def timed_out(self, queue: str, before: JobRecord, after: JobRecord) -> None:
        """A job whose claim ended at its deadline."""
        self.failure(queue, after)
        self._ended.setdefault((queue, after.priority), {})[before.id] = before.source or ""

    def failure(self, queue: str, job: JobRecord) -> None:
        """A job that the sweep put back or failed."""
        so_far = self._of(queue, job.priority)
        if job.state is JobState.PENDING:
            due_ms = job.run_after_ms if so_far.due_at_ms is None else min(so_far.due_at_ms, job.run_after_ms)
            so_far = so_far._replace(retried=so_far.retried + 1, due_at_ms=due_ms)
        else:
            so_far = so_far._replace(failed=so_far.failed + 1)
        self._swept[queue, job.priority] = so_far

    def deleted(self, queue: str, priority: int, state: JobState, count: int) -> None:
        so_far = self._of(queue, priority)
        if state is JobState.SUCCEEDED:
            so_far = so_far._replace(deleted_succeeded=so_far.deleted_succeeded + count)
        else:
            so_far = so_far._replace(deleted_failed=so_far.deleted_failed + count)
        self._swept[queue, priority] = so_far

    def lost(self, queue: str, priority: int) -> None:
        """A job whose data is gone; its index entry was removed."""
        so_far = self._of(queue, priority)
        self._swept[queue, priority] = so_far._replace(lost=so_far.lost + 1)

    def freed(self, count: int) -> None:
        """Rows and keys of deleted queues, and keys that have ended."""
        if count:
            so_far = self._of("", 0)
            self._swept["", 0] = so_far._replace(freed=so_far.freed + count)

    def result(self) -> list[Swept]:
        return [self._swept[key]._replace(ended=self._ended.get(key, {})) for key in sorted(self._swept)]

    def _of(self, queue: str, priority: int) -> Swept:
        return self._swept.get((queue, priority), Swept(queue, priority))
