"""Checkpoints: progress saved by the holder of the job."""

from __future__ import annotations

import pytest

from pinlater.domain.job import JobState, Outcome
from pinlater.server.storage.commands import CheckpointJobs, TimeOutClaims
from pinlater.server.storage.values import JobCheckpoint, raise_error
from tests.contract.desk import TIMEOUT_MS, Desk


async def test_a_checkpoint_renews_the_claim_and_sets_run_after_to_now(desk: Desk) -> None:
    held = await desk.put_and_take(b"old", attempts=3, status="s")
    desk.clock.advance(seconds=30)

    saved = await desk.checkpoint(JobCheckpoint(held.key, "worker"))

    assert (saved.outcome, saved.state) == (Outcome.APPLIED, JobState.IN_PROGRESS)
    assert saved.deadline_ms == desk.now + TIMEOUT_MS
    job = await desk.look(held.key)
    assert (job.state, job.claim_deadline_ms, job.run_after_ms) == (
        JobState.IN_PROGRESS,
        desk.now + TIMEOUT_MS,
        desk.now,
    )
    assert (job.body, job.custom_status) == (b"old", "s")
    assert (job.attempts_allowed, job.attempts_remaining) == (3, 3)
    assert job.claim_descriptor == held.holder.descriptor
    assert job.updated_at_ms == desk.now


async def test_a_checkpoint_may_change_body_attempts_status_and_run_after(desk: Desk) -> None:
    held = await desk.put_and_take(b"old", status="s")
    await desk.fail(held.key)
    held = await desk.take()

    await desk.checkpoint(
        JobCheckpoint(
            held.key,
            "worker",
            new_body=b"new",
            run_after_ms=desk.now + 99,
            attempts_allowed=9,
            prepend_status="before ",
        )
    )

    job = await desk.look(held.key)
    kept = desk.status_rule.after_ack("s", "")
    assert (job.body, job.run_after_ms, job.custom_status) == (b"new", desk.now + 99, "before " + kept)
    assert (job.attempts_allowed, job.attempts_remaining) == (9, 9)


async def test_an_empty_body_is_a_body(desk: Desk) -> None:
    held = await desk.put_and_take(b"old")
    await desk.checkpoint(JobCheckpoint(held.key, "worker", new_body=b""))

    assert (await desk.look(held.key)).body == b""


async def test_the_next_holder_gets_the_saved_body(desk: Desk) -> None:
    held = await desk.put_and_take(b"old")
    await desk.checkpoint(JobCheckpoint(held.key, "worker", new_body=b"half done"))
    await desk.fail(held.key)

    assert (await desk.take()).job.body == b"half done"


async def test_a_prepended_status_is_cut_at_the_end(desk: Desk) -> None:
    limit = desk.shard.capabilities.custom_status_chars_max
    held = await desk.put_and_take(status="a" * limit)
    await desk.checkpoint(JobCheckpoint(held.key, "worker", prepend_status="b"))

    assert (await desk.look(held.key)).custom_status == "b" + "a" * (limit - 1)


async def test_a_checkpoint_may_put_the_job_back(desk: Desk) -> None:
    held = await desk.put_and_take(b"old")

    saved = await desk.checkpoint(
        JobCheckpoint(held.key, "worker", new_body=b"new", move_to_pending=True, run_after_ms=desk.now + 10)
    )

    assert (saved.outcome, saved.state, saved.due_at_ms) == (Outcome.APPLIED, JobState.PENDING, desk.now + 10)
    assert saved.deadline_ms is None
    job = await desk.look(held.key)
    assert (job.state, job.body, job.attempts_remaining) == (JobState.PENDING, b"new", 2)
    assert (job.claim_descriptor, job.claim_deadline_ms) == (None, None)
    assert await desk.claim() == []
    desk.clock.advance(ms=10)
    again = await desk.take()
    assert (again.key, again.job.attempt) == (held.key, 1)
    await desk.assert_counters_exact()


async def test_a_job_put_back_without_a_time_is_due_at_once(desk: Desk) -> None:
    held = await desk.put_and_take()
    desk.clock.advance(seconds=1)
    saved = await desk.checkpoint(JobCheckpoint(held.key, "worker", move_to_pending=True))

    assert saved.due_at_ms == desk.now
    assert (await desk.take()).key == held.key


