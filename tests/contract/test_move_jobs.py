"""Jobs that get another priority: each stays one job, with all that it had, under another name."""

from __future__ import annotations

import asyncio

import pytest

from pinlater.domain.job import TASK_HEADER, JobInfo, JobState, Outcome, UniqueScope
from pinlater.domain.queue import PriorityCounts
from pinlater.server.storage.commands import AdvanceDue, DeleteJobs, ExpireJobs, ListFailures, MoveJobs, create_queues
from pinlater.server.storage.values import Acked, JobCheckpoint, JobKey, Page
from tests.contract.desk import ALL, QUEUE, Desk, unique

WAITS, FAILED = JobState.PENDING, JobState.FAILED


def moved(key: JobKey, priority: int) -> JobKey:
    return key._replace(priority=priority)


async def counted(desk: Desk, priority: int) -> tuple[int, int, int]:
    """Waiting jobs, the future ones of them, and failed ones."""
    counts = await desk.counts(priority=priority)
    return counts.pending, counts.future, counts.failed


def without_name(job: JobInfo) -> JobInfo:
    """What a move leaves as it was."""
    return job._replace(descriptor="", updated_at_ms=0)


@pytest.mark.parametrize("state", [WAITS, FAILED])
async def test_a_moved_job_keeps_all_but_its_name(desk: Desk, state: JobState) -> None:
    """Its attempts and their errors, its newest body, its last holder and its times, too."""
    key = await desk.put(
        b"\x00body",
        priority=2,
        attempts=3,
        status="new",
        headers={TASK_HEADER: "send"},
        claim_timeout_ms=5_000,
        expires_in_ms=10**9,
        unique=unique("k"),
    )
    held = await desk.take()
    await desk.checkpoint(JobCheckpoint(key, "worker", held.holder.token, b"second", prepend_status="half "))
    await desk.fail(key, delay_ms=7_000, error=("OSError", "no disk"), final=state is FAILED)
    before = await desk.look(key)
    desk.clock.advance(seconds=5)

    answer = await desk.move(key, 3)

    assert answer == Acked(Outcome.APPLIED, state, before.run_after_ms if state is WAITS else None)
    after = await desk.look(moved(key, 3))
    assert without_name(after) == without_name(before)
    assert after.descriptor == moved(key, 3).on(desk.shard.name)
    assert after.updated_at_ms == (desk.now if state is WAITS else before.updated_at_ms)
    assert (after.state, after.body, after.error_type, len(after.attempts)) == (state, b"second", "OSError", 1)
    assert await desk.find(key) is None
    await desk.assert_counters_exact()
    if desk.shard.capabilities.durable:
        await desk.reopen()
    assert await desk.look(moved(key, 3)) == after
    await desk.assert_counters_exact()


async def test_a_job_that_never_changed_keeps_what_it_was_stored_with(desk: Desk) -> None:
    key = await desk.put(b"plain")
    before = await desk.look(key)
    await desk.move(key, 2)
    assert without_name(await desk.look(moved(key, 2))) == without_name(before)
    held = await desk.take()
    assert (held.key, held.job.body, held.job.attempt) == (moved(key, 2), b"plain", 1)
    assert (await desk.succeed(held.key, token=held.holder.token)).outcome is Outcome.APPLIED
    await desk.assert_counters_exact()


async def test_the_old_name_names_nothing_to_any_operation(desk: Desk) -> None:
    key = await desk.put()
    await desk.move(key, 2)
    assert (await desk.cancel(key)).outcome is Outcome.NOT_FOUND
    assert (await desk.run(key)).outcome is Outcome.NOT_FOUND
    assert (await desk.move(key, 3)).outcome is Outcome.NOT_FOUND
    assert await desk.shard.submit(DeleteJobs([key])) == 0
    assert [row.key for row in await desk.scan(WAITS, priority=2)] == [moved(key, 2)]
    assert await desk.scan(WAITS, priority=1) == []


