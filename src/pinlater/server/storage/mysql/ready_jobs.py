"""The next due jobs of a queue: a claim takes them without a search.

A search that finds fewer jobs than it wants has found all that are due. From then on the jobs that this server stores are all that
there is, and they are here with their bodies. A search that finds enough reads the rows that follow, without bodies: then the jobs up to
the last of these rows (`_frontier`) are here. What is missing are rows that become due later, and what other servers do. The first are
known by the earliest of their times (`elsewhere_ms`); the second are found by a search once a second. So this is a memory that makes
calls faster and decides nothing: a claim that takes jobs from it fails if one of their rows is gone, and runs again with a search.

Kept are jobs without a past, a unique key and an expiry. What has no space here is a row that a search finds.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from pinlater.domain.descriptor import I64_MAX
from pinlater.server.storage.options import Options

# So long after a search its result is trusted.
TRUSTED_S = 1.0
# Of the bodies of all queues of a shard; a job counts for some bytes more.
BYTES_MAX = 16 * 1024 * 1024
JOB_BYTES, HEADER_BYTES = 300, 200
# A queue from which no claim has come for so long is forgotten.
_UNUSED_S = 5.0
# How many rows a search reads on: the more often, the more.
ROWS_MIN, ROWS_MAX = 64, 2_000
_UNKNOWN_MS = -I64_MAX - 1
_BEFORE_ALL = (0, _UNKNOWN_MS, 0)
NEVER_MS = I64_MAX


class ReadyJob(NamedTuple):
    """A job that waits, in the order of claims. `body`, and the fields before it: None where only the row of `ready` was read.

    `options`: None if it has none."""

    priority: int
    run_after_ms: int
    id: int
    size: int
    attempts_allowed: int = 0
    created_at_ms: int = 0
    body: bytes | None = None
    options: Options | None = None

    @property
    def place(self) -> tuple[int, int, int]:
        """In the order of claims."""
        return self[:3]

    @property
    def bytes_here(self) -> int:
        """What it takes here."""
        headers = {} if self.options is None else self.options.headers or {}
        of_headers = sum([HEADER_BYTES + len(name) + len(value) for name, value in headers.items()]) if headers else 0
        return JOB_BYTES + of_headers + (0 if self.body is None else self.size)


class ReadyRow(NamedTuple):
    """A row of `ready`. `flags`: 0 if the job is plain."""

    priority: int
    run_after_ms: int
    id: int
    flags: int
    size: int


class ReadyBytes:
    """What all queues of a shard keep together."""

    __slots__ = ("used",)

    def __init__(self) -> None:
        self.used = 0


class ReadyJobs:
    """Of one queue. Times in milliseconds of the shard's clock but for `now_s`, which is monotonic."""

    __slots__ = (
        "_before",
        "_bytes",
        "_frontier",
        "_ids",
        "_is_check",
        "_jobs",
        "_rows_useless_until_s",
        "_searched_s",
        "_tracks",
        "elsewhere_ms",
        "rows_wanted",
    )

    def __init__(self, used: ReadyBytes) -> None:
        self._bytes = used
        self._jobs: list[ReadyJob] = []  # a heap
        self._ids: set[int] = set()
        self._frontier: tuple[int, int, int] | None = None  # jobs after this place are not here; None: all are
        self._tracks = False  # whether jobs that are stored now are kept: since a search began
        self._searched_s = 0.0
        self._before: Collection[int] = ()  # the jobs that were here when the search under way began
        self._is_check = False  # the search under way: the first jobs were here, as far as this server knows
        self._rows_useless_until_s = 0.0
        self.rows_wanted = ROWS_MIN
        self.elsewhere_ms = _UNKNOWN_MS  # from this time on rows that aren't here may be due

    def __len__(self) -> int:
        return len(self._jobs)

    def tracks(self, now_s: float) -> bool:
        """Whether jobs that are stored now are to be added."""
        if self._tracks and self._searched_s and now_s - self._searched_s > _UNUSED_S:
            self.forget()
        return self._tracks

    def has_next(self, count: int, now_ms: int, now_s: float) -> bool:
        """Whether the next jobs are here, that many or all that are due, as far as this server knows."""
        return (
            now_ms < self.elsewhere_ms
            and now_s - self._searched_s < TRUSTED_S
            and (self._frontier is None or len(self._jobs) >= count)
        )

    def take(self, count: int) -> list[ReadyJob]:
        """The first ones, at most that many."""
        jobs = self._jobs
        taken = [heappop(jobs) for _ in range(min(count, len(jobs)))]
        self._bytes.used -= sum([job.bytes_here for job in taken])
        self._ids.difference_update([job.id for job in taken])
        return taken

    def add(self, job: ReadyJob) -> None:
        """A due job that is stored now, or that a claim has not taken after all."""
        if not self._tracks or job.id in self._ids or (self._frontier is not None and job.place > self._frontier):
            return
        if self._bytes.used > BYTES_MAX:
            self.waits_elsewhere(job.run_after_ms)
            return
        self._bytes.used += job.bytes_here
        self._ids.add(job.id)
        heappush(self._jobs, job)

    def waits_elsewhere(self, run_after_ms: int) -> None:
        """A row that isn't here is due from this time on."""
        if run_after_ms < self.elsewhere_ms:
            self.elsewhere_ms = run_after_ms

    # --- searches -----------------------------------------------------------------------------------------------------------

    def search_begins(self, now_ms: int) -> None:
        """What is stored from now on may not be found."""
        self._before = set(self._ids)
        self._is_check = self._tracks and now_ms < self.elsewhere_ms and bool(self._jobs)
        if not self._is_check:
            self.elsewhere_ms = NEVER_MS  # what comes back meanwhile counts against it
            self._frontier = None
        self._tracks = True

    def wants_rows(self, now_s: float) -> bool:
        """Whether the search under way is to read the rows that follow, if it finds enough."""
        return not self._is_check and now_s >= self._rows_useless_until_s

    def search_found_all(self, taken: Collection[int], next_due_ms: int | None, now_s: float) -> None:
        """It took these jobs, and there were no more that are due. `next_due_ms`: when the next row that it did not take becomes due, if
        there is one. Jobs that were stored meanwhile may be among those that it found."""
        self._remove(self._before)  # they are among those that it took, or another server has them
        self._remove(taken)
        self._frontier = None
        if next_due_ms is not None:
            self.waits_elsewhere(next_due_ms)
        self._searched_s = now_s

    def search_found_enough(self, taken: Collection[int], now_s: float) -> None:
        """It took these jobs, and did not look further. If they are the first ones here, no other job goes before those that are here."""
        if self._is_check and self._ids.issuperset(taken):
            self._remove(taken)
            self._searched_s = now_s
        else:
            self.forget()

    def search_read_on(
        self, taken: Collection[int], rows: Sequence[ReadyRow], limit: int, next_due_ms: int | None, now_s: float
    ) -> None:
        """It took these jobs, and read these rows, which follow: at most `limit`. `next_due_ms`: when the next row becomes due that is not
        due now."""
        self._remove(self._before)
        self._remove(taken)
        usable = next((place for place, row in enumerate(rows) if row.flags), len(rows))
        if usable < ROWS_MIN <= len(rows):
            self._rows_useless_until_s = now_s + TRUSTED_S
            self.forget()
            return
        self._frontier = None if usable == len(rows) < limit else rows[usable - 1][:3] if usable else _BEFORE_ALL
        self._remove([job.id for job in self._jobs if self._frontier is not None and job.place > self._frontier])
        for row in rows[:usable]:
            self.add(ReadyJob(row.priority, row.run_after_ms, row.id, row.size))
        if next_due_ms is not None:
            self.waits_elsewhere(next_due_ms)
        self._searched_s = now_s
        self.rows_wanted = min(ROWS_MAX, 2 * self.rows_wanted)

    def _remove(self, ids: Collection[int]) -> None:
        gone = self._ids.intersection(ids)
        if gone:
            kept = [job for job in self._jobs if job.id not in gone]
            self._forget_jobs()
            for job in kept:
                self.add(job)

    def forget(self) -> None:
        """It is unknown which jobs are due: there are too many, or a transaction failed."""
        self._forget_jobs()
        self._tracks = False
        self._frontier = None
        self.elsewhere_ms = _UNKNOWN_MS

    def _forget_jobs(self) -> None:
        self._bytes.used -= sum([job.bytes_here for job in self._jobs])
        self._jobs = []
        self._ids = set()
