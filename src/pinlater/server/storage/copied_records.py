"""Copies of deleted jobs from records, and back. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.domain.transitions import IN_PROGRESS, PENDING
from pinlater.server.storage.job_copies import JobCopy, takes_key
from pinlater.server.storage.options import options_of, text_of
from pinlater.server.storage.record import JobRecord
from pinlater.server.storage.values import Restored


def copy_of(job: JobRecord, body: bytes, last_holder: str | None) -> JobCopy:
    """A job that is about to be deleted. `last_holder`: of a finished one."""
    waits = job.state is PENDING or job.state is IN_PROGRESS
    return JobCopy(
        job.id,
        job.queue_id,
        job.priority,
        job.created_at_ms,
        max(job.run_after_ms, job.deadline_ms or 0) if job.state is IN_PROGRESS else job.run_after_ms,
        job.updated_at_ms,
        job.attempts_allowed,
        job.attempts_remaining,
        text_of(job.options),
        int(PENDING if waits else job.state),
        None if waits else job.finished_at_ms,
        job.attempts_ended,
        job.custom_status,
        job.error_type,
        job.error_text,
        job.history,
        None if waits else last_holder,
        takes_key(job.options, job.state, job.attempts_ended),
        body,
    )


def restored(copy: JobCopy, now_ms: int) -> JobRecord:
    """The job as it comes back."""
    return JobRecord(
        copy.id,
        copy.queue_id,
        copy.priority,
        copy.created_at_ms,
        copy.run_after_ms,
        copy.updated_at_ms,
        copy.attempts_allowed,
        copy.attempts_remaining,
        options_of(copy.options),
        copy.job_state,
        copy.finished_at_ms,
        copy.attempts_ended,
        copy.custom_status,
        copy.error_type,
        copy.error_text,
        copy.history,
        holder=copy.holder,
        has_progress=True,
        counted_future=copy.job_state is PENDING and copy.run_after_ms > now_ms,
        body_bytes=len(copy.body),
        changed=True,
    )


def brought_back(place: str, jobs: Sequence[JobCopy], kept: int, freed_bytes: int, now_ms: int) -> Restored:
    """Returns what `RestoreJobs` answers once these jobs are back. `kept`: how many are not, as their keys are taken."""
    due = [job.run_after_ms for job in jobs if job.job_state is PENDING]
    return Restored(
        place,
        len(jobs),
        kept,
        freed_bytes=freed_bytes,
        due=sum(run_after_ms <= now_ms for run_after_ms in due),
        next_due_ms=min([run_after_ms for run_after_ms in due if run_after_ms > now_ms], default=None),
    )
