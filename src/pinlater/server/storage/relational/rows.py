"""Rows of the tables that are the same in all relational stores, with a name for each column."""

from __future__ import annotations

from typing import Any, NamedTuple

from pinlater.domain.job import JobState, UniqueKey, UniqueScope
from pinlater.domain.transitions import IN_PROGRESS, PENDING
from pinlater.server.storage.options import Options
from pinlater.server.storage.record import JobRecord, progress_of

STATES = tuple(JobState)
Row = tuple[Any, ...]


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
    """The columns of the statement `load_states`: the state of a job. In no state: the rest of a deleted job."""

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
    """Returns the state of the job, or None for the rest of a deleted one."""
    if row.claim_id is not None:
        return IN_PROGRESS
    if row.done_state is not None:
        return STATES[row.done_state]
    return PENDING if row.waits else None


def progress_row(job: JobRecord) -> tuple[object, ...]:
    """Returns the parameters of `save_progress`."""
    return (job.id, *progress_of(job))


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
