"""The next due jobs of a queue: a claim takes them without a search.

A search that finds fewer jobs than it wants has found all that are due. From then on, the jobs that this server stores are the only
further ones, and they are here with their bodies. A search that finds enough reads the rows that follow, without bodies: then the jobs up
to the last of these rows (`_frontier`) are here. Missing are rows that become due later, and changes of other servers. The first are
covered by the earliest of their times (`elsewhere_ms`); the second are found by a search once a second. So this is a memory that makes
calls faster and decides nothing: a claim that takes jobs from it fails if one of their rows is gone or locked, and runs again with a
search. Then claims of this queue search for some seconds, since another server claims its jobs, too.

Only jobs without a past, a unique key or an expiry are kept. A search finds the rows for which there is no space here.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from pinlater.domain.descriptor import I64_MAX
from pinlater.server.storage.options import Options

# How long after a search its result is trusted.
TRUSTED_S = 1.0
# How long after a search that read everything here, a search that takes only the first jobs may confirm the others: each of these lets a
# job of another server behind the first ones wait for a further `TRUSTED_S`.
_CONFIRMED_S = 1.2 * TRUSTED_S
# How long after a failed claim from memory claims search.
DISTRUSTED_S = 5.0
JOB_BYTES, HEADER_BYTES = 300, 200
# A queue from which no claim has come for this long is forgotten.
_UNUSED_S = 5.0
# How many further rows a search reads: twice as many as claims took from memory since the last one.
ROWS_MIN, ROWS_MAX = 64, 2_000
_UNKNOWN_MS = -I64_MAX - 1
_BEFORE_ALL = (0, _UNKNOWN_MS, 0)
NEVER_MS = I64_MAX

ReadyRow: TypeAlias = tuple[int, int, int, int, int]
"""A row of `ready`, in the order of claims: priority, run-after in milliseconds, id, flags (0 if the job is plain), bytes of the body."""


class JobContent(NamedTuple):
    """The data of a job that a claim needs beside its row. `options`: None if it has none."""

    attempts_allowed: int
    created_at_ms: int
    body: bytes
    options: Options | None = None

    @property
    def bytes_here(self) -> int:
        """The bytes that the job takes here."""
        headers = (self.options.headers or {}) if self.options is not None else {}
        return len(self.body) + sum([HEADER_BYTES + len(name) + len(value) for name, value in headers.items()])


class TakenRows(NamedTuple):
    """The first rows, and the contents, by id, of those jobs that this server has stored itself."""

    rows: Sequence[ReadyRow]
    contents: Mapping[int, JobContent]


class ReadyBytes:
    """The total of the queues of all shards of a server: bytes of bodies and headers, and `JOB_BYTES` more for each job."""

    __slots__ = ("most", "used")

    def __init__(self, most: int) -> None:
        self.most = most
        self.used = 0

    @property
    def bytes_left(self) -> int:
        """The bytes that are left; 0 or less means full. The last job that is kept may exceed them."""
        return self.most - self.used

    @property
    def rows_left(self) -> int:
        """How many rows there is space for."""
        return max(0, self.bytes_left) // JOB_BYTES


class ReadyMemory:
    """The remembered jobs of the queues of one shard, and how claims used them. `space`: shared with the other shards of the server.

    `claims`: how many claims, of one queue each, for any number of calls, were answered without a search. `stale_claims`: those that
    searched after all, because a row was gone or locked.
    """

    __slots__ = ("claims", "jobs", "space", "stale_claims", "used")

    def __init__(self, space: ReadyBytes) -> None:
        self.space = space
        self.jobs = 0
        self.used = 0
        self.claims = 0
        self.stale_claims = 0

    def count(self, jobs: int, size_bytes: int) -> None:
        """Notes a batch of jobs that came, or went if the numbers are negative."""
        self.jobs += jobs
        self.used += size_bytes
        self.space.used += size_bytes

    def figures(self) -> Mapping[str, float]:
        """Returns the figures by the names of `storage.values.FIGURES`."""
        return {
            "remembered_jobs": self.jobs,
            "remembered_bytes": self.used,
            "claims_from_memory": self.claims,
            "stale_claims": self.stale_claims,
        }


class ReadyJobs:
    """Remembers the next due jobs of one queue. Times in milliseconds of the shard's clock except for `now_s`, which is monotonic."""

    __slots__ = (
        "_before",
        "_contents",
        "_distrusted_until_s",
        "_frontier",
        "_ids",
        "_is_check",
        "_looked_through_s",
        "_memory",
        "_rows",
        "_rows_useless_until_s",
        "_search_began_s",
        "_searched_s",
        "_taken",
        "_tracks",
        "elsewhere_ms",
        "rows_wanted",
    )

    def __init__(self, memory: ReadyMemory) -> None:
        self._memory = memory
        self._rows: dict[int, list[ReadyRow]] = {}  # by priority, each list in the order of claims
        self._ids: set[int] = set()
        self._contents: dict[int, JobContent] = {}
        self._frontier: tuple[int, int, int] | None = None  # jobs after this place are not here; None: all are
        self._tracks = False  # whether jobs that are stored now are kept: since a search began
        self._search_began_s = 0.0
        self._searched_s = 0.0
        self._looked_through_s = 0.0  # the last search that read everything here
        self._before: Collection[int] = ()  # the jobs that were here when the search under way began
        self._is_check = False  # the search under way: the first jobs were here, as far as this server knows
        self._rows_useless_until_s = 0.0
        self._distrusted_until_s = 0.0
        self._taken = 0  # since a search has read further rows
        self.rows_wanted = ROWS_MIN
        self.elsewhere_ms = _UNKNOWN_MS  # from this time on rows that aren't here may be due

    def __len__(self) -> int:
        return len(self._ids)

    def tracks(self, now_s: float) -> bool:
        """Returns whether jobs that are stored now are to be added."""
        if self._tracks and now_s - self._search_began_s > _UNUSED_S:
            self.forget()
        return self._tracks

    def has_next(self, count: int, now_ms: int, now_s: float, through: int | None = None) -> bool:
        """Returns whether the next jobs are here, that many or all that are due, as far as this server knows: those up to the priority
        `through`, or all for None."""
        return (
            now_ms < self.elsewhere_ms
            and now_s - self._searched_s < TRUSTED_S
            and now_s >= self._distrusted_until_s
            and (
                self._frontier is None
                or (through is not None and through < self._frontier[0])
                or self._number(through) >= count
            )
        )

    def _number(self, through: int | None) -> int:
        """Returns how many jobs are here, up to that priority."""
        if through is None:
            return len(self._ids)
        return sum([len(rows) for priority, rows in self._rows.items() if priority <= through])

    def heads(self) -> Sequence[tuple[int, int]]:
        """Returns priority and run-after of the first job of each priority; if none is here, of the position after which there may be
        some."""
        heads = [rows[0][:2] for rows in self._rows.values() if rows]
        return heads or ([] if self._frontier is None else [self._frontier[:2]])

    def distrust(self, now_s: float) -> None:
        """A claim from memory has failed: another server takes jobs of this queue."""
        self._distrusted_until_s = now_s + DISTRUSTED_S

    def take(self, count: int, through: int | None = None) -> TakenRows:
        """The first jobs up to the priority `through`, at most that many."""
        taken: list[ReadyRow] = []
        for priority in sorted(self._rows):
            if through is not None and priority > through:
                break
            rows = self._rows[priority]
            first = rows[: count - len(taken)]
            del rows[: len(first)]
            taken += first
        ids = [job_id for _, _, job_id, _, _ in taken]
        contents = {job_id: self._contents[job_id] for job_id in ids if job_id in self._contents}
        self._drop(ids)
        self._taken += len(ids)
        return TakenRows(taken, contents)

    def add(self, row: ReadyRow, content: JobContent | None = None) -> None:
        """Adds a due job that is stored now, or that a claim has not taken after all."""
        self.add_all([(row, content)])

    def add_all(self, jobs: Iterable[tuple[ReadyRow, JobContent | None]]) -> None:
        """Adds several jobs, as `add` does."""
        if not self._tracks:
            return
        ids, before, used, space_bytes = self._ids, len(self._ids), 0, self._memory.space.bytes_left
        for row, content in jobs:
            job_id = row[2]
            if job_id in ids or self._is_beyond(row):
                continue
            if used >= space_bytes:
                self.waits_elsewhere(row[1])
                continue
            used += JOB_BYTES
            if content is not None:
                self._contents[job_id] = content
                used += content.bytes_here
            ids.add(job_id)
            self._put(row)
        self._memory.count(len(ids) - before, used)

    def _put(self, row: ReadyRow) -> None:
        rows = self._rows.get(row[0])
        if rows is None:
            self._rows[row[0]] = [row]
        elif not rows or rows[-1] < row:
            rows.append(row)
        else:
            insort(rows, row)

    def waits_elsewhere(self, run_after_ms: int) -> None:
        """Notes that a row that isn't here is due from this time on."""
        if run_after_ms < self.elsewhere_ms:
            self.elsewhere_ms = run_after_ms

    def _is_beyond(self, row: ReadyRow) -> bool:
        return self._frontier is not None and row[:3] > self._frontier

    def _drop(self, ids: Iterable[int]) -> None:
        """Subtracts jobs whose rows are gone from `_rows`."""
        before = len(self._ids)
        self._ids.difference_update(ids)
        gone = before - len(self._ids)
        freed = gone * JOB_BYTES
        if self._contents:
            for job_id in ids:
                content = self._contents.pop(job_id, None)
                if content is not None:
                    freed += content.bytes_here
        self._memory.count(-gone, -freed)

    # --- searches -----------------------------------------------------------------------------------------------------------

    def search_begins(self, count: int, now_ms: int, now_s: float, through: int | None = None) -> None:
        """Begins a search for that many jobs up to that priority. It may not find jobs that are stored from now on."""
        self._search_began_s = now_s
        self._before = set(self._ids)
        self.rows_wanted = min(ROWS_MAX, max(ROWS_MIN, 2 * self._taken))
        self._is_check = (
            self._tracks
            and now_ms < self.elsewhere_ms
            and self._number(through) >= count > 0
            and now_s - self._looked_through_s < _CONFIRMED_S
        )
        if not self._is_check:
            self.elsewhere_ms = NEVER_MS  # jobs that come back meanwhile count against it
            self._frontier = None
        self._tracks = True

    def wants_rows(self, now_s: float) -> bool:
        """Returns whether the search under way is to read the rows that follow, if it finds enough."""
        return not self._is_check and now_s >= self._rows_useless_until_s

    def search_found_all(self, taken: Collection[int], next_due_ms: int | None, now_s: float) -> None:
        """Ends a search that took these jobs and found no other due ones. `next_due_ms`: when the next row that it did not take becomes
        due, if there is one. Jobs that were stored meanwhile may be among those that it found.
        """
        self._remove_found(taken)
        self._frontier = None
        if next_due_ms is not None:
            self.waits_elsewhere(next_due_ms)
        self._searched_s = self._looked_through_s = now_s

    def search_found_enough(self, taken: Collection[int], now_s: float) -> None:
        """Ends a search that took these jobs and did not look further. If they are the first ones here, no other job precedes those that
        are here.
        """
        if self._is_check and self._ids.issuperset(taken):
            self._before = ()
            self._remove(taken)
            self._searched_s = now_s
        else:
            self.forget()

    def search_read_on(
        self, taken: Collection[int], rows: Sequence[ReadyRow], limit: int, next_due_ms: int | None, now_s: float
    ) -> None:
        """Ends a search that took these jobs and read these rows, which follow: at most `limit`. `next_due_ms`: when the next row becomes
        due that is not due now.
        """
        self._remove_found(taken)
        usable = next((place for place, (_, _, _, flags, _) in enumerate(rows) if flags), len(rows))
        if usable < ROWS_MIN <= len(rows):
            self._rows_useless_until_s = now_s + TRUSTED_S
            self.forget()
            return
        usable = min(usable, self._memory.space.rows_left)
        self._frontier = None if usable == len(rows) < limit else rows[usable - 1][:3] if usable else _BEFORE_ALL
        self._remove([row[2] for kept in self._rows.values() for row in kept if self._is_beyond(row)])
        self.add_all([(row, None) for row in rows[:usable]])
        if next_due_ms is not None:
            self.waits_elsewhere(next_due_ms)
        self._searched_s = self._looked_through_s = now_s
        self._taken = 0

    def _remove_found(self, taken: Collection[int]) -> None:
        """The jobs from before the search are among those that it took or read, or another server has them."""
        before, self._before = self._before, ()
        self._remove({*before, *taken})

    def _remove(self, ids: Collection[int]) -> None:
        gone = self._ids.intersection(ids)
        if gone:
            self._rows = {
                priority: [row for row in rows if row[2] not in gone] for priority, rows in self._rows.items()
            }
            self._drop(gone)

    def forget(self) -> None:
        """Forgets which jobs are due: there are too many, or a transaction failed."""
        self._rows = {}
        self._drop(list(self._ids))
        self._before = ()
        self._tracks = False
        self._frontier = None
        self.elsewhere_ms = _UNKNOWN_MS

    def close(self) -> None:
        """Stops: neither the queue nor a search that is still under way keeps anything from now on."""
        self.forget()
        self._memory = ReadyMemory(ReadyBytes(0))