async def test_another_source_is_refused(desk: Desk) -> None:
    held = await desk.put_and_take(b"old", source="worker")
    for source in ("", "work", "worker2", "WORKER", "host:9010:0:worker:1", "%", "wor%er", "w_rker"):
        saved = await desk.checkpoint(JobCheckpoint(held.key, source, new_body=b"stolen"))

        assert (saved.outcome, saved.holder) == (Outcome.STALE_CLAIM, held.holder.descriptor)
        assert saved.held_since_ms == desk.now
        assert (await desk.look(held.key)).body == b"old"


async def test_any_source_may_hold_and_checkpoint(desk: Desk) -> None:
    for source in ("", "a:b", "x:9010:0:worker:7", "naïve source ☂"):
        held = await desk.put_and_take(source=source)

        assert (await desk.checkpoint(JobCheckpoint(held.key, source))).outcome is Outcome.APPLIED


async def test_a_token_goes_before_the_source(desk: Desk) -> None:
    """With a token the source doesn't matter, and only the claim's own token counts, even from the same source."""
    held = await desk.put_and_take(source="worker")

    wrong = await desk.checkpoint(JobCheckpoint(held.key, "worker", token="another"))
    right = await desk.checkpoint(JobCheckpoint(held.key, "elsewhere", token=held.holder.token))

    assert wrong.outcome is Outcome.STALE_CLAIM
    assert right.outcome is Outcome.APPLIED


@pytest.mark.parametrize("state", [JobState.PENDING, JobState.SUCCEEDED, JobState.FAILED])
async def test_a_checkpoint_never_revives_a_job_that_is_not_in_hand(desk: Desk, state: JobState) -> None:
    """The original's Redis store did."""
    key = await desk.put_in(state)
    before = await desk.look(key)
    desk.clock.advance(seconds=1)

    saved = await desk.checkpoint(JobCheckpoint(key, "worker", new_body=b"x", move_to_pending=True, prepend_status="x"))

    assert saved.outcome is (Outcome.STALE_CLAIM if state is JobState.PENDING else Outcome.ALREADY_FINAL)
    assert saved.state is state
    assert await desk.look(key) == before


async def test_a_checkpoint_of_an_unknown_job_is_not_found(desk: Desk) -> None:
    """Wrong id, wrong priority, wrong queue."""
    held = await desk.put_and_take()
    wrong = [held.key._replace(id=1), held.key._replace(priority=3), held.key._replace(queue="missing")]

    saved = await desk.shard.submit(CheckpointJobs([JobCheckpoint(key, "worker") for key in wrong], desk.now))

    assert [raise_error(one).outcome for one in saved] == [Outcome.NOT_FOUND] * 3


async def test_checkpoints_of_one_call_take_effect_in_order(desk: Desk) -> None:
    held = await desk.put_and_take()

    first, second, third = await desk.shard.submit(
        CheckpointJobs(
            [
                JobCheckpoint(held.key, "worker", new_body=b"1", prepend_status="a"),
                JobCheckpoint(held.key, "worker", new_body=b"2", prepend_status="b", move_to_pending=True),
                JobCheckpoint(held.key, "worker", new_body=b"3", prepend_status="c"),
            ],
            desk.now,
        )
    )

    outcomes = [raise_error(one).outcome for one in (first, second, third)]
    assert outcomes == [Outcome.APPLIED, Outcome.APPLIED, Outcome.STALE_CLAIM]
    job = await desk.look(held.key)
    assert (job.state, job.body, job.custom_status) == (JobState.PENDING, b"2", "ba")
    assert list(await desk.shard.submit(CheckpointJobs([], desk.now))) == []


async def test_checkpointed_jobs_time_out_later_but_still_do(desk: Desk) -> None:
    """The run-after that the checkpoint set is kept."""
    held = await desk.put_and_take()
    desk.clock.advance(ms=TIMEOUT_MS)
    await desk.checkpoint(JobCheckpoint(held.key, "worker", run_after_ms=desk.now - 5))
    saved_at = desk.now

    desk.clock.advance(ms=TIMEOUT_MS - 1)
    assert list(await desk.shard.submit(TimeOutClaims(desk.now, 10))) == []
    desk.clock.advance(ms=10)
    [swept] = await desk.shard.submit(TimeOutClaims(desk.now, 10))

    assert swept.retried == 1
    assert (await desk.look(held.key)).run_after_ms == saved_at - 5
