"""Looking at jobs: lookups, counts, scans. Merging over priorities and shards, and regexes, are done here, once for all stores."""

from __future__ import annotations

import asyncio
import heapq
import re
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from pinlater.domain.clock import Clock
from pinlater.domain.descriptor import I64_MAX
from pinlater.domain.errors import ContinuationInvalid, InvalidArgument, PriorityNotSupported, WorldError
from pinlater.domain.job import Job, JobState
from pinlater.domain.queue import QueueCounts
from pinlater.server.operations.addressing import (
    OnShard,
    address_in_turns,
    left_out,
    on_each_shard,
    on_reachable,
    one_after_another,
    reachable,
)
from pinlater.server.operations.queue_cache import QueueCache
from pinlater.server.operations.regex import BodyRegex
from pinlater.server.operations.searches import SearchProcesses
from pinlater.server.operations.settings import DUE_ROWS_MAX, ServiceSettings
from pinlater.server.operations.turns import in_turns
from pinlater.server.operations.values import JobCount, JobFilter, ScanCommand, Scanned
from pinlater.server.sharding.shards import ShardLanes, Shards
from pinlater.server.storage.values import JobKey, Page, PageRow, raise_error
from pinlater.server.telemetry.metrics import Metrics

START, END = "0", "-1"
_PAGE_ROWS = 1_000
_PAGE_BYTES = 8 * 1024 * 1024  # of the bodies of all pages that a scan holds at once
_PAGE_BYTES_MIN = 256 * 1024
_BODIES_A_LOOKUP = 64
# Without a shard where there is one only, and from servers that did not name it.
_CONTINUATION = re.compile(r"(-?[0-9]{1,19})\.([0-9]{1,19})(?:\.(.{1,100}))?", re.ASCII)


class Found(NamedTuple):
    """A row of a scan, the shard it came from, and whether the regex, where there is one, is in its body."""

    shard: str
    row: PageRow
    matches: bool


class ScanPosition(NamedTuple):
    """Where a page of a scan ended. A scan goes by time and id, both descending, then by the shard's name: ids of different shards can
    be equal. `shard` None: not known, so that what is at this time and id may come once more rather than not at all."""

    sort_ms: int
    id: int
    shard: str | None

    def on(self, shard: str, *, alone: bool) -> tuple[int, int] | None:
        """After which row (time, id) the next page of this shard begins; None: with the first. `alone`: there is no other shard."""
        if alone or (self.shard is not None and shard <= self.shard):
            return self.sort_ms, self.id
        if self.id < I64_MAX:
            return self.sort_ms, self.id + 1
        return (self.sort_ms + 1, 0) if self.sort_ms < I64_MAX else None


