"""How many jobs a peek shows."""

from __future__ import annotations

from pinlater.domain.job import HandedOutJob
from pinlater.server.storage.claim_bytes import content_bytes


class PeekedJobs:
    """The jobs that a claim would give to one call: at most `limit` jobs, and `max_bytes` of bodies and headers, but a first job of any
    size."""

    __slots__ = ("_bytes_left", "_limit", "jobs")

    def __init__(self, limit: int, max_bytes: int) -> None:
        self.jobs: list[HandedOutJob] = []
        self._limit = limit
        self._bytes_left = max_bytes

    @property
    def full(self) -> bool:
        return len(self.jobs) >= self._limit

    def has_space_for(self, job_bytes: int) -> bool:
        return not self.full and (not self.jobs or job_bytes <= self._bytes_left)

    def add(self, job: HandedOutJob) -> bool:
        """Returns whether it has space for the job, which it then shows."""
        job_bytes = content_bytes([job])
        if not self.has_space_for(job_bytes):
            return False
        self.jobs.append(job)
        self._bytes_left -= job_bytes
        return True
