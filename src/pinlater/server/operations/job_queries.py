"""Reads of jobs: lookups, counts, scans. Merging over shards, and regexes, are done here, once for all stores."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pinlater.domain.clock import Clock
from pinlater.domain.errors import AnswerTooLarge, InvalidArgument, PriorityNotSupported
from pinlater.domain.job import JobState
from pinlater.domain.job_filter import JobFilter
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
    START,
    MergedRows,
    RowSearch,
    ScannedRow,
    ScanPosition,
    parse_continuation,
)
from pinlater.server.operations.regex import BodyRegex
from pinlater.server.operations.values import ScannedPage
from pinlater.server.sharding.shards import ShardLanes
from pinlater.server.storage.claim_bytes import JOB_BYTES, header_bytes
from pinlater.server.storage.commands import AdvanceDue, CountJobs, FindUnique, LookupJobs, ScanJobs
from pinlater.server.storage.values import JobKey, UniqueRef, raise_error
from pinlater.wire.generated.structs import (
    CountRequest,
    JobCount,
    JobInfo,
    KeyHolders,
    LookupRequest,
    Scanned,
    ScanRequest,
)
from pinlater.wire.job_filters import filter_of
from pinlater.wire.limits import fit_i32

if TYPE_CHECKING:
    from pinlater.server.operations.service import Service

_BODIES_A_LOOKUP = 64
_COMPARED_PAGE_ROWS, _COMPARED_S = 500, 2.0
_QUEUES_A_LOOK = 1_000
_SHARDS_NAMED_MAX = 20
HOLDERS_MAX = 200
_ATTEMPT_BYTES = 80  # bytes of an attempt, without its strings
_STATES = frozenset(JobState)
_KEY_CHARS_MAX = 16 * 1024  # characters of a key to look for, also if new ones must be shorter


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
        """Returns all that is known of these jobs, by descriptor. Jobs that are not found are left out.

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
        """In steps, so that a request for thousands of large bodies is refused before all of them are in memory."""
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

        A queue that does not exist is left out, unless it is the only one. Reads an index on each shard, with at most two statements for
        a thousand queues, and then looks the jobs up; those that are no longer under their priority once more. No job holds a key that is
        much longer than keys may be: then stores are not asked, since a query has the key once for each queue.
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
        """The first of these jobs that fit into an answer, at least one."""
        bytes_left = self._settings.jobs_bytes_max
        for number, job in enumerate(jobs):
            bytes_left -= _shown_bytes(job)
            if bytes_left < 0 and number:
                return jobs[:number]
        return jobs

    async def _look_up_holders(self, shard: ShardLanes, held: Sequence[JobKey]) -> list[JobInfo]:
        """Looks up the jobs that the index has just returned. A job that got another priority meanwhile is found under all priorities."""
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

    async def count(self, request: CountRequest) -> int:
        """Does the same as `count_jobs`, but does not report shards that are not counted."""
        if request.filter is not None:
            raise InvalidArgument("getJobCount takes no filter; countJobs does")
        return fit_i32((await self.count_jobs(request)).jobs)

    async def count_jobs(self, request: CountRequest) -> JobCount:
        """How many jobs: by state and priority from counters, exact; with a filter by comparing jobs, in parts; with a regex and no filter,
        of at most 100,000 rows a shard and priority."""
        chosen, by_filter = _asked(request), request.filter is not None
        after = parse_continuation(request.continuation or START, paged=by_filter)
        search = await self.search_for(request.queue, chosen, future=request.future)
        filtered = True if by_filter else None
        if _names_none(search):
            return JobCount(0, filtered=filtered)
        if chosen.is_plain:
            return await self._count_by_counters(search, filtered)
        if by_filter:
            return await self._count_part(search, after)
        return await self._count_matching(search)

    async def _count_by_counters(self, search: RowSearch, filtered: bool | None) -> JobCount:
        chosen = search.filter

        async def count(shard: ShardLanes) -> int:
            # Jobs that have become due since the last sweep are first counted as due.
            await shard.store.submit(AdvanceDue(self._clock.now_ms(), DUE_ROWS_MAX))
            rows = await shard.store.submit(CountJobs([search.queue]))
            counts = [row.counts for row in rows if chosen.priority in (None, row.counts.priority)]
            return sum(_count(each, chosen.state, future=search.future) for each in counts)

        counts = await on_reachable(self._shards, self._metrics, "getJobCount", count)
        return JobCount(sum(counts), len(counts) < len(self._shards) or None, filtered)

    async def _count_part(self, search: RowSearch, after: ScanPosition | None) -> JobCount:
        """How many of the next jobs match, as many as one call compares."""
        bound = _Bound(self._settings, self._clock, search)
        merged = self._merged("countJobs", search, after, PAGE_ROWS)
        jobs = 0
        last: ScannedRow | None = None
        async for found in merged.rows():
            jobs += found.matches
            last = found
            if bound.is_reached():
                return JobCount(jobs, merged.cut or None, True, merged.continuation(found))
        if not merged.unsearched:
            return JobCount(jobs, merged.cut or None, True)
        if last is None:
            raise search.too_costly(0)
        return JobCount(jobs, merged.cut or None, True, merged.continuation(last))

    async def _count_matching(self, search: RowSearch) -> JobCount:
        seen = shards_counted = 0

        async def count(shard: ShardLanes) -> int:
            nonlocal seen, shards_counted
            found = 0
            for priority in self._priorities(search.filter):
                rows_left = self._settings.regex_rows_max
                after = None
                while rows_left > 0:
                    page = search.page([priority], after, min(PAGE_ROWS, rows_left), self._clock.now_ms(), bodies=True)
                    rows = raise_error(await shard.store.submit(ScanJobs(page)))
                    if not rows:
                        break
                    matches = await search.matches(rows)
                    found += sum(matches)
                    seen += len(matches)
                    rows_left -= len(rows)
                    after = (rows[-1].sort_ms, rows[-1].key.id)
                    if search.exhausted:
                        raise search.too_costly(seen)
            shards_counted += 1
            return found

        found = await one_after_another(self._shards, self._metrics, "getJobCount", count)
        return JobCount(found, incomplete=shards_counted < len(self._shards) or None)

    # --- scan -------------------------------------------------------------------------------------------------------------

    async def scan(self, request: ScanRequest) -> Scanned:
        """Jobs, newest first, at most `limit`. Ends early at the frame budget, or, if paged, at the bounds of a filter or a regex."""
        page = await self.scan_page(request)
        return Scanned(page.jobs, page.continuation, page.incomplete or None, None if request.filter is None else True)

    async def scan_page(self, request: ScanRequest) -> ScannedPage:
        """Does the same as `scan`, and also returns how many jobs were compared. Raises `ShardConnectionFailed` if the named shard is
        unreachable."""
        chosen, by_filter = _asked(request), request.filter is not None
        if request.limit < 0:
            raise InvalidArgument(f"limit must not be negative, not {request.limit}")
        if by_filter and not request.paged:
            raise InvalidArgument("A scan with a filter must be paged: one call compares a part of the jobs")
        after = parse_continuation(request.continuation, paged=bool(request.paged))
        search = await self.search_for(request.queue, chosen, future=request.future)
        only = self._shard_of(request.shard or "")
        limit = min(request.limit, self._settings.max_scan_limit)
        if limit == 0 or _names_none(search):
            return ScannedPage((), END, False, 0)
        jobs: list[JobInfo] = []
        bytes_left = self._settings.jobs_bytes_max
        last: ScannedRow | None = None
        seen = 0
        bodies = bool(request.bodies)
        bound = _Bound(self._settings, self._clock, search)
        page_rows = max(limit, _COMPARED_PAGE_ROWS) if chosen.compares else limit
        merged = self._merged("scanJobs", search, after, page_rows, bodies=bodies, only=only)
        async for found in merged.rows():
            row = found.row
            seen += 1
            if found.matches:
                bytes_left -= _shown_bytes(row.job, body=bodies)
                if bytes_left < 0 and jobs:
                    goes_on = merged.continuation(last) if request.paged else END
                    return ScannedPage(jobs, goes_on, merged.cut or not by_filter, seen - 1)
                if not bodies:
                    row.job.body = None
                jobs.append(row.job)
                if len(jobs) >= limit:
                    return ScannedPage(jobs, merged.continuation(found) if request.paged else END, merged.cut, seen)
            last = found
            if bound.is_reached() if by_filter else not found.matches and search.exhausted:
                if not request.paged:
                    raise search.too_costly(seen)
                return ScannedPage(jobs, merged.continuation(found), merged.cut or not by_filter, seen)
        if not merged.unsearched:
            return ScannedPage(jobs, END, merged.cut, seen)
        if not request.paged or last is None:
            raise search.too_costly(seen)
        return ScannedPage(jobs, merged.continuation(last), merged.cut or not by_filter, seen)

    # --- shared -------------------------------------------------------------------------------------------------------------

    async def search_for(self, queue: str, chosen: JobFilter, *, future: bool = False) -> RowSearch:
        """The search for these jobs of a queue, with the budgets of a request if the filter has a regex. Raises `InvalidArgument`."""
        check_priority(chosen.priority, self._settings)
        chosen.check()
        await self._queue_cache.require(queue)
        return RowSearch(queue, chosen, future, await self.compiled(chosen.regex))

    async def compiled(self, regex: str | None) -> BodyRegex | None:
        """The regex with the budgets of a request. Raises `InvalidArgument`."""
        if regex is None:
            return None
        return await BodyRegex.compiled(regex, self._settings, self._clock, self._searches)

    async def matching_jobs(self, search: RowSearch, limit: int) -> list[tuple[str, JobKey]]:
        """Up to `limit` jobs of one state and priority whose body matches, with their shards; for deletes.

        Raises at the regex's budgets.
        """
        chosen: list[tuple[str, JobKey]] = []
        if limit <= 0:
            return chosen
        seen = 0
        merged = self._merged("deleteJobs", search, None, PAGE_ROWS)
        async for found in merged.rows():
            seen += 1
            if found.matches:
                chosen.append((found.shard, found.row.key))
                if len(chosen) >= limit:
                    return chosen
            if search.exhausted:
                raise search.too_costly(seen)
        if merged.unsearched:
            raise search.too_costly(seen)
        return chosen

    def _merged(
        self,
        method: str,
        search: RowSearch,
        after: ScanPosition | None,
        limit: int,
        *,
        bodies: bool = False,
        only: ShardLanes | None = None,
    ) -> MergedRows:
        priorities, now_ms = self._priorities(search.filter), self._clock.now_ms()
        return MergedRows(
            self._shards,
            self._metrics,
            method,
            search,
            priorities,
            after,
            limit,
            now_ms,
            bodies=bodies,
            only=only,
        )

    def _shard_of(self, name: str) -> ShardLanes | None:
        """The shard with that name in the map or in descriptors; None for ''. Raises `InvalidArgument`."""
        if not name:
            return None
        found = self._shards.get(name) or self._shards.get(name.removeprefix("s"))
        if found is None:
            names = ", ".join([shard.name for shard in self._shards][:_SHARDS_NAMED_MAX])
            raise InvalidArgument(
                f"There is no shard {name[:100]!r}; this server has {names}", detail="SHARD_NOT_FOUND"
            )
        return found

    def _priorities(self, chosen: JobFilter) -> Sequence[int]:
        return range(1, self._settings.priority_levels + 1) if chosen.priority is None else (chosen.priority,)


