"""Scans, counts and changes by a filter, call after call: a server compares a part of the jobs in each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from pinlater.client.async_client import AsyncClient
from pinlater.client.errors import CallerError, ContinuationInvalid, PinLaterError
from pinlater.client.values import BulkRun, BulkState, JobCount, JobFilter, JobInfo, JobState, Scanned
from pinlater.domain.errors import adding

SCAN_START, SCAN_END = "0", "-1"
PAGE_JOBS = 500
_LATER = "later."
"""Before the continuation of a change that has come to waiting jobs that are not due yet."""
_FIRST_LOOK_S, _LOOK_S = 0.02, 1.0
_GONE_LOOKS = 5


def halves_of(state: JobState) -> Sequence[bool]:
    """Returns the values of `future` that scans and counts need for all jobs of a state: waiting jobs are due, or will be."""
    return (False, True) if state is JobState.PENDING else (False,)


async def scan_to_limit(
    client: AsyncClient,
    queue: str,
    chosen: JobFilter,
    limit: int,
    *,
    future: bool = False,
    after: str = SCAN_START,
    bodies: bool = False,
    shard: str | None = None,
) -> Scanned:
    """Returns up to `limit` jobs that fit, newest first, however many jobs the servers have to compare for them."""
    jobs: list[JobInfo] = []
    incomplete = False
    while True:
        page = await client.scan(
            queue,
            filter=chosen,
            future=future,
            limit=limit - len(jobs),
            continuation=after,
            bodies=bodies,
            shard=shard,
        )
        jobs += page.jobs
        incomplete |= page.incomplete
        after = page.continuation
        if after == SCAN_END or len(jobs) >= limit:
            return Scanned(jobs, after, incomplete)


async def newest_of(client: AsyncClient, queue: str, chosen: JobFilter, limit: int) -> Sequence[JobInfo]:
    """Returns up to `limit` jobs that fit: of waiting ones those that are due, then the others."""
    jobs: list[JobInfo] = []
    for future in halves_of(chosen.state):
        if len(jobs) < limit:
            jobs += (await scan_to_limit(client, queue, chosen, limit - len(jobs), future=future)).jobs
    return jobs


async def count_all(
    client: AsyncClient, queue: str, chosen: JobFilter, halves: Sequence[bool], *, seconds: float | None = None
) -> JobCount:
    """Returns how many jobs fit. Incomplete, with a continuation, if that takes longer than `seconds`."""
    until_s = _end_of(seconds)
    jobs, incomplete = 0, False
    for future in halves:
        after = SCAN_START
        while True:
            counted = await client.count_jobs(queue, filter=chosen, future=future, continuation=after)
            jobs += counted.jobs
            incomplete |= counted.incomplete
            after = counted.continuation
            if after == SCAN_END:
                break
            if _now_s() >= until_s:
                return JobCount(jobs, True, after)
    return JobCount(jobs, incomplete)


class FoundJobsChange:
    """A change of the jobs that fit, newest first. `number`: of jobs that changed. `incomplete`: not all jobs were looked at. `more`: the
    limit was reached. They are right also after an error. `continuation`: where another change goes on (`run`); '-1' at the end, where
    none does."""

    def __init__(self, client: AsyncClient, queue: str, chosen: JobFilter) -> None:
        self._client = client
        self._queue = queue
        self._chosen = chosen
        self.number = self.found = 0
        self.incomplete = self.more = False
        self.continuation = SCAN_START

    async def run(
        self,
        change: Callable[[Sequence[str]], Awaitable[int]],
        limit: int,
        *,
        after: str = SCAN_START,
        seconds: float | None = None,
    ) -> None:
        """Hands the descriptors of up to `limit` jobs to `change`, some at a time, which says how many changed. `after`: the `continuation`
        of a change of jobs that fit the same filter."""
        until_s, halves = _end_of(seconds), halves_of(self._chosen.state)
        if after.startswith(_LATER):
            halves, after = halves[1:], after.removeprefix(_LATER)
        if not halves or after == SCAN_END:
            raise ContinuationInvalid.of(after)
        for future in halves:
            while after != SCAN_END:
                self.continuation = f"{_LATER}{after}" if future else after
                if self.found >= limit or _now_s() >= until_s:
                    self.more, self.incomplete = self.found >= limit, self.incomplete or self.found < limit
                    return
                size = min(PAGE_JOBS, limit - self.found)
                page = await self._client.scan(
                    self._queue, filter=self._chosen, future=future, limit=size, continuation=after
                )
                after = page.continuation
                self.incomplete |= page.incomplete
                self.found += len(page.jobs)
                if page.jobs:
                    self.number += await change([job.descriptor for job in page.jobs])
            after = SCAN_START
        self.continuation = SCAN_END
        self.more = self.found >= limit


async def wait_for_end(
    client: AsyncClient, run: BulkRun, *, seconds: float | None = None, tell: Callable[[str], None] = lambda _: None
) -> BulkRun:
    """Returns the run when it has ended, or as it is after `seconds`. Gives `tell` each new reason why it waits.

    Each error names the run. Raises `CallerError` if the servers, with all shards, no longer list it.
    """
    until_s, pause_s, gone = _end_of(seconds), _FIRST_LOOK_S, 0
    while run.ended_ms is None and run.state in {BulkState.RUNNING, BulkState.STOPPED} and _now_s() < until_s:
        await asyncio.sleep(pause_s)
        pause_s = min(_LOOK_S, 2 * pause_s)
        try:
            found = await client.list_bulk_runs(run.order.queue)
        except PinLaterError as error:
            raise adding(error, f" (bulk run {run.id} continues)") from error
        now = next((each for each in found.runs if each.id == run.id), None)
        gone = 0 if now is not None or found.incomplete else gone + 1
        if gone == _GONE_LOOKS:
            raise CallerError(f"The servers no longer have bulk run {run.id}: its record is gone", detail="NO_SUCH_RUN")
        if now is not None:
            if now.detail and now.detail != run.detail and now.ended_ms is None:
                tell(now.detail)
            run = now
    return run


def _end_of(seconds: float | None) -> float:
    return float("inf") if seconds is None else _now_s() + seconds


def _now_s() -> float:
    return asyncio.get_running_loop().time()
