"""Looking at jobs: lookups, counts, scans. Merging over priorities and shards, and regexes, are done here, once for all stores."""

from __future__ import annotations

import asyncio
import heapq
import re
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from pinlater.domain.clock import Clock
from pinlater.domain.descriptor import I64_MAX
from pinlater.domain.errors import ContinuationInvalid, InvalidArgument, PriorityNotSupported, WorldError
from pinlater.domain.job import Job, JobState
from pinlater.domain.queue import QueueCounts
from pinlater.service.addressing import (
    OnShard,
    address,
    left_out,
    on_each_shard,
    on_reachable,
    one_after_another,
    reachable,
)
from pinlater.service.queue_book import QueueBook
from pinlater.service.regex import BodyRegex
from pinlater.service.settings import DUE_ROWS_MAX, ServiceSettings
from pinlater.service.values import JobFilter, ScanCommand, Scanned
from pinlater.sharding.shards import ShardLanes, Shards
from pinlater.storage.interface import JobKey, Page, PageRow, raise_error
from pinlater.telemetry.metrics import Metrics

START, END = "0", "-1"
_PAGE_ROWS = 1_000
_PAGE_BYTES = 8 * 1024 * 1024  # of the bodies of all pages that a scan holds at once
_PAGE_BYTES_MIN = 256 * 1024
_BODIES_A_LOOKUP = 64
_CONTINUATION = re.compile(r"(-?[0-9]{1,19})\.([0-9]{1,19})", re.ASCII)


class Found(NamedTuple):
    """A row of a scan and the shard it came from."""

    shard: str
    row: PageRow


class Inspect:
    """The looking operations."""

    def __init__(
        self, shards: Shards, book: QueueBook, metrics: Metrics, clock: Clock, settings: ServiceSettings
    ) -> None:
        self._shards = shards
        self._metrics = metrics
        self._book = book
        self._clock = clock
        self._settings = settings

    # --- lookup -----------------------------------------------------------------------------------------------------------

    async def lookup(self, descriptors: Sequence[str], *, bodies: bool) -> Sequence[tuple[str, Job]]:
        """All that is known of these jobs; those not found are left out."""
        parts = address(self._shards, None, descriptors, self._settings.max_descriptors_per_request)

        async def act(part: OnShard) -> Sequence[Job | None]:
            if not bodies:
                return await part.shard.shard.lookup_jobs(part.keys, bodies=False)
            return await self._lookup_with_bodies(part)

        empty: list[Job | None] = [None] * len(descriptors)
        jobs = await on_each_shard(parts, act, empty)
        found = {descriptor: job for descriptor, job in zip(descriptors, jobs, strict=True) if job is not None}
        self._check_answer(sum(_shown_bytes(job) for job in found.values()))
        return list(found.items())

    async def _lookup_with_bodies(self, part: OnShard) -> list[Job | None]:
        """In steps, so that a request for thousands of large bodies is refused before they are all in memory."""
        jobs: list[Job | None] = []
        sizes: dict[JobKey, int] = {}
        for start in range(0, len(part.keys), _BODIES_A_LOOKUP):
            keys = part.keys[start : start + _BODIES_A_LOOKUP]
            step = await part.shard.shard.lookup_jobs(keys, bodies=True)
            sizes.update((key, _shown_bytes(job)) for key, job in zip(keys, step, strict=True) if job is not None)
            self._check_answer(sum(sizes.values()))
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
        """How many jobs. Without a regex from counters and exact; with one, of at most 100,000 rows a shard and priority."""
        await self._check(filter)
        if filter.body_regex is not None:
            return await self._count_matching(filter, filter.body_regex)

        async def count(shard: ShardLanes) -> int:
            # What has become due since the last sweep is counted so before anybody asks.
            await shard.shard.advance_due(self._clock.now_ms(), DUE_ROWS_MAX)
            rows = await shard.shard.count_jobs([filter.queue])
            return sum(_count(row, filter) for row in rows if filter.priority in (None, row.priority))

        return min(sum(await on_reachable(self._shards, self._metrics, "getJobCount", count)), 2**31 - 1)

    async def _count_matching(self, filter: JobFilter, pattern: str) -> int:
        regex = BodyRegex(pattern, self._settings, self._clock)
        seen = 0

        async def count(shard: ShardLanes) -> int:
            nonlocal seen
            found = 0
            for priority in self._priorities(filter):
                rows_left = self._settings.regex_rows_max
                after = None
                while rows_left > 0:
                    page = self._page(filter, priority, after, min(_PAGE_ROWS, rows_left), bodies=True)
                    rows = raise_error(await shard.shard.scan_jobs(page))
                    if not rows:
                        break
                    found += len(await regex.matching(rows))
                    seen += len(rows)
                    rows_left -= len(rows)
                    after = (rows[-1].sort_ms, rows[-1].job.id)
                    if regex.out_of_time:
                        raise regex.too_costly(seen)
            return found

        return await one_after_another(self._shards, self._metrics, "getJobCount", count)

    # --- scan -------------------------------------------------------------------------------------------------------------

    async def scan(self, command: ScanCommand) -> Scanned:
        """Jobs, newest first, at most `limit`. Ends early at the frame budget, or, if paged, at a regex's time budget."""
        if command.limit < 0:
            raise InvalidArgument(f"limit must not be negative, not {command.limit}")
        after = _parse_continuation(command)
        await self._check(command.filter)
        limit = min(command.limit, self._settings.max_scan_limit)
        if limit == 0:
            return Scanned(())
        jobs: list[tuple[str, Job]] = []
        bytes_left = self._settings.max_frame_bytes * 3 // 4
        regex = self._regex(command.filter)
        last: PageRow | None = None
        seen = 0
        merged = _Merged(self, "scanJobs", command.filter, after, limit, bodies=command.bodies or regex is not None)
        async for found in merged.rows():
            row = found.row
            seen += 1
            if regex is not None and not await regex.matching([row]):
                last = row
                if regex.out_of_time:
                    if not command.paged:
                        raise regex.too_costly(seen)
                    return Scanned(jobs, _continuation(row), incomplete=True)
                continue
            bytes_left -= _size(row.job, bodies=command.bodies)
            if bytes_left < 0 and jobs:
                return Scanned(jobs, _continuation(last) if command.paged else END, incomplete=True)
            job = row.job if command.bodies else row.job._replace(body=None)
            jobs.append((f"{job.queue}:s{found.shard}:p{job.priority}:{job.id}", job))
            last = row
            if len(jobs) >= limit:
                return Scanned(jobs, _continuation(row) if command.paged else END, incomplete=merged.cut)
        return Scanned(jobs, incomplete=merged.cut)

    def _regex(self, filter: JobFilter) -> BodyRegex | None:
        return None if filter.body_regex is None else BodyRegex(filter.body_regex, self._settings, self._clock)

    # --- shared -------------------------------------------------------------------------------------------------------------

    async def matching_jobs(self, filter: JobFilter, limit: int) -> list[tuple[str, JobKey]]:
        """Up to `limit` jobs of one state and priority whose body matches, with their shards; for deletes.

        Raises at the time budget.
        """
        await self._check(filter)
        regex = self._regex(filter)
        chosen: list[tuple[str, JobKey]] = []
        seen = 0
        async for found in _Merged(self, "deleteJobs", filter, None, _PAGE_ROWS, bodies=True).rows():
            if len(chosen) >= limit:
                break
            seen += 1
            if regex is None or await regex.matching([found.row]):
                job = found.row.job
                chosen.append((found.shard, JobKey(job.queue, job.priority, job.id)))
            if regex is not None and regex.out_of_time:
                raise regex.too_costly(seen)
        return chosen

    async def _check(self, filter: JobFilter) -> None:
        check_priority(filter.priority, self._settings)
        await self._book.require(filter.queue)

    def _priorities(self, filter: JobFilter) -> Sequence[int]:
        return range(1, self._settings.priority_levels + 1) if filter.priority is None else (filter.priority,)

    def _page(
        self, filter: JobFilter, priority: int, after: tuple[int, int] | None, limit: int, *, bodies: bool
    ) -> Page:
        return Page(
            filter.queue, filter.state, priority, limit, after, self._clock.now_ms(), filter.future, bodies, _PAGE_BYTES
        )