class Inspect:
    """The looking operations."""

    def __init__(
        self,
        shards: Shards,
        queue_cache: QueueCache,
        metrics: Metrics,
        clock: Clock,
        settings: ServiceSettings,
        searches: SearchProcesses,
    ) -> None:
        self._shards = shards
        self._searches = searches
        self._metrics = metrics
        self._queue_cache = queue_cache
        self._clock = clock
        self._settings = settings

    # --- lookup -----------------------------------------------------------------------------------------------------------

    async def lookup(self, descriptors: Sequence[str], *, bodies: bool) -> Sequence[tuple[str, Job]]:
        """All that is known of these jobs; those not found are left out."""
        parts = await address_in_turns(self._shards, None, descriptors, self._settings.max_descriptors_per_request)

        shown = _Shown()

        async def act(part: OnShard) -> Sequence[Job | None]:
            if not bodies:
                return await part.shard.shard.lookup_jobs(part.keys, bodies=False)
            return await self._lookup_with_bodies(part, shown)

        empty: list[Job | None] = [None] * len(descriptors)
        jobs = await on_each_shard(parts, act, empty)
        named = {descriptor: job for descriptor, job in zip(descriptors, jobs, strict=True) if job is not None}
        found = list(named.items())
        self._check_answer(sum(await in_turns(found, lambda part: [_shown_bytes(job) for _, job in part])))
        return found

    async def _lookup_with_bodies(self, part: OnShard, shown: _Shown) -> list[Job | None]:
        """In steps, so that a request for thousands of large bodies is refused before they are all in memory."""
        jobs: list[Job | None] = []
        for start in range(0, len(part.keys), _BODIES_A_LOOKUP):
            keys = part.keys[start : start + _BODIES_A_LOOKUP]
            step = await part.shard.shard.lookup_jobs(keys, bodies=True)
            shown.add(part.shard.name, keys, step)
            self._check_answer(shown.size_bytes)
            jobs += step
        return jobs

    def _check_answer(self, size: int) -> None:
        if size > self._settings.max_frame_bytes * 3 // 4:
            raise InvalidArgument(
                f"The answer would have at least {size} bytes, more than a frame; look up fewer jobs at a time",
                detail="ANSWER_TOO_LARGE",
            )

    # --- count ------------------------------------------------------------------------------------------------------------

    async def count(self, filter: JobFilter) -> int:
        """As `count_jobs`, without a word of shards that are not counted."""
        return (await self.count_jobs(filter)).jobs

    async def count_jobs(self, filter: JobFilter) -> JobCount:
        """How many jobs. Without a regex from counters and exact; with one, of at most 100,000 rows a shard and priority."""
        await self._check(filter)
        regex = await self.regex(filter)
        if _names_none(filter):
            return JobCount(0)
        if regex is not None:
            return await self._count_matching(filter, regex)

        async def count(shard: ShardLanes) -> int:
            # What has become due since the last sweep is counted so before anybody asks.
            await shard.shard.advance_due(self._clock.now_ms(), DUE_ROWS_MAX)
            rows = await shard.shard.count_jobs([filter.queue])
            return sum(_count(row, filter) for row in rows if filter.priority in (None, row.priority))

        counts = await on_reachable(self._shards, self._metrics, "getJobCount", count)
        return JobCount(sum(counts), incomplete=len(counts) < len(self._shards))

    async def _count_matching(self, filter: JobFilter, regex: BodyRegex) -> JobCount:
        seen = shards_counted = 0

        async def count(shard: ShardLanes) -> int:
            nonlocal seen, shards_counted
            found = 0
            for priority in self._priorities(filter):
                rows_left = self._settings.regex_rows_max
                after = None
                while rows_left > 0:
                    page = self._page(filter, priority, after, min(_PAGE_ROWS, rows_left), bodies=True)
                    rows = raise_error(await shard.shard.scan_jobs(page))
                    if not rows:
                        break
                    matches = await regex.found(rows)
                    found += sum(matches)
                    seen += len(matches)
                    rows_left -= len(rows)
                    after = (rows[-1].sort_ms, rows[-1].job.id)
                    if regex.exhausted:
                        raise regex.too_costly(seen)
            shards_counted += 1
            return found

        found = await one_after_another(self._shards, self._metrics, "getJobCount", count)
        return JobCount(found, incomplete=shards_counted < len(self._shards))

    # --- scan -------------------------------------------------------------------------------------------------------------

    async def scan(self, command: ScanCommand) -> Scanned:
        """Jobs, newest first, at most `limit`. Ends early at the frame budget, or, if paged, at a regex's budgets."""
        if command.limit < 0:
            raise InvalidArgument(f"limit must not be negative, not {command.limit}")
        after = _parse_continuation(command)
        await self._check(command.filter)
        limit = min(command.limit, self._settings.max_scan_limit)
        regex = await self.regex(command.filter)
        if limit == 0 or _names_none(command.filter):
            return Scanned(())
        jobs: list[tuple[str, Job]] = []
        bytes_left = self._settings.max_frame_bytes * 3 // 4
        last: Found | None = None
        seen = 0
        merged = _Merged(self, "scanJobs", command.filter, after, limit, regex, bodies=command.bodies)
        async for found in merged.rows():
            row = found.row
            seen += 1
            if not found.matches:
                last = found
                if regex is not None and regex.exhausted:
                    if not command.paged:
                        raise regex.too_costly(seen)
                    return Scanned(jobs, merged.continuation(found), incomplete=True)
                continue
            bytes_left -= _size(row.job, bodies=command.bodies)
            if bytes_left < 0 and jobs:
                return Scanned(jobs, merged.continuation(last) if command.paged else END, incomplete=True)
            job = row.job if command.bodies else row.job._replace(body=None)
            jobs.append((f"{job.queue}:s{found.shard}:p{job.priority}:{job.id}", job))
            last = found
            if len(jobs) >= limit:
                return Scanned(jobs, merged.continuation(found) if command.paged else END, incomplete=merged.cut)
        if regex is not None and merged.unsearched:
            if not command.paged or last is None:
                raise regex.too_costly(seen)
            return Scanned(jobs, merged.continuation(last), incomplete=True)
        return Scanned(jobs, incomplete=merged.cut)

    async def regex(self, filter: JobFilter) -> BodyRegex | None:
        """The filter's regex with the budgets of a request. Raises `InvalidArgument`."""
        if filter.body_regex is None:
            return None
        return await BodyRegex.compiled(filter.body_regex, self._settings, self._clock, self._searches)

    # --- shared -------------------------------------------------------------------------------------------------------------

    async def matching_jobs(self, filter: JobFilter, regex: BodyRegex, limit: int) -> list[tuple[str, JobKey]]:
        """Up to `limit` jobs of one state and priority whose body matches, with their shards; for deletes.

        Raises at the regex's budgets.
        """
        chosen: list[tuple[str, JobKey]] = []
        if limit <= 0:
            return chosen
        seen = 0
        merged = _Merged(self, "deleteJobs", filter, None, _PAGE_ROWS, regex, bodies=True)
        async for found in merged.rows():
            seen += 1
            if found.matches:
                job = found.row.job
                chosen.append((found.shard, JobKey(job.queue, job.priority, job.id)))
                if len(chosen) >= limit:
                    return chosen
            if regex.exhausted:
                raise regex.too_costly(seen)
        if merged.unsearched:
            raise regex.too_costly(seen)
        return chosen

    async def _check(self, filter: JobFilter) -> None:
        check_priority(filter.priority, self._settings)
        await self._queue_cache.require(filter.queue)

    def _priorities(self, filter: JobFilter) -> Sequence[int]:
        return range(1, self._settings.priority_levels + 1) if filter.priority is None else (filter.priority,)

    def _page(
        self, filter: JobFilter, priority: int, after: tuple[int, int] | None, limit: int, *, bodies: bool
    ) -> Page:
        return Page(
            filter.queue, filter.state, priority, limit, after, self._clock.now_ms(), filter.future, bodies, _PAGE_BYTES
        )


