"""Scans for jobs by task, header, error, attempts and age.

Servers choose by state, priority and body. All else is compared here, page by page, so that a scan for a rare task reads many jobs.
It stops at the bounds of its caller; the continuation goes on behind the last job that it compared.
"""

from __future__ import annotations

from typing import NamedTuple

from pinlater.client.async_client import AsyncClient
from pinlater.client.values import JobInfo, JobState, Scanned
from pinlater.domain.job_criteria import JobCriteria

SCAN_START, SCAN_END = "0", "-1"
PAGE_JOBS = 500  # of the pages whose jobs are compared
_JOB_BYTES, _ATTEMPT_BYTES = 400, 200  # without texts


class ScanFilter(NamedTuple):
    """What the server chooses by."""

    state: JobState
    priority: int | None = None
    future: bool = False
    regex: str | None = None
    bodies: bool = False
    shard: str | None = None

    async def page(self, client: AsyncClient, queue: str, limit: int, after: str) -> Scanned:
        return await client.scan(
            queue,
            self.state,
            priority=self.priority,
            future=self.future,
            regex=self.regex,
            limit=limit,
            continuation=after,
            paged=True,
            bodies=self.bodies,
            shard=self.shard,
        )


class ScanBounds(NamedTuple):
    """Where a scan that compares jobs stops: after the page with which it has compared `jobs`, or holds `found_bytes` of jobs that fit."""

    jobs: int = 100_000
    found_bytes: int | None = None


async def scan_by_task(
    client: AsyncClient,
    queue: str,
    request: ScanFilter,
    wanted: JobCriteria,
    limit: int,
    after: str = SCAN_START,
    bounds: ScanBounds = ScanBounds(),  # noqa: B008 - immutable
) -> Scanned:
    """Up to `limit` jobs that fit, newest first. Incomplete, with a continuation, if a bound stopped it earlier."""
    if wanted.fits_all:
        return await request.page(client, queue, limit, after)
    jobs: list[JobInfo] = []
    compared = found_bytes = 0
    while True:
        page = await request.page(client, queue, PAGE_JOBS, after)
        chosen = [number for number, job in enumerate(page.jobs, 1) if wanted.fits(job)]
        left = limit - len(jobs)
        if len(chosen) > left or (len(chosen) == left and page.continuation != SCAN_END):
            # The page again, up to the last job that is shown, for the continuation behind that one.
            page = await request.page(client, queue, chosen[left - 1], after)
            return Scanned([*jobs, *filter(wanted.fits, page.jobs)], page.continuation, page.incomplete)
        found = [page.jobs[number - 1] for number in chosen]
        jobs += found
        compared += len(page.jobs)
        found_bytes += sum(map(_bytes_of, found))
        after = page.continuation
        stopped = compared >= bounds.jobs or (bounds.found_bytes is not None and found_bytes >= bounds.found_bytes)
        if after == SCAN_END or page.incomplete or stopped:
            return Scanned(jobs, after, page.incomplete or after != SCAN_END)


def _bytes_of(job: JobInfo) -> int:
    """About how long the job is in a frame."""
    texts = len(job.custom_status) + len(job.error_text) + sum(len(one.error_text) for one in job.attempts)
    headers = sum(len(name) + len(value) for name, value in job.headers.items())
    return _JOB_BYTES + _ATTEMPT_BYTES * len(job.attempts) + texts + headers + len(job.body or b"")
