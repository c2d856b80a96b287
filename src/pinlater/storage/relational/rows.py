"""Rows of the tables that the relational stores keep alike, with a name for each column."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from pinlater.domain.job import JobState, UniqueKey, UniqueScope
from pinlater.storage.options import NONE, Options, options_of
from pinlater.storage.record import JobRecord

STATES = tuple(JobState)


class JobRow(NamedTuple):
    """The columns of the statement `load_jobs`, in its order. `p_`: of `progress`, NULL where the job has no row there."""

    id: int
    queue_id: int
    priority: int
    run_after_ms: int
    attempts_allowed: int
    created_at_ms: int
    options: str | None
    p_id: int | None
    p_attempts_allowed: int
    p_attempts_remaining: int
    p_attempts_ended: int
    p_run_after_ms: int
    p_updated_at_ms: int
    p_custom_status: str
    p_error_type: str
    p_error_text: str
    p_history: str
    claim_id: int | None
    claimed_at_ms: int | None
    deadline_ms: int | None
    timeout_ms: int | None
    claim_flags: int | None
    token: str | None
    source: str | None
    holder: str | None
    done_state: int | None
    finished_at_ms: int | None
    counted_future: int
    body_bytes: int


class StateRow(NamedTuple):
    """The columns of the statement `load_states`: where a job is. In no state: what remains of a deleted job."""

    id: int
    queue_id: int
    priority: int
    run_after_ms: int
    options: str | None
    waits: int
    counted_future: int
    claim_id: int | None
    done_state: int | None


def state_of(row: StateRow) -> JobState | None:
    """None for what remains of a deleted job."""
    if row.claim_id is not None:
        return JobState.IN_PROGRESS
    if row.done_state is not None:
        return STATES[row.done_state]
    return JobState.PENDING if row.waits else None


def record_of(row: JobRow) -> JobRecord:
    """The job; fields that never changed since the enqueue have no row in `progress`."""
    options = NONE if row.options is None else options_of(row.options)
    state = JobState.PENDING
    if row.claim_id is not None:
        state = JobState.IN_PROGRESS
    elif row.done_state is not None:
        state = STATES[row.done_state]
    job = JobRecord(
        id=row.id,
        queue_id=row.queue_id,
        priority=row.priority,
        created_at_ms=row.created_at_ms,
        options=options,
        state=state,
        run_after_ms=row.run_after_ms,
        updated_at_ms=row.created_at_ms,
        finished_at_ms=row.finished_at_ms,
        attempts_allowed=row.attempts_allowed,
        attempts_remaining=row.attempts_allowed,
        custom_status=options.status,
        claimed_at_ms=row.claimed_at_ms,
        deadline_ms=row.deadline_ms,
        timeout_ms=row.timeout_ms,
        flags=row.claim_flags or 0,
        token=row.token,
        source=row.source,
        holder=row.holder,
        counted_future=bool(row.counted_future),
        body_bytes=row.body_bytes,
    )
    return job if row.p_id is None else _changed(job, row)


def _changed(job: JobRecord, row: JobRow) -> JobRecord:
    """With its row in `progress`."""
    return replace(
        job,
        has_progress=True,
        run_after_ms=row.p_run_after_ms,
        updated_at_ms=row.p_updated_at_ms,
        attempts_allowed=row.p_attempts_allowed,
        attempts_remaining=row.p_attempts_remaining,
        attempts_ended=row.p_attempts_ended,
        custom_status=row.p_custom_status,
        error_type=row.p_error_type,
        error_text=row.p_error_text,
        history=row.p_history,
    )


def progress_row(job: JobRecord) -> tuple[object, ...]:
    """For `save_progress`."""
    return (
        job.id,
        job.attempts_allowed,
        job.attempts_remaining,
        job.attempts_ended,
        job.run_after_ms,
        job.updated_at_ms,
        job.custom_status,
        job.error_type,
        job.error_text,
        job.history,
    )


def done_row(job: JobRecord) -> tuple[object, ...]:
    """For `insert_done`."""
    return (job.id, job.queue_id, int(job.state), job.priority, job.finished_at_ms, job.holder)


def key_of_job(options: Options) -> UniqueKey | None:
    """The unique key that ends with the job; a key of scope TIME ends by time alone."""
    unique = options.unique
    return None if unique is None or unique.scope is UniqueScope.TIME else unique
