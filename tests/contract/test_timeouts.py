"""Claims whose holder is not heard of any more."""

from __future__ import annotations

import pytest

from pinlater.domain.job import QUARANTINE_MS, QUARANTINED, TASK_HEADER, JobInfo, JobState, Outcome, quarantine_text
from pinlater.server.storage.commands import AdvanceDue, CollectGarbage, ExpireJobs, TimeOutClaims, create_queues
from pinlater.server.storage.values import Swept
from tests.contract.desk import ALL, QUEUE, TIMEOUT_MS, Desk, DeskJob


async def test_a_claim_past_its_deadline_goes_back_with_one_attempt_fewer(desk: Desk) -> None:
    """Its run-after is kept, so it is due at once."""
    held = await desk.put_and_take(attempts=3, delay_ms=-5)
    run_after_ms = desk.now - 5
    desk.clock.advance(ms=TIMEOUT_MS + 1)

    swept = await desk.shard.submit(TimeOutClaims(desk.now, ALL))

    assert list(swept) == [Swept(QUEUE, 1, retried=1, due_at_ms=run_after_ms, ended={held.key.id: held.holder.source})]
    job = await desk.look(held.key)
    assert (job.state, job.attempts_remaining, job.attempts_allowed) == (JobState.PENDING, 2, 3)
    assert (job.run_after_ms, job.claim_descriptor, job.claim_deadline_ms) == (run_after_ms, None, None)
    again = await desk.take()
    assert (again.key, again.job.attempt) == (held.key, 2)
    await desk.assert_counters_exact()


async def test_a_sweep_of_no_rows_changes_nothing(desk: Desk) -> None:
    """A server does it on the shards that another one sweeps."""
    held = await desk.put_and_take()
    expiring = await desk.put(expires_in_ms=1)
    desk.clock.advance(ms=TIMEOUT_MS + 1)

    assert list(await desk.shard.submit(TimeOutClaims(desk.now, 0))) == []
    assert list(await desk.shard.submit(ExpireJobs(desk.now, 0))) == []
    assert list(await desk.shard.submit(CollectGarbage([], desk.now, 0))) == []
    await desk.shard.submit(AdvanceDue(desk.now, 0))

    assert (await desk.look(held.key)).state is JobState.IN_PROGRESS
    assert (await desk.look(expiring)).state is JobState.PENDING


async def test_a_claim_that_was_the_last_fails_the_job_and_stays_to_be_seen(desk: Desk) -> None:
    held = await desk.put_and_take(attempts=1)
    desk.clock.advance(ms=TIMEOUT_MS + 1)

    swept = await desk.shard.submit(TimeOutClaims(desk.now, ALL))
    assert list(swept) == [Swept(QUEUE, 1, failed=1, ended={held.key.id: held.holder.source})]

    job = await desk.look(held.key)
    assert (job.state, job.attempts_remaining, job.finished_at_ms) == (JobState.FAILED, 0, desk.now)
    assert job.claim_descriptor == held.holder.descriptor
    await desk.assert_counters_exact()


async def time_outs(desk: Desk, held: DeskJob, number: int, quarantine_after: int) -> JobInfo:
    """The job after that number of attempts, at most, whose claims time out."""
    for attempt in range(number):
        if attempt:
            found = await desk.claim()
            if not found:
                break
        desk.clock.advance(ms=TIMEOUT_MS + 1)
        await desk.shard.submit(TimeOutClaims(desk.now, ALL, quarantine_after))
    return await desk.look(held.key)


@pytest.mark.parametrize("quarantine_after", [1, 2, 3])
async def test_a_tasks_job_is_given_up_after_its_claims_have_timed_out_in_a_row(
    desk: Desk, quarantine_after: int
) -> None:
    """It may kill its workers. All counts are those of a last attempt."""
    held = await desk.put_and_take(attempts=9, headers={TASK_HEADER: "load"})
    job = await time_outs(desk, held, 9, quarantine_after)
    assert (job.state, job.attempts_remaining, job.finished_at_ms) == (JobState.FAILED, 0, desk.now)
    assert [attempt.outcome for attempt in job.attempts] == ["timed_out"] * quarantine_after
    assert (job.error_type, job.error_text) == (QUARANTINED, quarantine_text(quarantine_after))
    await desk.assert_counters_exact()


@pytest.mark.parametrize(("headers", "quarantine_after"), [(None, 3), ({"x": "y"}, 3), ({TASK_HEADER: "load"}, 0)])
async def test_other_jobs_get_all_their_attempts(
    desk: Desk, headers: dict[str, str] | None, quarantine_after: int
) -> None:
    """A client of the original expects that."""
    held = await desk.put_and_take(attempts=5, headers=headers)
    job = await time_outs(desk, held, 9, quarantine_after)
    assert (job.state, len(job.attempts), job.error_type) == (JobState.FAILED, 5, "")


async def test_an_attempt_that_ends_otherwise_in_between_counts_anew(desk: Desk) -> None:
    held = await desk.put_and_take(attempts=9, headers={TASK_HEADER: "load"})
    await time_outs(desk, held, 2, 3)
    await desk.take()
    await desk.fail(held.key, error=("OSError", "no disk"))
    held = await desk.take()
    job = await time_outs(desk, held, 2, 3)
    assert (job.state, len(job.attempts), job.error_type) == (JobState.PENDING, 5, "OSError")
    job = await time_outs(desk, await desk.take(), 1, 3)
    assert (job.state, len(job.attempts), job.error_type) == (JobState.FAILED, 6, QUARANTINED)


