"""Looking at jobs: lookups, counts, scans. Merging over shards, and regexes, are done here, once for all stores."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pinlater.domain.errors import AnswerTooLarge, InvalidArgument, PriorityNotSupported
from pinlater.domain.job import JobState
from pinlater.domain.queue import PriorityCounts
from pinlater.server.operations.addressing import (
    OnShard,
    check_count,
    find_jobs,
    on_each_shard,
    on_reachable,
    one_after_another,
)
from pinlater.server.operations.job_settings import DUE_ROWS_MAX, JobSettings
from pinlater.server.operations.long_lists import in_turns
from pinlater.server.operations.merged_rows import (
    END,
    PAGE_ROWS,
    MergedRows,
    ScannedRow,
    ScanPosition,
    page_of,
    parse_continuation,
)
from pinlater.server.operations.regex import BodyRegex
from pinlater.server.operations.values import ScannedPage
from pinlater.server.sharding.shards import ShardLanes
from pinlater.server.storage.claim_bytes import JOB_BYTES, header_bytes
from pinlater.server.storage.commands import AdvanceDue, CountJobs, FindUnique, LookupJobs, ScanJobs
from pinlater.server.storage.values import JobKey, UniqueRef, raise_error
from pinlater.wire.generated.structs import (
    JobCount,
    JobFilter,
    JobInfo,
    KeyHolders,
    LookupRequest,
    Scanned,
    ScanRequest,
)
from pinlater.wire.limits import fit_i32

if TYPE_CHECKING:
    from pinlater.server.operations.service import Service

_BODIES_A_LOOKUP = 64
_QUEUES_A_LOOK = 1_000
_SHARDS_NAMED_MAX = 20
HOLDERS_MAX = 200
_ATTEMPT_BYTES = 80  # of an attempt, without its texts
_STATES = frozenset(JobState)
_KEY_CHARS_MAX = 16 * 1024  # of a key to look for, also if no new one may be so long


class JobQueries:
    """Lookups, scans and counts."""

    def __init__(self, service: Service) -> None:
        self._shards = service.shards
        self._searches = service.searches
        self._metrics = service.metrics
        self._queue_cache = service.queue_cache
        self._clock = service.clock
        self._settings = service.settings

    # --- lookup -----------------------------------------------------------------------------------------------------------

    async def lookup(self, request: LookupRequest) -> dict[str, JobInfo]:
        """Returns all that is known of these jobs, by descriptor. Those not found are left out.

        A job that is named twice is read and shown once.
        """
        most, bodies = self._settings.max_descriptors_per_request, request.bodies
        check_count(len(request.descriptors), most)
        descriptors = list(dict.fromkeys(request.descriptors))
        parts = await find_jobs(self._shards, None, descriptors, most)

        answer_size = _LookupSize(self._settings.jobs_bytes_max)

        async def act(part: OnShard) -> Sequence[JobInfo | None]:
            if not bodies:
                return await part.shard.store.submit(LookupJobs(part.keys, bodies=False))
            return await self._lookup_with_bodies(part, answer_size)

        empty: list[JobInfo | None] = [None] * len(descriptors)
        jobs = await on_each_shard(parts, act, empty)
        named = {descriptor: job for descriptor, job in zip(descriptors, jobs, strict=True) if job is not None}
        shown = _LookupSize(self._settings.jobs_bytes_max)
        await in_turns(list(named.values()), shown.add)
        return named

    async def _lookup_with_bodies(self, part: OnShard, answer_size: _LookupSize) -> list[JobInfo | None]:
        """In steps, so that a request for thousands of large bodies is refused before they are all in memory."""
        jobs: list[JobInfo | None] = []
        for start in range(0, len(part.keys), _BODIES_A_LOOKUP):
            keys = part.keys[start : start + _BODIES_A_LOOKUP]
            step = await part.shard.store.submit(LookupJobs(keys, bodies=True))
            answer_size.add(step)
            jobs += step
        return jobs

    # --- unique keys ------------------------------------------------------------------------------------------------------

    async def find_unique_key(self, queues: Sequence[str], key: str) -> KeyHolders:
        """The jobs that hold a unique key now, in these queues; in all for an empty list.

        A queue that does not exist is left out, unless it is the only one. Looks into an index on each shard: two statements for a thousand
        queues at most, and then looks the jobs up, once more those that are not under their priority any more. No job holds a key that is
        much longer than keys may be: stores are not asked, since a question has the key once for each queue.
        """
        if len(queues) == 1:
            await self._queue_cache.require(queues[0])
        if len(key) > max(_KEY_CHARS_MAX, self._settings.max_unique_key_bytes):
            return KeyHolders([])
        known = self._queue_cache.queues
        names = list(known) if not queues else [name for name in dict.fromkeys(queues) if name in known]

        async def find(shard: ShardLanes) -> KeyHolders:
            held: list[JobKey] = []
            for start in range(0, len(names), _QUEUES_A_LOOK):
                refs = [UniqueRef(name, key) for name in names[start : start + _QUEUES_A_LOOK]]
                holders = await shard.store.submit(FindUnique(refs, self._clock.now_ms()))
                held += [
                    JobKey(ref.queue, holder.priority, holder.job_id)
                    for ref, holder in zip(refs, holders, strict=True)
                    if holder is not None
                ]
                await asyncio.sleep(0)
            return KeyHolders(await self._look_up_holders(shard, held[:HOLDERS_MAX]), len(held) > HOLDERS_MAX)

        found = await on_reachable(self._shards, self._metrics, "findUniqueKey", find)
        jobs = [job for each in found for job in each.jobs]
        shown = self._that_fit(jobs[:HOLDERS_MAX])
        cut = len(jobs) > len(shown) or any(each.incomplete for each in found)
        return KeyHolders(shown, cut or len(found) < len(self._shards) or None)

    def _that_fit(self, jobs: Sequence[JobInfo]) -> Sequence[JobInfo]:
        """The first of these jobs, as many as an answer holds, at least one."""
        bytes_left = self._settings.jobs_bytes_max
        for number, job in enumerate(jobs):
            bytes_left -= _shown_bytes(job)
            if bytes_left < 0 and number:
                return jobs[:number]
        return jobs

    async def _look_up_holders(self, shard: ShardLanes, held: Sequence[JobKey]) -> list[JobInfo]:
        """Looks up the jobs that the index has just named. One that got another priority meanwhile is found under all priorities."""
        jobs = list(await shard.store.submit(LookupJobs(held, bodies=False))) if held else []
        missing = [at for at, job in enumerate(jobs) if job is None]
        if missing:
            levels = range(1, self._settings.priority_levels + 1)
            places = [at for at in missing for _ in levels]
            keys = [held[at]._replace(priority=level) for at in missing for level in levels]
            for at, job in zip(places, await shard.store.submit(LookupJobs(keys, bodies=False)), strict=True):
                jobs[at] = job or jobs[at]
        return [job for job in jobs if job is not None]

    # --- count ------------------------------------------------------------------------------------------------------------

    async def count(self, filter: JobFilter) -> int:
        """As `count_jobs`, without a word of shards that are not counted."""
        return fit_i32((await self.count_jobs(filter)).jobs)

    async def count_jobs(self, filter: JobFilter) -> JobCount:
        """How many jobs. Without a regex from counters and exact; with one, of at most 100,000 rows a shard and priority."""
        await self._check(filter)
        regex = await self.regex(filter)
        if _names_none(filter):
            return JobCount(0)
        if regex is not None:
            return await self._count_matching(filter, regex)

        async def count(shard: ShardLanes) -> int:
            # What has become due since the last sweep is counted as due first.
            await shard.store.submit(AdvanceDue(self._clock.now_ms(), DUE_ROWS_MAX))
            rows = await shard.store.submit(CountJobs([filter.queue]))
            counts = [row.counts for row in rows if filter.priority in (None, row.counts.priority)]
            return sum(_count(each, filter) for each in counts)

        counts = await on_reachable(self._shards, self._metrics, "getJobCount", count)
        return JobCount(sum(counts), incomplete=len(counts) < len(self._shards) or None)

    async def _count_matching(self, filter: JobFilter, regex: BodyRegex) -> JobCount:
        seen = shards_counted = 0

        async def count(shard: ShardLanes) -> int:
            nonlocal seen, shards_counted
            found = 0
            for priority in self._priorities(filter):
                rows_left = self._settings.regex_rows_max
                after = None
                while rows_left > 0:
                    page = page_of(
                        filter, [priority], after, min(PAGE_ROWS, rows_left), self._clock.now_ms(), bodies=True
                    )
                    rows = raise_error(await shard.store.submit(ScanJobs(page)))
                    if not rows:
                        break
                    matches = await regex.found(rows)
                    found += sum(matches)
                    seen += len(matches)
                    rows_left -= len(rows)
                    after = (rows[-1].sort_ms, rows[-1].key.id)
                    if regex.exhausted:
                        raise regex.too_costly(seen)
            shards_counted += 1
            return found

        found = await one_after_another(self._shards, self._metrics, "getJobCount", count)
        return JobCount(found, incomplete=shards_counted < len(self._shards) or None)

    # --- scan -------------------------------------------------------------------------------------------------------------

    async def scan(self, request: ScanRequest) -> Scanned:
        """Jobs, newest first, at most `limit`. Ends early at the frame budget, or, if paged, at a regex's budgets."""
        page = await self.scan_page(request)
        return Scanned(page.jobs, page.continuation, page.incomplete or None)

    async def scan_page(self, request: ScanRequest) -> ScannedPage:
        """As `scan`, and says how many jobs were compared. Raises `ShardConnectionFailed` if the named shard is unreachable."""
        chosen = JobFilter(request.queue, request.state, request.priority, request.future, request.regex)
        check_state(request.state)
        if request.limit < 0:
            raise InvalidArgument(f"limit must not be negative, not {request.limit}")
        after = parse_continuation(request)
        await self._check(chosen)
        only = self._shard_of(request.shard or "")
        limit = min(request.limit, self._settings.max_scan_limit)
        regex = await self.regex(chosen)
        if limit == 0 or _names_none(chosen):
            return ScannedPage((), END, False, 0)
        jobs: list[JobInfo] = []
        bytes_left = self._settings.jobs_bytes_max
        last: ScannedRow | None = None
        seen = 0
        bodies = bool(request.bodies)
        merged = self._merged("scanJobs", chosen, after, limit, regex, bodies=bodies, only=only)
        async for found in merged.rows():
            row = found.row
            seen += 1
            if not found.matches:
                last = found
                if regex is not None and regex.exhausted:
                    if not request.paged:
                        raise regex.too_costly(seen)
                    return ScannedPage(jobs, merged.continuation(found), True, seen)
                continue
            bytes_left -= _shown_bytes(row.job, body=bodies)
            if bytes_left < 0 and jobs:
                return ScannedPage(jobs, merged.continuation(last) if request.paged else END, True, seen - 1)
            if not bodies:
                row.job.body = None
            jobs.append(row.job)
            last = found
            if len(jobs) >= limit:
                return ScannedPage(jobs, merged.continuation(found) if request.paged else END, merged.cut, seen)
        if regex is not None and merged.unsearched:
            if not request.paged or last is None:
                raise regex.too_costly(seen)
            return ScannedPage(jobs, merged.continuation(last), True, seen)
        return ScannedPage(jobs, END, merged.cut, seen)

    async def regex(self, filter: JobFilter) -> BodyRegex | None:
        """The filter's regex with the budgets of a request. Raises `InvalidArgument`."""
        if filter.regex is None:
            return None
        return await BodyRegex.compiled(filter.regex, self._settings, self._clock, self._searches)

    # --- shared -------------------------------------------------------------------------------------------------------------

    async def matching_jobs(self, filter: JobFilter, regex: BodyRegex, limit: int) -> list[tuple[str, JobKey]]:
        """Up to `limit` jobs of one state and priority whose body matches, with their shards; for deletes.

        Raises at the regex's budgets.
        """
        chosen: list[tuple[str, JobKey]] = []
        if limit <= 0:
            return chosen
        seen = 0
        merged = self._merged("deleteJobs", filter, None, PAGE_ROWS, regex, bodies=True)
        async for found in merged.rows():
            seen += 1
            if found.matches:
                chosen.append((found.shard, found.row.key))
                if len(chosen) >= limit:
                    return chosen
            if regex.exhausted:
                raise regex.too_costly(seen)
        if merged.unsearched:
            raise regex.too_costly(seen)
        return chosen

    def _merged(
        self,
        method: str,
        filter: JobFilter,
        after: ScanPosition | None,
        limit: int,
        regex: BodyRegex | None,
        *,
        bodies: bool,
        only: ShardLanes | None = None,
    ) -> MergedRows:
        priorities, now_ms = self._priorities(filter), self._clock.now_ms()
        return MergedRows(
            self._shards,
            self._metrics,
            method,
            filter,
            priorities,
            after,
            limit,
            now_ms,
            regex,
            bodies=bodies,
            only=only,
        )

    def _shard_of(self, name: str) -> ShardLanes | None:
        """The shard of that name, as the map or as descriptors have it; None for ''. Raises `InvalidArgument`."""
        if not name:
            return None
        found = self._shards.get(name) or self._shards.get(name.removeprefix("s"))
        if found is None:
            names = ", ".join([shard.name for shard in self._shards][:_SHARDS_NAMED_MAX])
            raise InvalidArgument(
                f"There is no shard {name[:100]!r}; this server has {names}", detail="SHARD_NOT_FOUND"
            )
        return found

    async def _check(self, filter: JobFilter) -> None:
        check_state(filter.state)
        check_priority(filter.priority, self._settings)
        await self._queue_cache.require(filter.queue)

    def _priorities(self, filter: JobFilter) -> Sequence[int]:
        return range(1, self._settings.priority_levels + 1) if filter.priority is None else (filter.priority,)