class _Shown:
    """How large the answer to a lookup is so far. A job that is named twice is shown once."""

    def __init__(self) -> None:
        self._keys: set[tuple[str, JobKey]] = set()
        self.size_bytes = 0

    def add(self, shard: str, keys: Sequence[JobKey], jobs: Sequence[Job | None]) -> None:
        for key, job in zip(keys, jobs, strict=True):
            if job is not None and (shard, key) not in self._keys:
                self._keys.add((shard, key))
                self.size_bytes += _shown_bytes(job)


class _Stream:
    """The rows of one shard and priority, page by page, searched a page at a time where there is a regex."""

    def __init__(self, shard: ShardLanes, first: Page, regex: BodyRegex | None) -> None:
        self.shard = shard
        self._first = first
        self._regex = regex
        self._after = first.after
        self._unsearched: list[PageRow] = []
        self._found: deque[Found] = deque()
        self._ended = False

    async def next(self) -> Found | None:
        """The next row; None where there is none. Raises `_BudgetEnded` for one that could not be searched any more."""
        while not self._found:
            if not self._unsearched and not await self._read():
                return None
            await self._search()
        return self._found.popleft()

    async def _read(self) -> bool:
        if self._ended:
            return False
        page = self._first._replace(after=self._after)
        self._unsearched = list(raise_error(await self.shard.shard.scan_jobs(page)))
        rows = self._unsearched
        self._ended = not rows or (len(rows) < page.limit and not page.bodies)
        if rows:
            self._after = (rows[-1].sort_ms, rows[-1].job.id)
        return bool(rows)

    async def _search(self) -> None:
        rows = self._unsearched
        matches = [True] * len(rows) if self._regex is None else await self._regex.found(rows)
        if not matches:
            raise _BudgetEnded
        self._found.extend(
            Found(self.shard.name, row if match else PageRow(row.sort_ms, row.job._replace(body=None)), match)
            for row, match in zip(rows, matches, strict=False)
        )
        self._unsearched = rows[len(matches) :]


class _BudgetEnded(Exception):
    """A budget of the regex ended before the next row was searched."""


