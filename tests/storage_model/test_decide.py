"""`decide` is the table in `domain/transitions.py`, and changes no record in place."""

from __future__ import annotations

import itertools

import pytest

from pinlater.domain.job import Holder, JobState
from pinlater.domain.transitions import TRANSITIONS, Event, transition_of
from pinlater.server.storage.decide import (
    Cancel,
    Expire,
    Happening,
    Heartbeat,
    Release,
    RetryFailed,
    Run,
    TimeOut,
    cut_bytes,
    decide,
    event_of,
)
from pinlater.server.storage.record import JobRecord
from pinlater.server.storage.values import JobAck, JobCheckpoint, JobKey, NewJob
from tests.storage_model.model import events
from tests.storage_model.model.job import ModelJob

NOW_MS = 5_000
KEY = JobKey("emails", 1, 7)
HAPPENINGS: list[Happening] = [
    JobAck(KEY, succeeded=True),
    JobAck(KEY, succeeded=False),
    JobAck(KEY, succeeded=False, final=True),
    Heartbeat(),
    JobCheckpoint(KEY, "worker"),
    JobCheckpoint(KEY, "worker", move_to_pending=True),
    Release(10),
    Cancel(),
    TimeOut(),
    Expire(),
    RetryFailed(2, NOW_MS),
    Run(2, NOW_MS),
]
CASES = list(itertools.product(HAPPENINGS, JobState, (1, 3)))


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


@pytest.mark.parametrize(("happening", "state", "attempts"), CASES)
def test_an_event_does_what_its_row_of_the_table_says_or_nothing(
    happening: Happening, state: JobState, attempts: int
) -> None:
    job = job_in(state, attempts)
    row = transition_of(event_of(job, happening, NOW_MS), state)

    change = decide(job, happening, NOW_MS)

    if row is None:
        assert change is None
        return
    assert change is not None
    assert (change.transition, change.after.state) == (row, row.after)
    if row.spends:
        left = attempts - row.spends if row.after is JobState.PENDING else 0
        assert change.after.attempts_remaining == left
    assert (change.after.token is not None) == (row.after is not JobState.PENDING and state is JobState.IN_PROGRESS)
    assert job == job_in(state, attempts)


def test_every_event_but_a_claim_is_decided_here() -> None:
    """Claims are set-based in every store."""
    events = {event_of(job_in(state, attempts), happening, NOW_MS) for happening, state, attempts in CASES}
    assert events == {row.event for row in TRANSITIONS} - {Event.CLAIM}


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


def test_a_delayed_heartbeat_never_shortens_a_claim() -> None:
    job = job_in(JobState.IN_PROGRESS, 1)
    late = decide(job, Heartbeat(), 5)
    assert late is not None
    assert late.after.deadline_ms == job.deadline_ms


def test_error_texts_are_cut_between_characters() -> None:
    assert cut_bytes("ééé", 5) == "éé"