class _Bound:
    """Where a call that compares jobs with a filter ends, so that a filter that matches none of many jobs neither holds a server up nor
    times out."""

    def __init__(self, settings: JobSettings, clock: Clock, search: RowSearch) -> None:
        self._rows_left = settings.max_compared_jobs
        self._clock = clock
        self._until_s = clock.monotonic() + _COMPARED_S
        self._search = search

    def is_reached(self) -> bool:
        """Counts one more job, and returns whether it is the last one. The time is checked only now and then: each call compares some
        jobs."""
        self._rows_left -= 1
        if self._rows_left <= 0 or self._search.exhausted:
            return True
        return self._rows_left % _COMPARED_PAGE_ROWS == 0 and self._clock.monotonic() >= self._until_s


class _LookupSize:
    """The least bytes that the answer to a lookup has so far; the answer itself is measured when it is encoded. A job with two names, as
    with a zero before its id, is read and shown under both."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._jobs = self._bytes = 0

    def add(self, jobs: Sequence[JobInfo | None]) -> Sequence[None]:
        """Raises `AnswerTooLarge` if more than one job was added and their bytes exceed the bound of an answer."""
        for job in jobs:
            if job is not None:
                self._jobs += 1
                self._bytes += _text_bytes(job)
        if self._bytes > self._bytes_max and self._jobs > 1:
            raise AnswerTooLarge.of(self._bytes, self._bytes_max)
        return ()


def check_state(state: int) -> None:
    """Raises `InvalidArgument` for a number that is not a state of a job."""
    if state not in _STATES:
        raise InvalidArgument(f"{state} is not a job state; there are 0 PENDING, 1 IN_PROGRESS, 2 SUCCEEDED, 3 FAILED")


def check_priority(priority: int | None, settings: JobSettings) -> None:
    """Raises `PriorityNotSupported`; None (all) passes."""
    if priority is not None and not 1 <= priority <= settings.priority_levels:
        raise PriorityNotSupported.of(priority, settings.priority_levels)


def _asked(request: ScanRequest | CountRequest) -> JobFilter:
    """The filter of a request, or the one that follows from the arguments of a client that knows no filters. Raises `InvalidArgument` for
    an unknown state."""
    chosen = request.filter
    check_state(request.state if chosen is None else chosen.state)
    if chosen is not None:
        return filter_of(chosen)
    return JobFilter(JobState(request.state), request.priority, request.regex)


def _names_none(search: RowSearch) -> bool:
    """Only PENDING jobs have a due time ahead of them; the original, too, finds no job of another state with the flag."""
    return search.future and search.filter.state is not JobState.PENDING


def _count(counts: PriorityCounts, state: JobState, *, future: bool) -> int:
    if state is JobState.PENDING:
        return counts.future if future else counts.pending - counts.future
    if state is JobState.IN_PROGRESS:
        return counts.in_progress
    return counts.succeeded if state is JobState.SUCCEEDED else counts.failed


def _shown_bytes(job: JobInfo, *, body: bool = True) -> int:
    """The most bytes of an answer that a job takes."""
    return JOB_BYTES + _ATTEMPT_BYTES * len(job.attempts or ()) + _text_bytes(job, body=body)


def _text_bytes(job: JobInfo, *, body: bool = True) -> int:
    """The bytes of an answer that the strings of a job take: its body, headers, status, errors and other strings of variable length."""
    texts = [job.custom_status, job.claim_descriptor, job.unique_key, job.ordering_key]
    texts += job.error_type, job.error_text, job.progress
    for attempt in job.attempts or ():
        texts += attempt.claimed_by, attempt.outcome, attempt.error_type, attempt.error_text
    size = sum([len(text.encode()) for text in texts if text])
    return size + header_bytes(job.headers) + (len(job.body or b"") if body else 0)