async def test_jobs_are_handed_out_by_their_new_priorities(desk: Desk) -> None:
    """By run-after within a priority, as if they had been enqueued with it."""
    first, second, third = [await desk.put(delay_ms=delay, priority=2) for delay in (-3, -2, -1)]
    assert [held.job.id for held in await desk.claim(0)] == []
    await desk.move(first, 3)
    await desk.move(third, 1)
    held = await desk.claim(5)
    assert [(one.job.id, one.job.priority) for one in held] == [(third.id, 1), (second.id, 2), (first.id, 3)]
    await desk.assert_counters_exact()


async def test_counters_follow_due_future_and_failed_jobs_at_once(desk: Desk) -> None:
    failed, due, future = await desk.put_in(FAILED), await desk.put(), await desk.put(delay_ms=60_000)
    totals = await desk.counts()
    assert await counted(desk, 1) == (2, 1, 1)
    for key in (due, future, failed):
        await desk.move(key, 3)
    assert await counted(desk, 1) == (0, 0, 0)
    assert await counted(desk, 3) == (2, 1, 1)
    await desk.assert_counters_exact()
    after = await desk.counts()
    assert after.enqueued_total == totals.enqueued_total, "totals say what happened under a priority"
    desk.clock.advance(ms=60_000)
    assert await counted(desk, 3) == (2, 0, 1)
    await desk.assert_counters_exact()
    assert {held.job.id for held in await desk.claim(5)} == {due.id, future.id}
    await desk.assert_counters_exact()


async def test_a_future_job_that_moves_is_due_when_it_was(desk: Desk) -> None:
    key = await desk.put(delay_ms=60_000)
    assert (await desk.move(key, 2)).due_at_ms == desk.now + 60_000
    desk.clock.advance(ms=59_999)
    assert await desk.claim() == []
    desk.clock.advance(ms=1)
    await desk.shard.submit(AdvanceDue(desk.now, ALL))
    assert (await desk.take()).key == moved(key, 2)
    await desk.assert_counters_exact()


async def test_a_failed_job_stays_failed_and_is_retried_under_its_new_priority(desk: Desk) -> None:
    key = await desk.put_in(FAILED)
    await desk.move(key, 2)
    assert await desk.retry_failed(priority=1) == 0
    assert await desk.retry_failed(priority=2, attempts=4) == 1
    held = await desk.take()
    assert (held.key, held.job.attempts_remaining) == (moved(key, 2), 4)
    await desk.assert_counters_exact()


async def test_a_moved_failure_is_collected_as_garbage_when_it_is_old_enough(desk: Desk) -> None:
    key = await desk.put_in(FAILED)
    desk.clock.advance(seconds=1)
    assert await desk.collect(failed_ms=10_000) == (0, 0)
    await desk.move(key, 3)
    desk.clock.advance(seconds=10)
    assert await desk.collect(failed_ms=10_000) == (0, 1)
    assert await desk.find(moved(key, 3)) is None
    await desk.assert_counters_exact()


async def test_a_claimed_job_stays_with_its_worker_and_the_answer_names_it(desk: Desk) -> None:
    held = await desk.put_and_take()
    before = await desk.look(held.key)
    answer = await desk.move(held.key, 2)
    assert answer[:2] == (Outcome.STALE_CLAIM, JobState.IN_PROGRESS)
    assert (answer.holder, answer.held_since_ms) == (before.claim_descriptor, desk.now)
    assert await desk.look(held.key) == before
    assert await desk.find(moved(held.key, 2)) is None
    assert (await desk.succeed(held.key, token=held.holder.token)).outcome is Outcome.APPLIED


async def test_a_success_and_a_missing_job_are_told(desk: Desk) -> None:
    done = await desk.put_in(JobState.SUCCEEDED)
    before = await desk.look(done)
    assert (await desk.move(done, 2)).outcome is Outcome.ALREADY_FINAL
    assert await desk.look(done) == before
    for unknown in (JobKey(QUEUE, 1, 999), JobKey("none", 1, done.id), moved(done, 3)):
        assert (await desk.move(unknown, 2)).outcome is Outcome.NOT_FOUND
    assert list(await desk.shard.submit(MoveJobs([], 2, desk.now))) == []
    await desk.assert_counters_exact()


