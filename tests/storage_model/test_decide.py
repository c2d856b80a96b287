"""`decide` is the table in `domain/transitions.py`, and changes no record in place."""

from __future__ import annotations

import pytest

from pinlater.domain.job import Holder, JobState
from pinlater.server.storage.decide import (
    cut_bytes,
    decide,
)
from pinlater.server.storage.record import JobRecord
from pinlater.server.storage.values import JobAck, JobKey, NewJob
from tests.storage_model.model import events
from tests.storage_model.model.job import ModelJob

NOW_MS = 5_000
KEY = JobKey("emails", 1, 7)


def job_in(state: JobState, attempts_remaining: int) -> JobRecord:
    held = state is JobState.IN_PROGRESS
    return JobRecord(
        id=KEY.id,
        queue_id=1,
        priority=KEY.priority,
        created_at_ms=1,
        run_after_ms=1,
        updated_at_ms=1,
        attempts_allowed=3,
        attempts_remaining=attempts_remaining,
        state=state,
        claimed_at_ms=10 if held else None,
        deadline_ms=20 if held else None,
        timeout_ms=10 if held else None,
        token="token" if held else None,
    )


@pytest.mark.parametrize(
    ("remaining", "final", "state", "left"),
    [
        (3, False, JobState.PENDING, 2),
        (2, False, JobState.PENDING, 1),
        (1, False, JobState.FAILED, 0),
        (0, False, JobState.FAILED, 0),
        (-5, False, JobState.FAILED, 0),
        (3, True, JobState.FAILED, 0),
    ],
)
def test_a_failure_leaves_one_attempt_fewer_or_a_failed_job(
    remaining: int, final: bool, state: JobState, left: int
) -> None:
    """The model has a rule of its own, with the same results."""
    ack = JobAck(KEY, succeeded=False, final=final)
    change = decide(job_in(JobState.IN_PROGRESS, remaining), ack, NOW_MS)
    assert change is not None
    assert (change.after.state, change.after.attempts_remaining) == (state, left)

    job = ModelJob.of(KEY.queue, NewJob(KEY.id, b"", KEY.priority, 1, remaining), 1)
    events.claim(job, Holder("worker", "source", "token"), 10, 10)
    events.fail(job, ack, NOW_MS)
    assert (job.state, job.attempts_remaining) == (state, left)


def test_error_texts_are_cut_between_characters() -> None:
    assert cut_bytes("ééé", 5) == "éé"