class _LookupSize:
    """The least bytes that the answer to a lookup has so far; the answer itself is measured when it is made. A job under two names, as
    with a zero before its id, is read and shown under both."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._jobs = self._bytes = 0

    def add(self, jobs: Sequence[JobInfo | None]) -> Sequence[None]:
        """Raises `AnswerTooLarge` once more than one job has more bytes together than an answer may have."""
        for job in jobs:
            if job is not None:
                self._jobs += 1
                self._bytes += _text_bytes(job)
        if self._bytes > self._bytes_max and self._jobs > 1:
            raise AnswerTooLarge.of(self._bytes, self._bytes_max)
        return ()


def check_state(state: int) -> None:
    """Raises `InvalidArgument` for a number that is no state of a job."""
    if state not in _STATES:
        raise InvalidArgument(f"{state} is not a job state; there are 0 PENDING, 1 IN_PROGRESS, 2 SUCCEEDED, 3 FAILED")


def check_priority(priority: int | None, settings: JobSettings) -> None:
    """Raises `PriorityNotSupported`; None (all) passes."""
    if priority is not None and not 1 <= priority <= settings.priority_levels:
        raise PriorityNotSupported.of(priority, settings.priority_levels)


def _names_none(filter: JobFilter) -> bool:
    """Only PENDING jobs have a due time ahead of them; the original, too, finds no job of another state with the flag."""
    return filter.future and filter.state != JobState.PENDING


def _count(counts: PriorityCounts, filter: JobFilter) -> int:
    if filter.state == JobState.PENDING:
        return counts.future if filter.future else counts.pending - counts.future
    if filter.state == JobState.IN_PROGRESS:
        return counts.in_progress
    return counts.succeeded if filter.state == JobState.SUCCEEDED else counts.failed


def _shown_bytes(job: JobInfo, *, body: bool = True) -> int:
    """The most bytes of an answer that a job takes."""
    return JOB_BYTES + _ATTEMPT_BYTES * len(job.attempts or ()) + _text_bytes(job, body=body)


def _text_bytes(job: JobInfo, *, body: bool = True) -> int:
    """The bytes of an answer that texts of a job take: its body, headers, status, errors and other strings of no fixed length."""
    texts = [job.custom_status, job.claim_descriptor, job.unique_key, job.ordering_key]
    texts += job.error_type, job.error_text, job.progress
    for attempt in job.attempts or ():
        texts += attempt.claimed_by, attempt.outcome, attempt.error_type, attempt.error_text
    size = sum([len(text.encode()) for text in texts if text])
    return size + header_bytes(job.headers) + (len(job.body or b"") if body else 0)