@pytest.mark.parametrize("state", list(JobState))
async def test_a_job_that_has_the_priority_already_stays_as_it_is(desk: Desk, state: JobState) -> None:
    """So a move can be sent again: the job may have gone on since."""
    key = await desk.put()
    await desk.move(key, 2)
    if state is not WAITS:
        held = await desk.take()
        if state is not JobState.IN_PROGRESS:
            await (desk.fail(held.key, final=True) if state is FAILED else desk.succeed(held.key))
    before = await desk.look(moved(key, 2))
    desk.clock.advance(seconds=1)
    for name in (key, moved(key, 2)):
        assert (await desk.move(name, 2))[:2] == (Outcome.APPLIED, state)
    assert await desk.look(moved(key, 2)) == before
    await desk.assert_counters_exact()


async def test_one_call_moves_many_and_each_once(desk: Desk) -> None:
    keys = [await desk.put(priority=1 + number % 3) for number in range(9)]
    await desk.shard.submit(create_queues(["others"], desk.now))
    other = await desk.put(queue="others")
    held = await desk.claim(1)
    answers = await desk.shard.submit(MoveJobs([*keys, other, keys[2], JobKey(QUEUE, 1, 9)], 2, desk.now))
    outcomes = [answer.outcome for answer in answers]
    assert outcomes == [Outcome.STALE_CLAIM] + [Outcome.APPLIED] * 10 + [Outcome.NOT_FOUND]
    assert held[0].key == keys[0]
    assert await counted(desk, 2) == (8, 0, 0)
    assert (await desk.counts("others", 2)).pending == 1
    await desk.assert_counters_exact()
    await desk.assert_counters_exact("others")


async def test_a_job_that_a_call_names_twice_is_found_the_second_time_as_the_first_left_it(desk: Desk) -> None:
    """Also by a name that it gets only with the call."""
    key = await desk.put()
    answers = await desk.shard.submit(MoveJobs([key, moved(key, 2), key], 2, desk.now))
    assert [answer.outcome for answer in answers] == [Outcome.APPLIED] * 3
    answers = await desk.shard.submit(MoveJobs([key, moved(key, 2), key], 1, desk.now))
    assert [answer.outcome for answer in answers] == [Outcome.NOT_FOUND, Outcome.APPLIED, Outcome.APPLIED]
    await desk.assert_counters_exact()


async def test_a_job_moves_there_and_back(desk: Desk) -> None:
    key = await desk.put(b"there and back", expires_in_ms=60_000, unique=unique("k"))
    before = await desk.look(key)
    for priority in (2, 3, 1):
        assert (await desk.move(key, priority)).outcome is Outcome.APPLIED
        key = moved(key, priority)
    assert await desk.look(key) == before
    assert [held.key for held in await desk.claim(5)] == [key]
    await desk.assert_counters_exact()


# --- what goes by the name of a job ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", list(UniqueScope))
async def test_a_moved_job_keeps_its_unique_key_until_it_frees_it(desk: Desk, scope: UniqueScope) -> None:
    about = unique("k", scope, 60_000)
    key = await desk.put(unique=about)
    await desk.move(key, 2)

    again = await desk.insert(desk.job(unique=about))
    assert [tuple(holder) for holder in again.existing.values()] == [(key.id, 2)]

    held = await desk.take()
    await desk.succeed(held.key, token=held.holder.token)
    is_held = scope is UniqueScope.TIME
    assert bool((await desk.insert(desk.job(unique=about))).existing) is is_held
    desk.clock.advance(ms=60_001)
    assert bool((await desk.insert(desk.job(unique=about))).existing) is not is_held
    await desk.assert_counters_exact()


async def test_a_failed_job_that_moves_takes_no_key_from_the_job_that_has_it(desk: Desk) -> None:
    key = await desk.put(unique=unique("k"))
    await desk.fail((await desk.take()).key, final=True)
    holder = await desk.put(unique=unique("k"))
    await desk.move(key, 2)
    assert (await desk.run(moved(key, 2))).outcome is Outcome.ALREADY_FINAL
    again = await desk.insert(desk.job(unique=unique("k")))
    assert [tuple(one) for one in again.existing.values()] == [(holder.id, 1)]


