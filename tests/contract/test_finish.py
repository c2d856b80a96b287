"""Acks: how attempts end."""

from __future__ import annotations

from itertools import product

import pytest

from pinlater.domain.job import PROGRESS_MARK, JobState, Outcome, progress_of
from pinlater.server.storage.commands import FinishJobs, create_queues
from pinlater.server.storage.values import JobAck, JobCheckpoint
from tests.contract.desk import Desk


async def test_a_success_makes_the_job_succeeded(desk: Desk) -> None:
    held = await desk.put_and_take()
    desk.clock.advance(seconds=1)

    acked = await desk.succeed(held.key)

    assert (acked.outcome, acked.state) == (Outcome.APPLIED, JobState.SUCCEEDED)
    job = await desk.look(held.key)
    assert job.state is JobState.SUCCEEDED
    assert job.finished_at_ms == job.updated_at_ms == desk.now
    assert job.attempts_remaining == 2, "a success spends nothing"
    assert job.claim_deadline_ms is None


async def test_a_failure_with_attempts_left_goes_back_after_its_delay(desk: Desk) -> None:
    held = await desk.put_and_take(attempts=3)
    desk.clock.advance(seconds=1)

    acked = await desk.fail(held.key, delay_ms=2500)

    assert (acked.outcome, acked.state, acked.due_at_ms) == (Outcome.APPLIED, JobState.PENDING, desk.now + 2500)
    job = await desk.look(held.key)
    assert (job.state, job.attempts_allowed, job.attempts_remaining) == (JobState.PENDING, 3, 2)
    assert job.run_after_ms == desk.now + 2500
    assert (job.claim_descriptor, job.claim_deadline_ms, job.finished_at_ms) == (None, None, None)


async def test_a_failed_job_is_handed_out_again_with_its_next_attempt(desk: Desk) -> None:
    held = await desk.put_and_take(attempts=3)
    await desk.fail(held.key, delay_ms=100)

    assert await desk.claim() == []
    desk.clock.advance(ms=100)
    again = await desk.take()

    assert again.key == held.key
    assert (again.job.attempt, again.job.attempts_remaining, again.job.attempts_allowed) == (2, 2, 3)


async def test_the_last_failure_makes_the_job_failed_and_keeps_its_last_claim(desk: Desk) -> None:
    held = await desk.put_and_take(attempts=1)
    desk.clock.advance(seconds=1)

    acked = await desk.fail(held.key, delay_ms=5000)

    assert (acked.outcome, acked.state, acked.due_at_ms) == (Outcome.APPLIED, JobState.FAILED, None)
    job = await desk.look(held.key)
    assert (job.state, job.attempts_remaining) == (JobState.FAILED, 0)
    assert job.finished_at_ms == desk.now
    assert job.claim_descriptor == held.holder.descriptor
    assert job.claim_deadline_ms is None


async def test_a_final_failure_fails_the_job_whatever_is_left(desk: Desk) -> None:
    held = await desk.put_and_take(attempts=100)

    acked = await desk.fail(held.key, final=True)

    assert acked.state is JobState.FAILED
    assert (await desk.look(held.key)).attempts_remaining == 0


async def test_acks_append_to_the_custom_status(desk: Desk) -> None:
    """As in the original: appended on MySQL, replaced by the newest on Redis."""
    held = await desk.put_and_take(status="one,")
    await desk.fail(held.key, status="two,")
    await desk.take()
    await desk.succeed(held.key, status="three")

    expected = "three" if desk.shard.capabilities.ack_replaces_status else "one,two,three"
    assert (await desk.look(held.key)).custom_status == expected


async def test_an_ack_without_a_status_leaves_it_or_clears_it(desk: Desk) -> None:
    """It clears the status where the newest replaces the others."""
    held = await desk.put_and_take(status="one")

    await desk.succeed(held.key)

    expected = "" if desk.shard.capabilities.ack_replaces_status else "one"
    assert (await desk.look(held.key)).custom_status == expected


async def test_the_line_of_progress_stays_whatever_an_ack_does_with_the_status(desk: Desk) -> None:
    """It is none of the original's, which replaces a status on Redis."""
    held = await desk.put_and_take(status="one")
    line = f"{PROGRESS_MARK}70 % row 3\n"
    await desk.checkpoint(JobCheckpoint(held.key, "worker", prepend_status=line))
    await desk.fail(held.key, status="two")
    expected = line + ("two" if desk.shard.capabilities.ack_replaces_status else "onetwo")
    assert (await desk.look(held.key)).custom_status == expected
    await desk.take()
    await desk.succeed(held.key)
    assert progress_of((await desk.look(held.key)).custom_status) == "70 % row 3"


async def test_an_appended_status_is_cut_at_the_end(desk: Desk) -> None:
    limit = desk.shard.capabilities.custom_status_chars_max
    held = await desk.put_and_take(status="a" * (limit - 1))

    await desk.succeed(held.key, status="b" * limit + "cd")

    status = (await desk.look(held.key)).custom_status
    assert status == desk.status_rule.after_ack("a" * (limit - 1), "b" * limit + "cd")
    assert len(status) == limit


async def test_without_a_token_any_worker_may_ack_a_job_in_progress(desk: Desk) -> None:
    """Clients of the original have no tokens."""
    for succeeded in (True, False):
        held = await desk.put_and_take(source="a worker")

        acked = await desk.ack(JobAck(held.key, succeeded))

        assert acked.outcome is Outcome.APPLIED


@pytest.mark.differs("collation of a claim token in JSON_TABLE")
async def test_the_holders_token_counts(desk: Desk) -> None:
    for succeeded in (True, False):
        held = await desk.put_and_take()

        acked = await desk.ack(JobAck(held.key, succeeded, token=held.holder.token))

        assert acked.outcome is Outcome.APPLIED


