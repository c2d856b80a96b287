"""Rows of the tables that the relational stores keep alike, with a name for each column."""

from __future__ import annotations

from typing import Any, NamedTuple

from pinlater.domain.job import JobState, UniqueKey, UniqueScope
from pinlater.domain.transitions import IN_PROGRESS, PENDING
from pinlater.server.storage.options import NONE, Options, options_of
from pinlater.server.storage.record import JobRecord

STATES = tuple(JobState)
Row = tuple[Any, ...]


class JobRow(NamedTuple):
    """Names the columns of the statement `load_jobs`, in its order; `record_of` reads them.

    `p_`: of `progress`, NULL if the job has no row there.
    """

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


class ClaimRow(NamedTuple):
    """The columns of the statement `load_claims`."""

    id: int
    queue_id: int
    priority: int
    deadline_ms: int
    timeout_ms: int
    flags: int
    token: str


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
        return IN_PROGRESS
    if row.done_state is not None:
        return STATES[row.done_state]
    return PENDING if row.waits else None


def record_of(row: Row) -> JobRecord:
    """The job; fields that never changed since the enqueue have no row in `progress`.

    From a plain row of `load_jobs` (`JobRow`), and by position, because this runs for each job of a call: values by name would take
    longer than all the rest of it.
    """
    (
        job_id,
        queue_id,
        priority,
        run_after_ms,
        attempts_allowed,
        created_at_ms,
        options_text,
        p_id,
        p_attempts_allowed,
        p_attempts_remaining,
        p_attempts_ended,
        p_run_after_ms,
        p_updated_at_ms,
        p_custom_status,
        p_error_type,
        p_error_text,
        p_history,
        claim_id,
        claimed_at_ms,
        deadline_ms,
        timeout_ms,
        claim_flags,
        token,
        source,
        holder,
        done_state,
        finished_at_ms,
        counted_future,
        body_bytes,
    ) = row
    options = NONE if options_text is None else options_of(options_text)
    if p_id is None:
        p_attempts_allowed = p_attempts_remaining = attempts_allowed
        p_run_after_ms, p_updated_at_ms, p_attempts_ended = run_after_ms, created_at_ms, 0
        p_custom_status, p_error_type, p_error_text, p_history = options.status, "", "", "[]"
    state = PENDING
    if claim_id is not None:
        state = IN_PROGRESS
    elif done_state is not None:
        state = STATES[done_state]
    return JobRecord(
        job_id,
        queue_id,
        priority,
        created_at_ms,
        p_run_after_ms,
        p_updated_at_ms,
        p_attempts_allowed,
        p_attempts_remaining,
        options,
        state,
        finished_at_ms,
        p_attempts_ended,
        p_custom_status,
        p_error_type,
        p_error_text,
        p_history,
        claimed_at_ms,
        deadline_ms,
        timeout_ms,
        claim_flags or 0,
        token,
        source,
        holder,
        p_id is not None,
        bool(counted_future),
        body_bytes,
    )


def progress_row(job: JobRecord) -> tuple[object, ...]:
    """Returns the parameters of `save_progress`."""
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
    """Returns the parameters of `insert_done`."""
    return (job.id, job.queue_id, int(job.state), job.priority, job.finished_at_ms, job.holder)


def text_of(name: str | bytes) -> str:
    """Returns a name from a column that is text on one store and bytes on the other."""
    return name if isinstance(name, str) else name.decode()


def key_of_job(options: Options) -> UniqueKey | None:
    """The unique key that ends with the job; a key of scope TIME ends by time alone."""
    unique = options.unique
    return None if unique is None or unique.scope is UniqueScope.TIME else unique