async def test_a_deleted_job_frees_its_key_after_a_move(desk: Desk) -> None:
    key = await desk.put(unique=unique("k"))
    await desk.move(key, 2)
    assert await desk.shard.submit(DeleteJobs([moved(key, 2)])) == 1
    assert (await desk.insert(desk.job(unique=unique("k")))).existing == {}
    await desk.assert_counters_exact()


@pytest.mark.parametrize("by_claim", [False, True])
async def test_a_moved_job_expires(desk: Desk, by_claim: bool) -> None:
    key = await desk.put(expires_in_ms=1_000)
    await desk.move(key, 2)
    desk.clock.advance(ms=1_001)
    if by_claim:
        assert await desk.claim() == []
    else:
        assert [row[:2] for row in await desk.shard.submit(ExpireJobs(desk.now, ALL))] == [(QUEUE, 2)]
    job = await desk.look(moved(key, 2))
    assert (job.state, job.custom_status) == (FAILED, "expired")
    await desk.assert_counters_exact()


async def test_a_group_of_failures_shows_the_job_under_its_new_name(desk: Desk) -> None:
    """And another group, whose newest failure is another job's, shows that."""
    key = await desk.put()
    await desk.fail((await desk.take()).key, error=("OSError", "no disk"), delay_ms=60_000)
    other = await desk.put()
    await desk.fail((await desk.take()).key, error=("ValueError", "no number"), final=True)
    await desk.move(key, 3)
    shown = {
        group.error_type: (group.priority, group.job_id) for group in await desk.shard.submit(ListFailures([QUEUE], 0))
    }
    assert shown == {"OSError": (3, key.id), "ValueError": (1, other.id)}


# --- at once -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.differs("row locks, SKIP LOCKED, and the errors of deadlocks")
async def test_moves_beside_claims_hand_out_each_job_once(desk: Desk) -> None:
    keys = [await desk.put(priority=1 + number % 3) for number in range(60)]
    handed_out: list[int] = []
    refused: list[Outcome] = []

    async def worker() -> None:
        for _ in range(15):
            held = await desk.claim(3)
            handed_out.extend(one.job.id for one in held)
            for one in held:
                assert (await desk.succeed(one.key, token=one.holder.token)).outcome is Outcome.APPLIED

    async def operator(turn: int) -> None:
        for number, key in enumerate(keys):
            name = key
            for priority in ((number + turn) % 3 + 1, (number + turn + 1) % 3 + 1):
                answer = await desk.move(name, priority)
                if answer.outcome is Outcome.APPLIED:
                    name = moved(key, priority)
                else:
                    refused.append(answer.outcome)

    await asyncio.gather(worker(), operator(0), worker(), operator(1), worker())
    handed_out += [one.job.id for one in await desk.claim(60)]
    assert sorted(handed_out) == sorted(key.id for key in keys)
    await desk.assert_counters_exact()


@pytest.mark.differs("row locks, and the errors of deadlocks")
async def test_of_moves_to_different_priorities_at_the_same_moment_the_job_follows_one(desk: Desk) -> None:
    for _ in range(10):
        key = await desk.put(unique=unique("k"))
        answers = await asyncio.gather(*[desk.move(key, priority) for priority in (2, 3, 2, 3)])
        assert {answer.outcome for answer in answers} <= {Outcome.APPLIED, Outcome.NOT_FOUND}
        found = [name for priority in (1, 2, 3) if await desk.find(name := moved(key, priority))]
        assert len(found) == 1
        rows = await desk.page(Page(QUEUE, WAITS, [1, 2, 3], ALL, due_by_ms=desk.now))
        assert [row.key for row in rows] == found
        await desk.assert_counters_exact()
        assert await desk.shard.submit(DeleteJobs(found)) == 1


async def test_a_priority_that_no_job_had_is_counted(desk: Desk) -> None:
    key = await desk.put()
    assert await desk.counts(priority=3) == PriorityCounts(3)
    await desk.move(key, 3)
    assert (await desk.counts(priority=3)).pending == 1
    if desk.shard.capabilities.durable:
        await desk.reopen()
    assert (await desk.counts(priority=3)).pending == 1
    assert (await desk.take()).key == moved(key, 3)
