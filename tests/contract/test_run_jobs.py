"""runJobs: jobs that an operator names become due."""

from __future__ import annotations

import pytest

from pinlater.domain.job import JobState, Outcome, UniqueKey, UniqueScope
from pinlater.server.storage.commands import AdvanceDue, RunJobs
from pinlater.server.storage.values import JobKey, RunOrder
from tests.contract.desk import QUEUE, Desk


@pytest.mark.parametrize("delay_ms", [0, 60_000, 3_600_000, 7_200_000])
async def test_a_waiting_job_becomes_due_at_the_time_given_and_keeps_its_attempts(desk: Desk, delay_ms: int) -> None:
    key = await desk.put(delay_ms=3_600_000, attempts=3)
    other = await desk.put(delay_ms=3_600_000)
    result = await desk.run(key, attempts=9, delay_ms=delay_ms)
    assert (result.outcome, result.state, result.due_at_ms) == (
        Outcome.APPLIED,
        JobState.PENDING,
        desk.now + delay_ms,
    )
    job = await desk.look(key)
    assert (job.run_after_ms, job.attempts_allowed, job.attempts_remaining) == (desk.now + delay_ms, 3, 3)
    await desk.assert_counters_exact()
    desk.clock.advance(ms=delay_ms)
    await desk.shard.submit(AdvanceDue(desk.now, 100))
    await desk.assert_counters_exact()
    if delay_ms < 3_600_000:
        assert (await desk.take()).job.id == key.id
    desk.clock.advance(ms=7_200_000)
    left = {held.job.id for held in await desk.claim(10)}
    assert left == ({other.id} if delay_ms < 3_600_000 else {key.id, other.id})
    await desk.assert_counters_exact()


async def test_a_waiting_job_stays_as_it_is_if_only_failed_ones_are_meant(desk: Desk) -> None:
    key = await desk.put(delay_ms=3_600_000, attempts=3)
    before = await desk.look(key)
    failed = await desk.put_in(JobState.FAILED)
    results = await desk.shard.submit(
        RunJobs([RunOrder(each, 9, desk.now, only_failed=True) for each in (key, failed)], desk.now)
    )
    assert [result.outcome for result in results] == [Outcome.ALREADY_FINAL, Outcome.APPLIED]
    assert await desk.look(key) == before
    assert (await desk.look(failed)).attempts_remaining == 9
    await desk.assert_counters_exact()


async def test_a_failed_job_goes_back_with_the_attempts_given_and_without_its_claim(desk: Desk) -> None:
    key = await desk.put_in(JobState.FAILED)
    assert (await desk.run(key, attempts=4)).outcome is Outcome.APPLIED
    job = await desk.look(key)
    assert (job.state, job.attempts_remaining, job.claim_descriptor) == (JobState.PENDING, 4, None)
    assert job.finished_at_ms is None
    await desk.assert_counters_exact()
    assert (await desk.take()).job.id == key.id


async def test_a_claimed_job_stays_with_its_worker_and_the_answer_names_it(desk: Desk) -> None:
    key = await desk.put_in(JobState.IN_PROGRESS)
    before = await desk.look(key)
    result = await desk.run(key)
    assert (result.outcome, result.state, result.holder) == (
        Outcome.STALE_CLAIM,
        JobState.IN_PROGRESS,
        before.claim_descriptor,
    )
    assert await desk.look(key) == before


async def test_a_success_and_a_missing_job_are_told(desk: Desk) -> None:
    done = await desk.put_in(JobState.SUCCEEDED)
    before = await desk.look(done)
    assert (await desk.run(done)).outcome is Outcome.ALREADY_FINAL
    assert await desk.look(done) == before
    assert (await desk.run(JobKey(QUEUE, 1, 999))).outcome is Outcome.NOT_FOUND
    assert (await desk.run(done._replace(priority=2))).outcome is Outcome.NOT_FOUND
    assert list(await desk.shard.submit(RunJobs([], desk.now))) == []


async def test_a_failed_job_runs_again_only_if_no_other_job_holds_its_unique_key(desk: Desk) -> None:
    unique = UniqueKey("k", UniqueScope.UNFINISHED)
    first = await failed_with(desk, unique)
    second = await failed_with(desk, unique)
    orders = [RunOrder(key, 2, desk.now) for key in (first, second, first)]
    outcomes = [answer.outcome for answer in await desk.shard.submit(RunJobs(orders, desk.now))]
    assert outcomes == [Outcome.APPLIED, Outcome.ALREADY_FINAL, Outcome.APPLIED]
    assert (await desk.look(second)).state is JobState.FAILED
    [existing] = (await desk.insert(desk.job(unique=unique))).existing.values()
    assert existing[0] == first.id
    await desk.assert_counters_exact()


@pytest.mark.parametrize("by_retry", [False, True])
@pytest.mark.parametrize("in_hand", [False, True])
async def test_a_cancelled_job_that_waits_again_is_no_longer_called_cancelled(
    desk: Desk, in_hand: bool, by_retry: bool
) -> None:
    """The status is the present one; the cancel of an attempt stays in the history."""
    key = (await desk.put_and_take(status="mine ")).key if in_hand else await desk.put(status="mine ")
    await desk.cancel(key)
    assert (await desk.look(key)).custom_status == "mine cancelled"
    if by_retry:
        assert await desk.retry_failed() == 1
    else:
        await desk.run(key)
    assert (await desk.look(key)).custom_status == "mine "
    held = await desk.take()
    await desk.succeed(held.key, token=held.ref.token)
    job = await desk.look(key)
    assert (job.state, job.custom_status) == (JobState.SUCCEEDED, desk.status_rule.after_ack("mine ", ""))
    assert [attempt.outcome for attempt in job.attempts] == (["cancelled", "succeeded"] if in_hand else [])


async def test_a_failed_job_past_its_expiry_stays_failed(desk: Desk) -> None:
    """It would only fail again. It doesn't take its unique key either, nor does it count against the limit of a retry."""
    expired = await desk.put(expires_in_ms=1000, unique=UniqueKey("k"))
    desk.clock.advance(ms=1001)
    assert await desk.claim() == []
    failed = await desk.put_in(JobState.FAILED)

    assert (await desk.run(expired)).outcome is Outcome.ALREADY_FINAL
    assert await desk.retry_failed(limit=1) == 1

    assert (await desk.look(failed)).state is JobState.PENDING
    job = await desk.look(expired)
    assert (job.state, job.custom_status, job.expires_at_ms) == (JobState.FAILED, "expired", desk.now - 1)
    assert (await desk.insert(desk.job(b"new", unique=UniqueKey("k")))).existing == {}
    await desk.assert_counters_exact()


async def test_a_status_of_the_producer_stays_though_it_ends_like_a_cancel(desk: Desk) -> None:
    """It failed, so no cancel has appended the word."""
    key = (await desk.put_and_take()).key
    await desk.fail(key, final=True, status="order was cancelled")
    await desk.run(key)
    assert (await desk.look(key)).custom_status == "order was cancelled"


async def failed_with(desk: Desk, unique: UniqueKey) -> JobKey:
    key = await desk.put(unique=unique)
    await desk.take()
    await desk.fail(key, final=True)
    return key


async def test_a_word_of_ours_stands_apart_from_the_status_and_goes_with_it(desk: Desk) -> None:
    for status, cancelled in (("queued", "queued; cancelled"), ("one,", "one,cancelled"), ("", "cancelled")):
        key = await desk.put(status=status)
        await desk.cancel(key)
        assert (await desk.look(key)).custom_status == cancelled
        await desk.run(key)
        assert (await desk.look(key)).custom_status == status
