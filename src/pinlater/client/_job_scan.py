"""Scans for jobs by task, header, error, attempts and age.

Servers choose by state, priority and body. All else is compared here, page by page, so that a scan for a rare task reads many jobs.
It stops at the bounds of its caller; the continuation goes on behind the last job that it compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pinlater.client.async_client import AsyncClient
from pinlater.client.values import JobInfo, JobState, Scanned
from pinlater.domain.failures import CLAIM_TIMED_OUT, failure_of
from pinlater.domain.job import TASK_HEADER, TIMED_OUT
from pinlater.domain.transitions import was_cancelled

SCAN_START, SCAN_END = "0", "-1"
PAGE_JOBS = 500  # of the pages whose jobs are compared
_JOB_BYTES, _ATTEMPT_BYTES = 400, 200  # without texts


class JobCriteria(NamedTuple):
    """What a job must be and have. `tasks`: one of them, if any is named. `error`: a text in the type or the text of its error, in small or
    large letters. `min_attempts`: that have begun. `enqueued_from_ms` and before `enqueued_before_ms`: when it was enqueued. `group`: of
    failures, in which its last failed attempt is.
    """

    tasks: frozenset[str] = frozenset()
    headers: Mapping[str, str] = {}
    error: str = ""
    min_attempts: int = 0
    enqueued_from_ms: int | None = None
    enqueued_before_ms: int | None = None
    group: str = ""
    skip_cancelled: bool = False

    @property
    def of_any_job(self) -> bool:
        """Whether it chooses none, but perhaps skips cancelled ones."""
        return self._replace(skip_cancelled=False) == JobCriteria()

    @property
    def fits_all(self) -> bool:
        return self.of_any_job and not self.skip_cancelled

    def fits(self, job: JobInfo) -> bool:
        last_attempt = job.attempts[-1] if job.attempts else None
        if self.skip_cancelled and was_cancelled(job.custom_status, job.finished_at_ms, last_attempt):
            return False
        if self.tasks and job.headers.get(TASK_HEADER) not in self.tasks:
            return False
        if not all(job.headers.get(name) == value for name, value in self.headers.items()):
            return False
        if self.group and group_of(job) != self.group:
            return False
        return self._fits_error(job) and self._fits_attempts(job) and self._fits_age(job)

    def _fits_error(self, job: JobInfo) -> bool:
        return not self.error or self.error.casefold() in f"{job.error_type}: {job.error_text}".casefold()

    def _fits_attempts(self, job: JobInfo) -> bool:
        return self.min_attempts <= 0 or attempts_begun(job) >= self.min_attempts

    def _fits_age(self, job: JobInfo) -> bool:
        if self.enqueued_from_ms is not None and job.created_at_ms < self.enqueued_from_ms:
            return False
        return self.enqueued_before_ms is None or job.created_at_ms < self.enqueued_before_ms


def group_of(job: JobInfo) -> str:
    """The name of the group in which its last failed attempt was counted. Of a failure without an error the status tells, which may have
    more in it."""
    error_type, error_text = job.error_type, job.error_text
    if job.attempts and job.attempts[-1].outcome == TIMED_OUT:
        error_type, error_text = CLAIM_TIMED_OUT, ""
    elif not error_type and not error_text:
        error_text = job.custom_status
    return failure_of(job.headers, TASK_HEADER, error_type, error_text).group


def attempts_begun(job: JobInfo) -> int:
    """All of them, also those before a retry by hand, which gives a job new ones; a final failure leaves none."""
    if job.attempts:
        return job.attempts[-1].number + (job.state is JobState.IN_PROGRESS)
    return job.attempts_allowed - job.attempts_remaining


class ScanFilter(NamedTuple):
    """What the server chooses by."""

    state: JobState
    priority: int | None = None
    future: bool = False
    regex: str | None = None
    bodies: bool = False

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
