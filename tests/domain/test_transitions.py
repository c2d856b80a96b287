"""The table of a job's life: each row happens in a store as it says, and what is not in it does not happen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinlater.domain.job import JobState, Outcome, progress_lines, progress_of, without_progress
from pinlater.domain.transitions import (
    CUSTOM_STATUS_CHARS_MAX,
    REDIS_STATUS,
    TRANSITIONS,
    Event,
    Transition,
    append_status,
    prepend_status,
)
from pinlater.server.storage.commands import ExpireJobs, TimeOutClaims, create_queues
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.server.storage.values import ClaimRef, JobCheckpoint, JobKey
from tests.contract.desk import ALL, QUEUE, TIMEOUT_MS, Desk

LATE_MS = TIMEOUT_MS + 1
LINE_ENDS = ["\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
EXPIRY_MS = TIMEOUT_MS // 2
ATTEMPTS = {Event.FAIL: 1, Event.TIME_OUT_FAIL: 1}
Do = Callable[[Desk, JobKey, str], Awaitable[object]]


async def time_out(desk: Desk, key: JobKey, token: str) -> None:
    desk.clock.advance(ms=LATE_MS)
    await desk.shard.submit(TimeOutClaims(desk.now, ALL))


async def expire(desk: Desk, key: JobKey, token: str) -> None:
    desk.clock.advance(ms=EXPIRY_MS + 1)
    await desk.shard.submit(ExpireJobs(desk.now, ALL))


EVENTS: dict[Event, Do] = {
    Event.CLAIM: lambda desk, key, token: desk.claim(),
    Event.SUCCEED: lambda desk, key, token: desk.succeed(key),
    Event.RETRY: lambda desk, key, token: desk.fail(key),
    Event.FAIL: lambda desk, key, token: desk.fail(key),
    Event.TIME_OUT_RETRY: time_out,
    Event.TIME_OUT_FAIL: time_out,
    Event.HEARTBEAT: lambda desk, key, token: desk.heartbeat(ClaimRef(key, token)),
    Event.CHECKPOINT: lambda desk, key, token: desk.checkpoint(JobCheckpoint(key, "worker")),
    Event.CHECKPOINT_TO_PENDING: lambda desk, key, token: desk.checkpoint(
        JobCheckpoint(key, "worker", move_to_pending=True)
    ),
    Event.RELEASE: lambda desk, key, token: desk.release(ClaimRef(key, token)),
    Event.CANCEL: lambda desk, key, token: desk.cancel(key),
    Event.EXPIRE: expire,
    Event.RETRY_FAILED: lambda desk, key, token: desk.retry_failed(attempts=1),
    Event.RUN: lambda desk, key, token: desk.run(key, delay_ms=5),
}


@pytest.fixture
async def desk() -> Desk:
    desk = Desk(MemoryShard)
    await desk.open()
    await desk.shard.submit(create_queues([QUEUE], desk.now))
    return desk


async def job_in(desk: Desk, state: JobState, event: Event) -> tuple[JobKey, str]:
    """A job to which `event` could happen, brought into `state`, and its last token."""
    expires_in_ms = EXPIRY_MS if event is Event.EXPIRE else None
    key = await desk.put(attempts=ATTEMPTS.get(event, 3), expires_in_ms=expires_in_ms)
    if state is JobState.PENDING:
        return key, ""
    held = await desk.take()
    if state is JobState.SUCCEEDED:
        await desk.succeed(key)
    elif state is JobState.FAILED:
        await desk.fail(key, final=True)
    return key, held.holder.token


@pytest.mark.parametrize("row", TRANSITIONS, ids=lambda row: f"{row.event.name}-{row.before.name}")
async def test_each_row_of_the_table_happens_as_it_says(desk: Desk, row: Transition) -> None:
    key, token = await job_in(desk, row.before, row.event)
    before = await desk.look(key)

    await EVENTS[row.event](desk, key, token)

    after = await desk.look(key)
    assert after.state is row.after
    if row.after is not JobState.FAILED and row.before is not JobState.FAILED:
        assert before.attempts_remaining - after.attempts_remaining == row.spends
    if row.after is JobState.FAILED:
        assert after.attempts_remaining == 0
    assert (after.claim_deadline_ms is not None) == (row.after is JobState.IN_PROGRESS)
    assert (after.finished_at_ms is not None) == (row.after in (JobState.SUCCEEDED, JobState.FAILED))
    await desk.assert_counters_exact()


NOT_IN_THE_TABLE = [
    (event, state)
    for event in Event
    for state in JobState
    if (event, state) not in {(row.event, row.before) for row in TRANSITIONS}
]


@pytest.mark.parametrize(("event", "state"), NOT_IN_THE_TABLE, ids=lambda one: one.name)
async def test_an_event_that_is_not_in_the_table_changes_nothing(desk: Desk, event: Event, state: JobState) -> None:
    key, token = await job_in(desk, state, event)
    before = await desk.look(key)

    result = await EVENTS[event](desk, key, token)

    assert await desk.look(key) == before
    assert getattr(result, "outcome", None) is not Outcome.APPLIED


def test_every_event_has_a_row() -> None:
    assert {row.event for row in TRANSITIONS} == set(Event) == set(EVENTS)


def test_no_event_has_two_ends_for_one_state() -> None:
    assert len({(row.event, row.before) for row in TRANSITIONS}) == len(TRANSITIONS)


def test_a_success_is_never_turned_back() -> None:
    assert all(row.before is not JobState.SUCCEEDED for row in TRANSITIONS)


def test_only_failures_and_time_outs_spend_attempts() -> None:
    spending = {row.event for row in TRANSITIONS if row.spends}
    assert spending == {Event.RETRY, Event.FAIL, Event.TIME_OUT_RETRY, Event.TIME_OUT_FAIL}


class InOnePiece(str):
    """A text that is not to be taken apart."""

    __slots__ = ()

    def splitlines(self, keepends: bool = False) -> list[str]:
        raise AssertionError("each line was looked at")


def test_lines_without_progress_cost_a_checkpoint_nothing() -> None:
    """One request has thousands of checkpoints of a job, and its status may have thousands of lines."""
    other = "\n" * 4_000
    status = InOnePiece(f"[progress] 10 % a\n{other}")
    assert progress_of(status) == "10 % a"
    assert prepend_status(status, "[progress] 20 % b\n") == f"[progress] 20 % b\n{other}"
    assert REDIS_STATUS.after_ack(status, "done") == "[progress] 10 % a\ndone"


@given(st.lists(st.sampled_from(["[progress] ", "[progress]", "a", "é", " ", *LINE_ENDS]), max_size=12).map("".join))
def test_lines_of_progress_are_those_that_begin_with_the_mark(status: str) -> None:
    lines = status.splitlines(keepends=True)
    marked = [line for line in lines if line.startswith("[progress] ")]
    assert progress_lines(status) == "".join(marked)
    assert without_progress(status) == "".join(line for line in lines if line not in marked)
    assert progress_of(status) == (marked[0].removeprefix("[progress] ").splitlines() or [""] if marked else [""])[0]


def test_a_line_of_progress_takes_the_place_of_the_one_before_and_of_nothing_else() -> None:
    status = prepend_status("at enqueue\n", "[progress] 10 % a\n")
    status = prepend_status(status, "by hand\n")
    for step in range(2, 60):
        status = prepend_status(status, f"[progress] {step} % b\n")
    assert status == "[progress] 59 % b\nby hand\nat enqueue\n"


def test_statuses_are_cut_at_the_end() -> None:
    full = "a" * CUSTOM_STATUS_CHARS_MAX
    assert append_status("one", "two") == "onetwo"
    assert prepend_status("one", "two") == "twoone"
    assert append_status(full, "b") == full
    assert prepend_status(full, "b") == "b" + full[:-1]
    assert append_status("☂☂", "☂", chars_max=2) == "☂☂"