class _Merged:
    """All shards' and priorities' rows in one order, newest first, read page by page. A shard that fails is left out from then on."""

    def __init__(
        self,
        inspect: Inspect,
        method: str,
        filter: JobFilter,
        after: ScanPosition | None,
        limit: int,
        regex: BodyRegex | None,
        *,
        bodies: bool,
    ) -> None:
        bodies = bodies or regex is not None
        shards, self._metrics, self._method = inspect._shards, inspect._metrics, method  # noqa: SLF001 one room
        found = reachable(shards, self._metrics, method)
        self.cut = len(found) < len(shards)
        self.unsearched = False  # whether a budget of the regex ended before all rows were searched
        self._failures: dict[str, WorldError] = {}
        self._shards = len(found)
        self._alone = len(shards) == 1
        priorities = inspect._priorities(filter)  # noqa: SLF001
        page = inspect._page(filter, 0, None, min(limit, _PAGE_ROWS), bodies=bodies)._replace(  # noqa: SLF001
            max_bytes=max(_PAGE_BYTES // max(1, len(found) * len(priorities)), _PAGE_BYTES_MIN)
        )
        self._streams = [
            _Stream(shard, page._replace(priority=priority, after=begin), regex)
            for shard in found
            for begin in [None if after is None else after.on(shard.name, alone=self._alone)]
            for priority in priorities
        ]
        self._heap: list[tuple[int, int, str, int, Found]] = []

    def continuation(self, last: Found | None) -> str:
        """What a caller names to go on after this row. One shard alone gives a form that older servers read, too."""
        if last is None:
            return START
        place = f"{last.row.sort_ms}.{last.row.job.id}"
        return place if self._alone else f"{place}.{last.shard}"

    async def rows(self) -> AsyncIterator[Found]:
        """Ends early where a budget of the regex ends. Raises `WorldError` where every shard fails."""
        await asyncio.gather(*(self._push(number) for number in range(len(self._streams))))
        while self._heap and not self.unsearched:
            _, _, _, number, found = heapq.heappop(self._heap)
            yield found
            await self._push(number)

    async def _push(self, number: int) -> None:
        shard = self._streams[number].shard.name
        if shard in self._failures:
            return
        try:
            found = await self._streams[number].next()
        except _BudgetEnded:
            self.unsearched = True
            return
        except WorldError as error:
            if shard not in self._failures:
                self._failures[shard] = error
                left_out(self._metrics, self._method, [shard], error.message)
            self.cut = True
            if len(self._failures) == self._shards:
                raise
            return
        if found is not None:
            heapq.heappush(self._heap, (-found.row.sort_ms, -found.row.job.id, shard, number, found))


def check_priority(priority: int | None, settings: ServiceSettings) -> None:
    """Raises `PriorityNotSupported`; None (all) passes."""
    if priority is not None and not 1 <= priority <= settings.priority_levels:
        raise PriorityNotSupported(priority, settings.priority_levels)


def _names_none(filter: JobFilter) -> bool:
    """Only PENDING jobs have a due time ahead of them; the original, too, finds no job of another state with the flag."""
    return filter.future and filter.state is not JobState.PENDING


def _count(row: QueueCounts, filter: JobFilter) -> int:
    if filter.state is JobState.PENDING:
        return row.future if filter.future else row.pending - row.future
    if filter.state is JobState.IN_PROGRESS:
        return row.in_progress
    return row.succeeded if filter.state is JobState.SUCCEEDED else row.failed


def _shown_bytes(job: Job) -> int:
    return len(job.body or b"") + len(job.custom_status)


def _size(job: Job, *, bodies: bool) -> int:
    history = sum(len(attempt.error_text) + 200 for attempt in job.attempts)
    body = len(job.body or b"") if bodies else 0
    return 400 + body + len(job.custom_status) * 2 + len(job.error_text) * 2 + history


def _parse_continuation(command: ScanCommand) -> ScanPosition | None:
    if command.continuation == START:
        return None
    match = _CONTINUATION.fullmatch(command.continuation) if command.paged else None
    if match is None:
        raise ContinuationInvalid(command.continuation)
    sort_ms, job_id = int(match[1]), int(match[2])
    if (
        not -I64_MAX - 1 <= sort_ms <= I64_MAX or job_id > I64_MAX
    ):  # no job has such a place, and no store such a number
        raise ContinuationInvalid(command.continuation)
    return ScanPosition(sort_ms, job_id, match[3])