async def test_time_outs_of_another_day_do_not_count(desk: Desk) -> None:
    held = await desk.put_and_take(attempts=9, headers={TASK_HEADER: "load"})
    await time_outs(desk, held, 2, 3)
    desk.clock.advance(ms=QUARANTINE_MS)
    job = await time_outs(desk, await desk.take(), 2, 3)
    assert (job.state, len(job.attempts), job.error_type) == (JobState.PENDING, 4, "")


async def test_a_quarantined_job_that_is_retried_runs_again(desk: Desk) -> None:
    held = await desk.put_and_take(attempts=9, headers={TASK_HEADER: "load"})
    await time_outs(desk, held, 3, 3)
    assert await desk.retry_failed(attempts=5) == 1
    await desk.take()
    await desk.succeed(held.key)
    assert (await desk.look(held.key)).state is JobState.SUCCEEDED
    await desk.assert_counters_exact()


async def test_a_claim_before_its_deadline_is_left_alone(desk: Desk) -> None:
    held = await desk.put_and_take()
    desk.clock.advance(ms=TIMEOUT_MS - 1)

    assert list(await desk.shard.submit(TimeOutClaims(desk.now, ALL))) == []
    assert (await desk.look(held.key)).state is JobState.IN_PROGRESS


@pytest.mark.differs("SKIP LOCKED")
async def test_a_sweep_is_bounded_and_takes_the_longest_overdue_first(desk: Desk) -> None:
    """This spreads the thousand jobs of a dead worker."""
    held = []
    for _ in range(5):
        held.append(await desk.put_and_take())
        desk.clock.advance(ms=10)
    desk.clock.advance(ms=TIMEOUT_MS)

    [swept] = await desk.shard.submit(TimeOutClaims(desk.now, 2))

    assert swept.retried == 2
    assert {row.key.id for row in await desk.scan(JobState.PENDING)} == {held[0].key.id, held[1].key.id}
    assert [sum(one.retried for one in await desk.shard.submit(TimeOutClaims(desk.now, 2))) for _ in range(3)] == [
        2,
        1,
        0,
    ]


@pytest.mark.differs("SKIP LOCKED")
async def test_a_sweep_says_what_it_did_by_queue_and_priority_and_whose_claims_ended(desk: Desk) -> None:
    await desk.shard.submit(create_queues(["other"], desk.now))
    held = [
        await desk.put_and_take(priority=1, delay_ms=-7),
        await desk.put_and_take(priority=1, delay_ms=-9),
        await desk.put_and_take(priority=1, attempts=1, source="other worker"),
        await desk.put_and_take(priority=2, attempts=1),
    ]
    other = await desk.put(queue="other", priority=3)
    await desk.take(queue="other")
    one, two, three, four = [each.key.id for each in held]
    claimed_at = desk.now
    desk.clock.advance(ms=TIMEOUT_MS + 1)

    swept = await desk.shard.submit(TimeOutClaims(desk.now, ALL))

    assert sorted(swept, key=lambda one: one[:2]) == [
        Swept(
            QUEUE,
            1,
            retried=2,
            failed=1,
            due_at_ms=claimed_at - 9,
            ended={one: "worker", two: "worker", three: "other worker"},
        ),
        Swept(QUEUE, 2, failed=1, ended={four: "worker"}),
        Swept("other", 3, retried=1, due_at_ms=claimed_at, ended={other.id: "worker"}),
    ]


async def test_the_ack_of_a_worker_that_was_away_too_long_is_refused(desk: Desk) -> None:
    """With its token: first when no worker has the job, then when another one has it."""
    held = await desk.put_and_take()
    desk.clock.advance(ms=TIMEOUT_MS + 1)
    await desk.shard.submit(TimeOutClaims(desk.now, ALL))

    first = await desk.succeed(held.key, token=held.holder.token)
    again = await desk.take()
    second = await desk.succeed(held.key, token=held.holder.token)

    assert (first.outcome, first.holder) == (Outcome.STALE_CLAIM, "")
    assert (second.outcome, second.holder) == (Outcome.STALE_CLAIM, again.holder.descriptor)
    assert (await desk.look(held.key)).state is JobState.IN_PROGRESS


async def test_a_claim_counts_until_the_sweep_ends_it(desk: Desk) -> None:
    """A worker that is only a little late has done its job."""
    held = await desk.put_and_take()
    desk.clock.advance(ms=TIMEOUT_MS + 1)

    assert (await desk.succeed(held.key, token=held.holder.token)).outcome is Outcome.APPLIED
    assert list(await desk.shard.submit(TimeOutClaims(desk.now, ALL))) == []


async def test_each_claim_has_its_own_deadline(desk: Desk) -> None:
    await desk.put()
    long = await desk.take(timeout_ms=5000)
    await desk.put()
    short = await desk.take(timeout_ms=10)
    own = await desk.put_and_take(claim_timeout_ms=100)

    ended = []
    for step_ms in (11, 100, 5000):
        desk.clock.advance(ms=step_ms)
        await desk.shard.submit(TimeOutClaims(desk.now, ALL))
        for held in (long, short, own):
            if (await desk.look(held.key)).state is JobState.PENDING and held not in ended:
                ended.append(held)

    assert ended == [short, own, long]
