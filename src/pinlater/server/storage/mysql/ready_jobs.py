"""Due jobs of a queue that this server has stored itself, with their bodies: a claim takes them without a search.

A search that finds fewer jobs than it wants has found all that are due. From then on the jobs that this server stores are all that
there is, but for rows that become due later, and for what other servers do. The first are known by the earliest of their times
(`elsewhere_ms`); the second are found by a search once a second. So this is a memory that makes calls faster and decides nothing: a claim
that takes jobs from it fails if one of their rows is gone, and runs again with a search.

Kept are jobs without a past, a unique key and an expiry. What has no space here is a row that a search finds.
"""

from __future__ import annotations

from collections.abc import Collection
from heapq import heappop, heappush
from typing import NamedTuple

from pinlater.domain.descriptor import I64_MAX
from pinlater.server.storage.options import Options

# So long after a search its result is trusted.
TRUSTED_S = 1.0
# Of the bodies of all queues of a shard; a job counts for some bytes more.
BYTES_MAX = 16 * 1024 * 1024
JOB_BYTES = 300
_UNKNOWN_MS = -I64_MAX - 1
NEVER_MS = I64_MAX


class ReadyJob(NamedTuple):
    """A job that waits, in the order of claims. `options`: None if it has none."""

    priority: int
    run_after_ms: int
    id: int
    attempts_allowed: int
    created_at_ms: int
    body: bytes
    options: Options | None


class ReadyBytes:
    """What all queues of a shard keep together."""

    __slots__ = ("used",)

    def __init__(self) -> None:
        self.used = 0


class ReadyJobs:
    """Of one queue. Times in milliseconds of the shard's clock but for `now_s`, which is monotonic."""

    __slots__ = ("_before", "_bytes", "_is_check", "_jobs", "_searched_s", "elsewhere_ms", "tracks")

    def __init__(self, used: ReadyBytes) -> None:
        self._bytes = used
        self._jobs: list[ReadyJob] = []  # a heap
        self.tracks = False  # whether jobs that are stored now are kept: since a search began
        self._searched_s = 0.0
        self._before: Collection[int] = ()  # the jobs that were here when the search under way began
        self._is_check = False  # the search under way: all due jobs were here, as far as this server knows
        self.elsewhere_ms = _UNKNOWN_MS  # from this time on rows that aren't here may be due

    def __len__(self) -> int:
        return len(self._jobs)

    def is_complete(self, now_ms: int, now_s: float) -> bool:
        """Whether all due jobs are here, as far as this server knows."""
        return now_ms < self.elsewhere_ms and now_s - self._searched_s < TRUSTED_S

    def take(self, count: int) -> list[ReadyJob]:
        """The first ones, at most so many."""
        jobs = self._jobs
        taken = [heappop(jobs) for _ in range(min(count, len(jobs)))]
        self._bytes.used -= sum([JOB_BYTES + len(job.body) for job in taken])
        return taken

    def add(self, job: ReadyJob) -> None:
        """A due job that is stored now, or that a claim has not taken after all."""
        if not self.tracks:
            return
        if self._bytes.used > BYTES_MAX:
            self.waits_elsewhere(job.run_after_ms)
            return
        self._bytes.used += JOB_BYTES + len(job.body)
        heappush(self._jobs, job)

    def waits_elsewhere(self, run_after_ms: int) -> None:
        """A row that isn't here is due from this time on."""
        if run_after_ms < self.elsewhere_ms:
            self.elsewhere_ms = run_after_ms

    # --- searches -----------------------------------------------------------------------------------------------------------

    def search_begins(self, now_ms: int) -> None:
        """What is stored from now on may not be found."""
        self._before = {job.id for job in self._jobs}
        if not self.tracks or now_ms >= self.elsewhere_ms:
            self.elsewhere_ms = NEVER_MS  # what comes back meanwhile counts against it
            self._is_check = False
        else:
            self._is_check = True
        self.tracks = True

    def search_found_all(self, taken: Collection[int], next_due_ms: int | None, now_s: float) -> None:
        """It took these jobs, and there were no more that are due. `next_due_ms`: when the next row that it did not take becomes due, if
        there is one. Jobs that were stored meanwhile may be among those that it found."""
        self._remove(self._before)  # they are among those that it took, or another server has them
        self._remove(taken)
        if next_due_ms is not None:
            self.waits_elsewhere(next_due_ms)
        self._searched_s = now_s

    def search_found_enough(self, taken: Collection[int], now_s: float) -> None:
        """It took these jobs, and did not look further. If they are the first ones here, no other job goes before those that are here."""
        if self._is_check and {job.id for job in self._jobs}.issuperset(taken):
            self._remove(taken)
            self._searched_s = now_s
        else:
            self.forget()

    def _remove(self, ids: Collection[int]) -> None:
        kept = [job for job in self._jobs if job.id not in ids]
        if len(kept) < len(self._jobs):
            self._forget_jobs()
            for job in kept:
                self.add(job)

    def forget(self) -> None:
        """It is unknown which jobs are due: there are too many, or a transaction failed."""
        self._forget_jobs()
        self.tracks = False
        self.elsewhere_ms = _UNKNOWN_MS

    def _forget_jobs(self) -> None:
        self._bytes.used -= sum([JOB_BYTES + len(job.body) for job in self._jobs])
        self._jobs = []
