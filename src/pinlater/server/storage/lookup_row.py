"""A job as looked up, from the columns that all stores of rows have."""

from __future__ import annotations

import json
from typing import NamedTuple

from pinlater.domain.job import JobState, progress_of
from pinlater.server.storage.options import options_of
from pinlater.server.storage.values import JobKey
from pinlater.wire.generated.structs import Attempt, JobInfo


class LookupRow(NamedTuple):
    """The columns of the statement `lookup_jobs`, in its order. `p_`: of the job's progress, None if it never changed."""

    id: int
    queue: str
    priority: int
    run_after_ms: int
    attempts_allowed: int
    created_at_ms: int
    options: str | None
    p_attempts_allowed: int | None = None
    p_attempts_remaining: int = 0
    p_run_after_ms: int = 0
    p_updated_at_ms: int = 0
    p_custom_status: str = ""
    p_error_type: str = ""
    p_error_text: str = ""
    p_history: str = "[]"
    claimed_at_ms: int | None = None
    deadline_ms: int | None = None
    holder: str | None = None
    done_state: int | None = None
    finished_at_ms: int | None = None
    last_holder: str | None = None
    body: bytes | None = None
    waits: int = 1

    @property
    def key(self) -> JobKey:
        return JobKey(self.queue, self.priority, self.id)

    @property
    def state(self) -> JobState:
        if self.claimed_at_ms is not None:
            return JobState.IN_PROGRESS
        return JobState.PENDING if self.done_state is None else JobState(self.done_state)

    @property
    def updated_at_ms(self) -> int:
        """The job's last change; a claim is one."""
        if self.finished_at_ms is not None:
            return self.finished_at_ms
        changed_ms = self.created_at_ms if self.p_attempts_allowed is None else self.p_updated_at_ms
        return changed_ms if self.claimed_at_ms is None else max(changed_ms, self.claimed_at_ms)


def job_of(row: LookupRow, shard: str) -> JobInfo:
    """The job as callers see it. `shard`: the name of the shard that has the row."""
    options = options_of(row.options)
    changed = row.p_attempts_allowed is not None
    custom_status = row.p_custom_status if changed else options.status
    return JobInfo(
        descriptor=row.key.on(shard),
        state=row.state,
        attempts_allowed=row.attempts_allowed if row.p_attempts_allowed is None else row.p_attempts_allowed,
        attempts_remaining=row.p_attempts_remaining if changed else row.attempts_allowed,
        custom_status=custom_status,
        created_at_ms=row.created_at_ms,
        run_after_ms=row.p_run_after_ms if changed else row.run_after_ms,
        updated_at_ms=row.updated_at_ms,
        claim_descriptor=row.last_holder if row.holder is None else row.holder,
        claim_deadline_ms=row.deadline_ms,
        finished_at_ms=row.finished_at_ms,
        body=row.body,
        headers=options.headers or None,
        unique_key=options.unique.key if options.unique else None,
        expires_at_ms=options.expires_ms,
        error_type=row.p_error_type or None,
        error_text=row.p_error_text or None,
        attempts=[_attempt(*attempt) for attempt in json.loads(row.p_history)] or None if changed else None,
        progress=progress_of(custom_status) or None,
    )


def _attempt(
    number: int,
    claimed_by: str,
    claimed_at_ms: int,
    ended_at_ms: int,
    outcome: str,
    error_type: str = "",
    error_text: str = "",
) -> Attempt:
    """An attempt as it is stored, in the order of `domain.job.Attempt`."""
    return Attempt(number, claimed_by, claimed_at_ms, ended_at_ms, outcome, error_type or None, error_text or None)
