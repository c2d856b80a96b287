"""Looking at jobs: lookups, counts, scans. Merging over priorities and shards, and regexes, are done here, once for all stores."""

from __future__ import annotations

import heapq
import re
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from pinlater.domain.clock import Clock
from pinlater.domain.descriptor import I64_MAX
from pinlater.domain.errors import ContinuationInvalid, InvalidArgument, PriorityNotSupported
from pinlater.domain.job import Job, JobState
from pinlater.domain.queue import QueueCounts
from pinlater.service.addressing import OnShard, address, on_each_shard, reachable
from pinlater.service.queue_book import QueueBook
from pinlater.service.regex import BodyRegex
from pinlater.service.settings import DUE_ROWS_MAX, ServiceSettings
from pinlater.service.values import JobFilter, ScanCommand, Scanned
from pinlater.sharding.shards import ShardLanes, Shards
from pinlater.storage.interface import JobKey, Page, PageRow, raise_error
from pinlater.telemetry.metrics import Metrics

START, END = "0", "-1"
_PAGE_ROWS = 1_000
_PAGE_BYTES = 8 * 1024 * 1024
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
        if filter.body_regex is None:
            total = 0
            for shard in reachable(self._shards, self._metrics, "getJobCount"):
                # What has become due since the last sweep is counted so before anybody asks.
                await shard.shard.advance_due(self._clock.now_ms(), DUE_ROWS_MAX)
                for row in await shard.shard.count_jobs([filter.queue]):
                    if filter.priority in (None, row.priority):
                        total += _count(row, filter)
            return min(total, 2**31 - 1)
        regex = BodyRegex(filter.body_regex, self._settings, self._clock)
        total = seen = 0
        for shard in reachable(self._shards, self._metrics, "getJobCount"):
            for priority in self._priorities(filter):
                rows_left = self._settings.regex_rows_max
                after = None
                while rows_left > 0:
                    page = self._page(filter, priority, after, min(_PAGE_ROWS, rows_left), bodies=True)
                    rows = raise_error(await shard.shard.scan_jobs(page))
                    if not rows:
                        break
                    total += len(await regex.matching(rows))
                    seen += len(rows)
                    rows_left -= len(rows)
                    after = (rows[-1].sort_ms, rows[-1].job.id)
                    if regex.out_of_time:
                        raise regex.too_costly(seen)
        return total

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
        shards = reachable(self._shards, self._metrics, "scanJobs")
        cut = len(shards) < len(self._shards)
        bodies = command.bodies or regex is not None
        async for found in self._merged(shards, command.filter, after, limit, bodies=bodies):
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
                return Scanned(jobs, _continuation(row) if command.paged else END, incomplete=cut)
        return Scanned(jobs, incomplete=cut)

    def _regex(self, filter: JobFilter) -> BodyRegex | None:
        return None if filter.body_regex is None else BodyRegex(filter.body_regex, self._settings, self._clock)

    async def _merged(
        self,
        shards: Sequence[ShardLanes],
        filter: JobFilter,
        after: tuple[int, int] | None,
        limit: int,
        *,
        bodies: bool,
    ) -> AsyncIterator[Found]:
        """These shards' and all priorities' rows in one order, newest first, read page by page."""
        streams = [
            _Stream(self, shard, filter, priority, after, min(limit, _PAGE_ROWS), bodies=bodies)
            for shard in shards
            for priority in self._priorities(filter)
        ]
        heap: list[tuple[int, int, int, Found]] = []
        for number, stream in enumerate(streams):
            await _push(heap, number, stream)
        while heap:
            _, _, number, found = heapq.heappop(heap)
            yield found
            await _push(heap, number, streams[number])

    # --- shared -------------------------------------------------------------------------------------------------------------

    async def matching_jobs(self, filter: JobFilter, limit: int) -> list[tuple[ShardLanes, JobKey]]:
        """Up to `limit` jobs of one state and priority whose body matches; for deletes. Raises at the time budget."""
        await self._check(filter)
        regex = self._regex(filter)
        chosen: list[tuple[ShardLanes, JobKey]] = []
        seen = 0
        shards = reachable(self._shards, self._metrics, "deleteJobs")
        async for found in self._merged(shards, filter, None, _PAGE_ROWS, bodies=True):
            if len(chosen) >= limit:
                break
            seen += 1
            if regex is None or await regex.matching([found.row]):
                shard = self._shards.get(found.shard)
                if shard is not None:
                    job = found.row.job
                    chosen.append((shard, JobKey(job.queue, job.priority, job.id)))
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

    def __init__(
        self,
        inspect: Inspect,
        shard: ShardLanes,
        filter: JobFilter,
        priority: int,
        after: tuple[int, int] | None,
        page_rows: int,
        *,
        bodies: bool,
    ) -> None:
        self._first = inspect._page(filter, priority, after, page_rows, bodies=bodies)  # noqa: SLF001 one room, two classes
        self._shard = shard
        self._after = after
        self._rows: list[PageRow] = []
        self._ended = False

    async def next(self) -> Found | None:
        if not self._rows and not self._ended:
            page = self._first._replace(after=self._after)
            rows = list(raise_error(await self._shard.shard.scan_jobs(page)))
            self._ended = not rows or (len(rows) < page.limit and not page.bodies)
            if rows:
                self._after = (rows[-1].sort_ms, rows[-1].job.id)
            self._rows = rows[::-1]
        return Found(self._shard.name, self._rows.pop()) if self._rows else None


async def _push(heap: list[tuple[int, int, int, Found]], number: int, stream: _Stream) -> None:
    found = await stream.next()
    if found is not None:
        heapq.heappush(heap, (-found.row.sort_ms, -found.row.job.id, number, found))


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
