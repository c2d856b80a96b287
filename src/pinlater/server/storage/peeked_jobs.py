"""How many jobs a peek shows."""

from __future__ import annotations

from pinlater.domain.job import HandedOutJob


class PeekedJobs:
    """What a claim would give to one call: at most `limit` jobs, and `max_bytes` of bodies, but a first job of any size."""

    __slots__ = ("_bytes_left", "_limit", "jobs")

    def __init__(self, limit: int, max_bytes: int) -> None:
        self.jobs: list[HandedOutJob] = []
        self._limit = limit
        self._bytes_left = max_bytes

    @property
    def full(self) -> bool:
        return len(self.jobs) >= self._limit

    def has_space_for(self, body_bytes: int) -> bool:
        return not self.full and (not self.jobs or body_bytes <= self._bytes_left)

    def add(self, job: HandedOutJob, body_bytes: int) -> None:
        self.jobs.append(job)
        self._bytes_left -= body_bytes