class _Stream:
    """The rows of one shard and priority, page by page."""

    def __init__(self, shard: ShardLanes, first: Page) -> None:
        self.shard = shard
        self._first = first
        self._after = first.after
        self._rows: list[PageRow] = []
        self._ended = False

    async def next(self) -> Found | None:
        if not self._rows and not self._ended:
            page = self._first._replace(after=self._after)
            rows = list(raise_error(await self.shard.shard.scan_jobs(page)))
            self._ended = not rows or (len(rows) < page.limit and not page.bodies)
            if rows:
                self._after = (rows[-1].sort_ms, rows[-1].job.id)
            self._rows = rows[::-1]
        return Found(self.shard.name, self._rows.pop()) if self._rows else None


class _Merged:
    """All shards' and priorities' rows in one order, newest first, read page by page. A shard that fails is left out from then on."""

    def __init__(
        self,
        inspect: Inspect,
        method: str,
        filter: JobFilter,
        after: tuple[int, int] | None,
        limit: int,
        *,
        bodies: bool,
    ) -> None:
        shards, self._metrics, self._method = inspect._shards, inspect._metrics, method  # noqa: SLF001 one room
        found = reachable(shards, self._metrics, method)
        self.cut = len(found) < len(shards)
        self._failures: dict[str, WorldError] = {}
        self._shards = len(found)
        priorities = inspect._priorities(filter)  # noqa: SLF001
        page = inspect._page(filter, 0, after, min(limit, _PAGE_ROWS), bodies=bodies)._replace(  # noqa: SLF001
            max_bytes=max(_PAGE_BYTES // max(1, len(found) * len(priorities)), _PAGE_BYTES_MIN)
        )
        self._streams = [_Stream(shard, page._replace(priority=priority)) for shard in found for priority in priorities]
        self._heap: list[tuple[int, int, int, Found]] = []

    async def rows(self) -> AsyncIterator[Found]:
        """Raises `WorldError` where every shard fails."""
        await asyncio.gather(*(self._push(number) for number in range(len(self._streams))))
        while self._heap:
            _, _, number, found = heapq.heappop(self._heap)
            yield found
            await self._push(number)

    async def _push(self, number: int) -> None:
        shard = self._streams[number].shard.name
        if shard in self._failures:
            return
        try:
            found = await self._streams[number].next()
        except WorldError as error:
            if shard not in self._failures:
                self._failures[shard] = error
                left_out(self._metrics, self._method, [shard], error.message)
            self.cut = True
            if len(self._failures) == self._shards:
                raise
            return
        if found is not None:
            heapq.heappush(self._heap, (-found.row.sort_ms, -found.row.job.id, number, found))


def check_priority(priority: int | None, settings: ServiceSettings) -> None:
    """Raises `PriorityNotSupported`; None (all) passes."""
    if priority is not None and not 1 <= priority <= settings.priority_levels:
        raise PriorityNotSupported(priority, settings.priority_levels)


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


def _continuation(row: PageRow | None) -> str:
    return START if row is None else f"{row.sort_ms}.{row.job.id}"


def _parse_continuation(command: ScanCommand) -> tuple[int, int] | None:
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
    return sort_ms, job_id
