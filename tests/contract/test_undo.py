"""Jobs that are deleted with copies: they come back as they were, each once, or the answer tells what stands in the way."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pinlater.domain.job import JobState, UniqueScope
from pinlater.server.storage.commands import (
    DeleteQueues,
    DeleteWithCopies,
    ExpireJobs,
    ListSamples,
    RestoreJobs,
    TrimSamples,
    create_queues,
)
from pinlater.server.storage.values import (
    COPIES_STEP_S,
    RESTORED_STEP_S,
    CopiesOf,
    DeletedWithCopies,
    JobCheckpoint,
    JobKey,
    Restored,
    RestoreOrder,
    SampleRange,
)
from pinlater.wire.generated.structs import JobInfo
from tests.contract.desk import QUEUE, TIMEOUT_MS, Desk, unique

STATES = list(JobState)
RUN = CopiesOf("0123456789abcdef", 1_000)


async def delete(
    desk: Desk, *keys: JobKey, state: JobState = JobState.PENDING, of: CopiesOf = RUN
) -> DeletedWithCopies:
    return await desk.shard.submit(DeleteWithCopies(keys, state, of, desk.now))


async def restore(desk: Desk, *, of: CopiesOf = RUN, after: str = "") -> Restored:
    return await desk.shard.submit(RestoreJobs(RestoreOrder(QUEUE, of, after), desk.now))


async def restore_all(desk: Desk, of: CopiesOf = RUN) -> list[Restored]:
    """As the service does it: each call goes on where the one before ended."""
    answers: list[Restored] = []
    after = ""
    while True:
        answer = await restore(desk, of=of, after=after)
        if answer.after is None:
            return answers
        answers.append(answer)
        after = answer.after


def without_claim(job: JobInfo) -> JobInfo:
    """What stays of a job that a worker had."""
    return replace(job, claim_descriptor=None, claim_deadline_ms=None)


@pytest.mark.parametrize("state", [JobState.PENDING, JobState.SUCCEEDED, JobState.FAILED])
async def test_a_job_comes_back_as_it_was(desk: Desk, state: JobState) -> None:
    key = await desk.put_in(
        state,
        b"\x00body",
        priority=2,
        status="new",
        headers={"task": "send"},
        claim_timeout_ms=5_000,
        expires_in_ms=10**9,
        unique=unique("k"),
    )
    before = await desk.look(key)

    assert (await delete(desk, key, state=state))[:2] == (1, 1)
    assert await desk.find(key) is None
    await desk.assert_counters_exact()
    desk.clock.advance(seconds=5)
    [answer] = await restore_all(desk)

    assert answer.restored == 1
    assert await desk.look(key) == before
    await desk.assert_counters_exact()


async def test_attempts_errors_and_the_newest_body_come_back(desk: Desk) -> None:
    held = await desk.put_and_take(b"first", attempts=3)
    await desk.checkpoint(JobCheckpoint(held.key, "worker", held.holder.token, b"second", prepend_status="half"))
    await desk.fail(held.key, error=("OSError", "no disk"), delay_ms=7_000)
    before = await desk.look(held.key)

    await delete(desk, held.key)
    await restore_all(desk)

    assert await desk.look(held.key) == before
    assert (before.body, before.error_type, len(before.attempts or ())) == (b"second", "OSError", 1)
    desk.clock.advance(seconds=7)
    found = (await desk.take()).job
    assert (found.body, found.attempts_remaining, found.attempt) == (b"second", 2, 2)


async def test_a_job_that_a_worker_had_waits_until_its_claim_would_have_ended(desk: Desk) -> None:
    held = await desk.put_and_take()
    before = await desk.look(held.key)

    await delete(desk, held.key, state=JobState.IN_PROGRESS)
    [answer] = await restore_all(desk)

    assert (answer.restored, answer.due, answer.next_due_ms) == (1, 0, desk.now + TIMEOUT_MS)
    after = await desk.look(held.key)
    assert after == replace(without_claim(before), state=JobState.PENDING, run_after_ms=desk.now + TIMEOUT_MS)
    assert await desk.claim() == []
    desk.clock.advance(ms=TIMEOUT_MS)
    assert (await desk.take()).key == held.key
    await desk.assert_counters_exact()


async def test_restored_jobs_are_handed_out_when_they_are_due(desk: Desk) -> None:
    due, later = await desk.put(), await desk.put(delay_ms=9_000)
    assert await desk.claim(0) == []
    await delete(desk, due, later)
    assert await desk.claim() == []

    [answer] = await restore_all(desk)

    assert (answer.restored, answer.due, answer.next_due_ms) == (2, 1, desk.now + 9_000)
    assert [held.key for held in await desk.claim(5)] == [due]
    desk.clock.advance(seconds=9)
    assert [held.key for held in await desk.claim(5)] == [later]


async def test_a_job_that_has_expired_meanwhile_comes_back_and_fails(desk: Desk) -> None:
    key = await desk.put(expires_in_ms=1_000)
    await delete(desk, key)
    desk.clock.advance(seconds=2)

    [answer] = await restore_all(desk)

    assert answer.restored == 1
    await desk.shard.submit(ExpireJobs(desk.now, 100))
    job = await desk.look(key)
    assert (job.state, job.custom_status.endswith("expired")) == (JobState.FAILED, True)


@pytest.mark.parametrize("state", STATES)
async def test_only_jobs_in_the_state_meant_are_deleted(desk: Desk, state: JobState) -> None:
    keys = {one: await desk.put_in(one) for one in STATES[::-1]}

    answer = await delete(desk, *keys.values(), JobKey(QUEUE, 1, 1), JobKey("none", 1, keys[state].id), state=state)

    assert answer[:2] == (6, 1)
    assert answer.copy_bytes > 0
    assert [one for one, key in keys.items() if await desk.find(key) is None] == [state]
    await desk.assert_counters_exact()


async def test_another_priority_or_queue_is_another_job(desk: Desk) -> None:
    await desk.shard.submit(create_queues(["other"], desk.now))
    key = await desk.put(priority=2)

    answer = await delete(desk, key._replace(priority=1), key._replace(queue="other"), key, key)

    assert answer[:2] == (4, 1)


async def test_jobs_are_brought_back_once(desk: Desk) -> None:
    keys = [await desk.put() for _ in range(3)]
    await delete(desk, *keys)

    assert [answer.restored for answer in await restore_all(desk)] == [3]
    assert await restore_all(desk) == []
    assert (await desk.counts()).pending == 3


async def test_each_call_brings_back_what_one_call_deleted(desk: Desk) -> None:
    first, second = await desk.put(), await desk.put()
    await delete(desk, second)
    await delete(desk, first)
    other = await desk.put()
    await delete(desk, other, of=CopiesOf("fedcba9876543210", 1_000))

    assert [answer.restored for answer in await restore_all(desk)] == [1, 1]
    assert await desk.find(other) is None
    assert (await desk.counts()).pending == 2


async def test_what_was_freed_is_what_the_copies_took(desk: Desk) -> None:
    keys = [await desk.put(b"x" * 1_000) for _ in range(10)]
    kept = (await delete(desk, *keys)).copy_bytes

    [answer] = await restore_all(desk)

    assert answer.freed_bytes == kept
    assert 0 < kept < 5_000


async def test_large_bodies_are_deleted_in_several_calls(desk: Desk) -> None:
    bodies = [bytes([number]) * 700_000 for number in range(3)]
    keys = [await desk.put(body) for body in bodies]

    rest = keys
    while rest:
        answer = await delete(desk, *rest)
        assert (answer.handled, answer.deleted) == (1, 1)
        rest = rest[answer.handled :]
        desk.clock.advance(ms=1)

    assert [answer.restored for answer in await restore_all(desk)] == [1, 1, 1]
    assert [(await desk.look(key)).body for key in keys] == bodies


async def test_a_job_whose_key_another_has_by_now_keeps_its_copy(desk: Desk) -> None:
    mine, free = await desk.put(unique=unique("taken")), await desk.put(unique=unique("free"))
    await delete(desk, mine, free)
    other = await desk.put(unique=unique("taken"))

    [answer] = await restore_all(desk)

    assert (answer.restored, answer.key_taken) == (1, 1)
    assert await desk.find(mine) is None
    [again] = await restore_all(desk)
    assert (again.restored, again.key_taken, again.freed_bytes) == (0, 1, 0)
    await desk.succeed((await desk.take()).key)
    await desk.succeed((await desk.take()).key)
    assert await desk.find(other) is not None
    [last] = await restore_all(desk)
    assert (last.restored, last.key_taken) == (1, 0)
    await desk.assert_counters_exact()


@pytest.mark.parametrize("scope", [UniqueScope.PENDING, UniqueScope.UNFINISHED])
async def test_a_restored_job_has_its_key_again(desk: Desk, scope: UniqueScope) -> None:
    job = desk.job(unique=unique("k", scope))
    await desk.insert(job)
    key = JobKey(QUEUE, 1, job.id)
    await delete(desk, key)
    await restore_all(desk)

    inserted = await desk.insert(desk.job(unique=unique("k", scope)))

    assert [held.job_id for held in inserted.existing.values()] == [job.id]


async def test_a_finished_job_needs_no_key(desk: Desk) -> None:
    key = await desk.put_in(JobState.FAILED, unique=unique("k"))
    await delete(desk, key, state=JobState.FAILED)
    await desk.put(unique=unique("k"))

    [answer] = await restore_all(desk)

    assert (answer.restored, answer.key_taken) == (1, 0)


async def test_a_key_for_a_time_stays_as_it_is(desk: Desk) -> None:
    key = await desk.put(unique=unique("k", UniqueScope.TIME, for_ms=5_000))
    await delete(desk, key)
    desk.clock.advance(seconds=6)
    await desk.put(unique=unique("k", UniqueScope.TIME, for_ms=5_000))

    [answer] = await restore_all(desk)

    assert (answer.restored, answer.key_taken) == (1, 0)


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "made again"])
async def test_jobs_of_a_deleted_queue_stay_away(desk: Desk, again: bool) -> None:
    key = await desk.put()
    await delete(desk, key)
    await desk.shard.submit(DeleteQueues([QUEUE]))
    if again:
        await desk.shard.submit(create_queues([QUEUE], desk.now))

    [answer] = await restore_all(desk)

    assert (answer.restored, answer.queue_gone) == (0, 1)
    assert await desk.find(key) is None


async def test_nothing_is_deleted_for_a_run_that_was_undone(desk: Desk) -> None:
    """Its server stood still meanwhile: it would delete again what has just come back."""
    first, second = await desk.put(), await desk.put()
    await delete(desk, first)
    await restore_all(desk)

    assert (await delete(desk, first, second))[:2] == (2, 0)
    assert (await desk.counts()).pending == 2
    assert (await delete(desk, second, of=CopiesOf("fedcba9876543210", 1_000))).deleted == 1


async def test_a_run_without_copies_can_be_undone(desk: Desk) -> None:
    key = await desk.put()

    assert await restore_all(desk) == []
    assert (await delete(desk, key)).deleted == 0


async def test_no_jobs_need_no_copies(desk: Desk) -> None:
    assert await delete(desk) == DeletedWithCopies(0)
    assert await delete(desk, JobKey(QUEUE, 1, 1)) == DeletedWithCopies(1)


async def test_copies_outlive_a_restart(desk: Desk) -> None:
    if not desk.shard.capabilities.durable:
        pytest.skip("nothing does there")
    failed, waiting = await desk.put_in(JobState.FAILED), await desk.put()
    await delete(desk, waiting)
    await delete(desk, failed, state=JobState.FAILED)

    await desk.reopen()

    assert sum(answer.restored for answer in await restore_all(desk)) == 2
    await desk.assert_counters_exact()


async def test_restored_jobs_are_retried_finished_and_forgotten_as_others(desk: Desk) -> None:
    failed, done = await desk.put_in(JobState.FAILED), await desk.put_in(JobState.SUCCEEDED)
    await delete(desk, failed, state=JobState.FAILED)
    await delete(desk, done, state=JobState.SUCCEEDED)
    await restore_all(desk)

    assert await desk.retry_failed() == 1
    await desk.succeed((await desk.take()).key)
    desk.clock.advance(seconds=7_200)
    assert await desk.collect() == (2, 0)
    await desk.assert_counters_exact()


async def test_old_copies_are_forgotten(desk: Desk) -> None:
    key = await desk.put()
    await delete(desk, key)

    assert await desk.shard.submit(TrimSamples(COPIES_STEP_S, desk.now, 100)) == 0
    assert await desk.shard.submit(TrimSamples(COPIES_STEP_S, desk.now + 1, 100)) == 1
    assert await restore_all(desk) == []
    if desk.shard.capabilities.kind != "redis":
        assert await desk.shard.submit(ListSamples([SampleRange(RESTORED_STEP_S, 0, 10**15, [RUN.run])]))
