"""A job as callers see it, from a record of any store."""

from __future__ import annotations

import json

from pinlater.domain.job import progress_of
from pinlater.server.storage.record import JobRecord
from pinlater.wire.generated.structs import Attempt, JobInfo


def job_info(job: JobRecord, descriptor: str) -> JobInfo:
    """The job with the descriptor that callers know."""
    options = job.options
    return JobInfo(
        descriptor=descriptor,
        state=job.state,
        attempts_allowed=job.attempts_allowed,
        attempts_remaining=job.attempts_remaining,
        custom_status=job.custom_status,
        created_at_ms=job.created_at_ms,
        run_after_ms=job.run_after_ms,
        updated_at_ms=_updated_at_ms(job),
        claim_descriptor=job.holder,
        claim_deadline_ms=job.deadline_ms,
        finished_at_ms=job.finished_at_ms,
        body=job.body,
        headers=options.headers or None,
        unique_key=options.unique.key if options.unique else None,
        expires_at_ms=options.expires_ms,
        ordering_key=options.ordering_key,
        error_type=job.error_type or None,
        error_text=job.error_text or None,
        attempts=[_attempt(*attempt) for attempt in json.loads(job.history)] or None if job.has_progress else None,
        progress=progress_of(job.custom_status) or None,
    )


def _updated_at_ms(job: JobRecord) -> int:
    """The job's last change; a claim is one."""
    if job.finished_at_ms is not None:
        return job.finished_at_ms
    return job.updated_at_ms if job.claimed_at_ms is None else max(job.updated_at_ms, job.claimed_at_ms)


def _attempt(
    number: int,
    claimed_by: str,
    claimed_at_ms: int,
    ended_at_ms: int,
    outcome: str,
    error_type: str = "",
    error_text: str = "",
) -> Attempt:
    """An attempt in its stored form, in the order of `domain.job.Attempt`."""
    return Attempt(number, claimed_by, claimed_at_ms, ended_at_ms, outcome, error_type or None, error_text or None)
