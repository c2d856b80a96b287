"""A job as looked up, from the columns that the relational stores keep alike."""

from __future__ import annotations

import json
from typing import Any

from pinlater.domain.job import Attempt, Job, JobState
from pinlater.storage.options import options_of


def job_of(row: tuple[Any, ...]) -> Job:
    """A job from the columns of a store's `lookup_jobs.sql`."""
    job_id, queue, priority, run_after_ms, allowed, created_ms, options_text = row[:7]
    p_allowed, p_remaining, p_run_after, p_updated, p_status, error_type, error_text, history = row[7:15]
    claimed_ms, deadline_ms, holder, done_state, finished_ms, last_holder, body = row[15:22]
    options = options_of(options_text)
    changed = p_allowed is not None
    updated_ms = p_updated if changed else created_ms
    state = JobState.PENDING
    if claimed_ms is not None:
        state = JobState.IN_PROGRESS
        updated_ms = max(updated_ms, claimed_ms)
    elif done_state is not None:
        state = JobState(done_state)
        updated_ms = finished_ms
    return Job(
        id=job_id,
        queue=queue,
        priority=priority,
        state=state,
        attempts_allowed=p_allowed if changed else allowed,
        attempts_remaining=p_remaining if changed else allowed,
        custom_status=p_status if changed else options.status,
        created_at_ms=created_ms,
        run_after_ms=p_run_after if changed else run_after_ms,
        updated_at_ms=updated_ms,
        claim_descriptor=holder if holder is not None else last_holder,
        claim_deadline_ms=deadline_ms,
        finished_at_ms=finished_ms,
        body=body,
        headers=options.headers,
        unique_key=options.unique.key if options.unique else None,
        error_type=error_type or "",
        error_text=error_text or "",
        attempts=tuple(Attempt._make(attempt) for attempt in json.loads(history)) if changed else (),
    )