async def test_a_token_of_an_earlier_claim_is_refused_and_the_holder_named(desk: Desk) -> None:
    for succeeded in (True, False):
        zombie = await desk.put_and_take()
        await desk.fail(zombie.key)
        desk.clock.advance(seconds=3)
        current = await desk.take()
        claimed_at = desk.now
        desk.clock.advance(seconds=3)

        acked = await desk.ack(JobAck(zombie.key, succeeded, token=zombie.holder.token, append_status="zombie"))

        assert (acked.outcome, acked.state) == (Outcome.STALE_CLAIM, JobState.IN_PROGRESS)
        assert (acked.holder, acked.held_since_ms) == (current.holder.descriptor, claimed_at)
        job = await desk.look(zombie.key)
        assert job.claim_descriptor == current.holder.descriptor
        assert (job.custom_status, job.attempts_remaining) == ("", 1)


async def test_an_ack_of_a_waiting_job_changes_nothing(desk: Desk) -> None:
    key = await desk.put()
    for succeeded, token in product((True, False), (None, "some token")):
        acked = await desk.ack(JobAck(key, succeeded, token=token, append_status="x"))

        assert (acked.outcome, acked.state) == (Outcome.STALE_CLAIM, JobState.PENDING)
        assert (acked.holder, acked.held_since_ms) == ("", None)
        job = await desk.look(key)
        assert (job.state, job.custom_status, job.attempts_remaining) == (JobState.PENDING, "", 2)


@pytest.mark.parametrize("state", [JobState.SUCCEEDED, JobState.FAILED])
async def test_a_finished_job_stays_as_it_is(desk: Desk, state: JobState) -> None:
    key = await desk.put_in(state)
    before = await desk.look(key)
    desk.clock.advance(seconds=1)
    for succeeded, token in product((True, False), (None, "some token")):
        acked = await desk.ack(JobAck(key, succeeded, token=token, append_status="late", error_text="late"))

        assert (acked.outcome, acked.state) == (Outcome.ALREADY_FINAL, state)
        assert await desk.look(key) == before


async def test_an_unknown_job_is_not_found(desk: Desk) -> None:
    held = await desk.put_and_take()
    await desk.shard.submit(create_queues(["other"], desk.now))
    wrong = [
        held.key._replace(id=held.key.id + 1),
        held.key._replace(priority=2),
        held.key._replace(queue="other"),
        held.key._replace(queue="missing"),
    ]

    acked = await desk.shard.submit(FinishJobs([JobAck(key, succeeded=True) for key in wrong], desk.now))

    assert [(one.outcome, one.state) for one in acked] == [(Outcome.NOT_FOUND, None)] * 4
    assert (await desk.look(held.key)).state is JobState.IN_PROGRESS


@pytest.mark.differs("JSON_TABLE")
async def test_acks_of_one_call_are_answered_in_order(desk: Desk) -> None:
    await desk.insert(*[desk.job(attempts=1) for _ in range(4)])
    held = await desk.claim(3)
    [waiting] = await desk.scan(JobState.PENDING)

    acked = await desk.shard.submit(
        FinishJobs(
            [
                JobAck(held[0].key, succeeded=True),
                JobAck(held[0].key._replace(id=waiting.key.id), succeeded=True),
                JobAck(held[1].key, succeeded=False),
                JobAck(held[0].key._replace(id=1), succeeded=True),
                JobAck(held[2].key, succeeded=True, token="wrong"),
            ],
            desk.now,
        )
    )

    assert [one.outcome for one in acked] == [
        Outcome.APPLIED,
        Outcome.STALE_CLAIM,
        Outcome.APPLIED,
        Outcome.NOT_FOUND,
        Outcome.STALE_CLAIM,
    ]
    await desk.assert_counters_exact()


@pytest.mark.differs("JSON_TABLE")
@pytest.mark.parametrize(
    ("first", "second", "state"),
    [
        (True, True, JobState.SUCCEEDED),
        (True, False, JobState.SUCCEEDED),
        (False, True, JobState.PENDING),
        (False, False, JobState.PENDING),
    ],
)
async def test_of_two_acks_of_one_job_in_a_call_the_first_counts(
    desk: Desk, first: bool, second: bool, state: JobState
) -> None:
    """A lane joins the acks of several callers, and they must come out as if they had come one after the other."""
    held = await desk.put_and_take()

    one, two = await desk.shard.submit(
        FinishJobs([JobAck(held.key, first), JobAck(held.key, second, append_status="x")], desk.now)
    )

    assert one.outcome is Outcome.APPLIED
    assert two.outcome is (Outcome.ALREADY_FINAL if first else Outcome.STALE_CLAIM)
    job = await desk.look(held.key)
    assert (job.state, job.custom_status) == (state, "")
    assert job.attempts_remaining == (2 if first else 1)
    await desk.assert_counters_exact()


async def test_an_ack_of_nothing_does_nothing(desk: Desk) -> None:
    assert list(await desk.shard.submit(FinishJobs([], desk.now))) == []


@pytest.mark.differs("JSON_TABLE")
async def test_a_thousand_acks_in_one_call_are_all_carried_out(desk: Desk) -> None:
    await desk.insert(*[desk.job() for _ in range(1000)])
    held = await desk.claim(1000)

    acked = await desk.shard.submit(FinishJobs([JobAck(one.key, i % 2 == 0) for i, one in enumerate(held)], desk.now))

    assert {one.outcome for one in acked} == {Outcome.APPLIED}
    counts = await desk.counts()
    assert (counts.succeeded, counts.pending) == (500, 500)
    await desk.assert_counters_exact()
