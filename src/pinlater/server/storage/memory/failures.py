"""Failed attempts of one queue in groups."""

from __future__ import annotations

from dataclasses import dataclass, field

from pinlater.domain.failures import GROUPS_MAX, HOUR_MS, OTHERS, FailureKind, failure_of
from pinlater.domain.job import TASK_HEADER
from pinlater.domain.transitions import ERROR_TYPE_CHARS_MAX
from pinlater.server.storage.memory.record import MemoryJob
from pinlater.server.storage.values import StoredFailures


@dataclass(slots=True)
class _Group:
    failure: FailureKind
    first_ms: int
    last_ms: int = 0
    failures: int = 0
    priority: int = 0
    job_id: int = 0
    hours: dict[int, int] = field(default_factory=dict)


class MemoryFailures:
    """Keeps the groups of one queue."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}

    def count(self, job: MemoryJob, error_type: str, error_text: str, now_ms: int) -> None:
        """Adds a failed attempt of the job."""
        failure = failure_of(job.headers, TASK_HEADER, error_type[:ERROR_TYPE_CHARS_MAX], error_text)
        name = failure.group
        if name not in self._groups and len(self._groups.keys() - {OTHERS}) >= GROUPS_MAX:
            name, failure = OTHERS, FailureKind("", "", "")
        if name not in self._groups:
            self._groups[name] = _Group(failure, now_ms)
        group = self._groups[name]
        group.failures += 1
        group.last_ms, group.priority, group.job_id = now_ms, job.priority, job.id
        group.hours[now_ms // HOUR_MS] = group.hours.get(now_ms // HOUR_MS, 0) + 1

    def move(self, job: MemoryJob) -> None:
        """Groups that show this job show it under its priority."""
        for group in self._groups.values():
            if group.job_id == job.id:
                group.priority = job.priority

    def all(self, queue: str, from_hour: int) -> list[StoredFailures]:
        return [
            StoredFailures(
                queue,
                name,
                *group.failure,
                group.failures,
                group.first_ms,
                group.last_ms,
                group.priority,
                group.job_id,
                {hour: failures for hour, failures in group.hours.items() if hour >= from_hour},
            )
            for name, group in self._groups.items()
        ]

    def prune(self, before_ms: int, before_hour: int) -> int:
        """Deletes old groups and hours; how many."""
        old = [name for name, group in self._groups.items() if group.last_ms < before_ms]
        for name in old:
            del self._groups[name]
        hours = 0
        for group in self._groups.values():
            gone = [hour for hour in group.hours if hour < before_hour]
            for hour in gone:
                del group.hours[hour]
            hours += len(gone)
        return len(old) + hours
