"""A job as a row of a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pinlater.console.endpoints.jobs import JobItem
from pinlater.console.pages.formats import one_line
from pinlater.domain import wording
from pinlater.domain.job import CLAIM_TIMED_OUT_TEXT, QUARANTINED, TASK_HEADER, TIMED_OUT, source_of_claim
from pinlater.domain.link_urls import NO_LINKS, JobLink, LinkUrls, source_link


class ListedJob(NamedTuple):
    """`text`: the last line of the error, or the progress, or the custom status. `attempt`: the number of the attempts spent.
    `at_ms`: the time that matters most in the state of the job. `source`: the link to the line of code that raised the error of a failed
    job."""

    job: JobItem
    task: str
    text: str
    attempt: int
    worker: str
    at_ms: int
    source: JobLink | None


def rows_of(jobs: Iterable[JobItem], links: LinkUrls = NO_LINKS) -> list[ListedJob]:
    """Returns the rows of the jobs, in the same order."""
    return [
        ListedJob(
            job,
            job.headers.get(TASK_HEADER, ""),
            error_line(job) or one_line(job.progress or job.custom_status),
            _spent(job),
            worker_of(job.claim_descriptor),
            time_of(job),
            source_link(links, job.error_text) if job.state == "failed" else None,
        )
        for job in jobs
    ]


def _spent(job: JobItem) -> int:
    """Returns the attempts spent. For a failed job, these are the ones that ended: it may have been given up with attempts left, which
    are lost then.
    """
    if job.state != "failed":
        return job.attempts_allowed - job.attempts_remaining
    return min(job.attempts[-1].number, job.attempts_allowed) if job.attempts else 0


def error_line(job: JobItem) -> str:
    """The type and the text of the error in one line.

    A claim that timed out leaves no error: the job keeps that of an earlier attempt.
    """
    if job.attempts and job.attempts[-1].outcome == TIMED_OUT and job.error_type != QUARANTINED:
        return CLAIM_TIMED_OUT_TEXT
    return ": ".join(part for part in (one_line(job.error_type), one_line(wording.error_line(job.error_text))) if part)


def worker_of(claim_descriptor: str | None) -> str:
    """The source in the name of a claim; the whole name if it has another format."""
    return source_of_claim(claim_descriptor or "") or claim_descriptor or ""


def age_column(state: str) -> str:
    """Returns what the time of a job in this state means."""
    return {"pending": "Due", "in_progress": "Claim ends", "succeeded": "Finished", "failed": "Failed"}[state]


def time_of(job: JobItem) -> int:
    """The time that matters most in the state of the job."""
    match job.state:
        case "pending":
            return job.run_after_ms or job.created_at_ms
        case "in_progress":
            return job.claim_deadline_at_ms or job.updated_at_ms or job.created_at_ms
    return job.finished_at_ms or job.updated_at_ms or job.created_at_ms
