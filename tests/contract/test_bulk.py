"""retryFailed, deleteJobs: many jobs at an operator's word."""

from __future__ import annotations

import pytest

from pinlater.domain.errors import QueueNotFound
from pinlater.domain.job import JobState
from pinlater.server.storage.commands import (
    CancelJobs,
    DeleteJobs,
    PurgeJobs,
    RequeueFailedJobs,
    TimeOutClaims,
    create_queues,
)
from pinlater.server.storage.values import JobKey, Purge, Requeue
from tests.contract.desk import QUEUE, Desk

STATES = list(JobState)


async def failed_jobs(desk: Desk, number: int, *, priority: int = 1) -> list[JobKey]:
    """FAILED jobs, each finished a second after the one before."""
    keys = []
    for _ in range(number):
        desk.clock.advance(seconds=1)
        keys.append(await desk.put_in(JobState.FAILED, priority=priority))
    return keys


async def test_retried_jobs_wait_again_with_the_attempts_given(desk: Desk) -> None:
    [key] = await failed_jobs(desk, 1)
    desk.clock.advance(seconds=1)

    assert await desk.retry_failed(attempts=4, delay_ms=50) == 1

    job = await desk.look(key)
    assert (job.state, job.attempts_remaining, job.attempts_allowed) == (JobState.PENDING, 4, 2)
    assert job.run_after_ms == desk.now + 50
    assert (job.claim_descriptor, job.finished_at_ms) == (None, None)
    await desk.assert_counters_exact()
    desk.clock.advance(ms=50)
    assert (await desk.take()).job.attempts_remaining == 4


async def test_a_retry_takes_the_oldest_finish_first_up_to_its_limit(desk: Desk) -> None:
    keys = await failed_jobs(desk, 5)

    assert await desk.retry_failed(limit=2) == 2

    assert {row.key.id for row in await desk.scan(JobState.PENDING)} == {keys[0].id, keys[1].id}
    assert await desk.retry_failed(limit=100) == 3
    assert await desk.retry_failed(limit=100) == 0


async def test_a_retry_of_no_jobs_retries_none(desk: Desk) -> None:
    """The original took a limit of 0 for no limit."""
    await failed_jobs(desk, 2)

    assert await desk.retry_failed(limit=0) == 0
    assert (await desk.counts()).failed == 2


async def test_a_retry_touches_only_failed_jobs_of_its_priority_and_queue(desk: Desk) -> None:
    await desk.shard.submit(create_queues(["other"], desk.now))
    await failed_jobs(desk, 1, priority=2)
    for state in (JobState.SUCCEEDED, JobState.IN_PROGRESS, JobState.PENDING):
        await desk.put_in(state, priority=1)

    assert await desk.retry_failed(priority=1) == 0
    assert await desk.retry_failed(queue="other", priority=2) == 0
    assert await desk.retry_failed(priority=2) == 1
    await desk.assert_counters_exact()


async def test_a_cancelled_job_can_be_retried(desk: Desk) -> None:
    key = await desk.put()
    await desk.cancel(key)

    assert await desk.retry_failed() == 1
    assert (await desk.take()).key == key


async def test_a_retry_that_skips_cancelled_jobs_takes_the_failed_ones_behind_them(desk: Desk) -> None:
    """They don't count against its limit, whether they waited or ran when they were cancelled, and stay as they are."""
    waiting = await desk.put()
    await desk.cancel(waiting)
    running = await desk.put()
    await desk.take()
    await desk.cancel(running)
    named_so = await desk.put(status="never cancelled", attempts=1)  # its own word: it failed
    await desk.fail((await desk.take()).key)
    [failed] = await failed_jobs(desk, 1)

    assert await desk.retry_failed(limit=1, skip_cancelled=True) == 1
    assert await desk.retry_failed(limit=2, skip_cancelled=True) == 1

    states = [(await desk.look(key)).state for key in (waiting, running, named_so, failed)]
    assert states == [JobState.FAILED, JobState.FAILED, JobState.PENDING, JobState.PENDING]
    assert (await desk.look(running)).custom_status.endswith("cancelled")
    assert await desk.retry_failed() == 2
    await desk.assert_counters_exact()


async def test_a_retry_that_skips_cancelled_jobs_passes_more_of_them_than_one_call_looks_at(desk: Desk) -> None:
    """An operator cancels a whole queue; what fails later must still be found, by calls that each go on behind the one before."""
    cancelled = [await desk.put() for _ in range(1_300)]
    await desk.shard.submit(CancelJobs(cancelled, desk.now))
    failed = await failed_jobs(desk, 3)
    desk.clock.advance(ms=1)

    assert await desk.retry_failed(limit=1, skip_cancelled=True) == 1
    assert await desk.retry_failed(limit=2, skip_cancelled=True) == 2
    assert [(await desk.look(key)).state for key in failed] == [JobState.PENDING] * 3
    assert await desk.retry_failed(limit=1, skip_cancelled=True) == 0
    await desk.assert_counters_exact()


@pytest.mark.parametrize("state", STATES)
async def test_a_purge_deletes_jobs_of_one_state_and_priority(desk: Desk, state: JobState) -> None:
    for one in STATES[::-1]:
        for priority in (1, 2):
            await desk.put_in(one, priority=priority)

    assert await desk.purge(state, priority=2) == 1

    for one in STATES:
        for priority in (1, 2):
            left = await desk.scan(one, priority=priority)
            assert len(left) == (0 if (one, priority) == (state, 2) else 1)
    await desk.assert_counters_exact()


@pytest.mark.differs("SKIP LOCKED")
async def test_a_purge_takes_the_oldest_up_to_its_limit(desk: Desk) -> None:
    keys = await failed_jobs(desk, 4)

    assert await desk.purge(JobState.FAILED, limit=3) == 3
    assert [row.key.id for row in await desk.scan(JobState.FAILED)] == [keys[3].id]


async def test_a_purge_of_no_jobs_deletes_none(desk: Desk) -> None:
    """The original took a limit of 0 for no limit."""
    for state in STATES[::-1]:
        await desk.put_in(state)

        assert await desk.purge(state, limit=0) == 0
        assert len(await desk.scan(state)) == 1


async def test_a_purge_of_waiting_jobs_takes_future_ones_too(desk: Desk) -> None:
    await desk.insert(desk.job(), desk.job(delay_ms=10_000))

    assert await desk.purge(JobState.PENDING) == 2
    await desk.assert_counters_exact()


async def test_a_purged_job_is_gone_for_its_holder(desk: Desk) -> None:
    held = await desk.put_and_take()

    assert await desk.purge(JobState.IN_PROGRESS) == 1

    assert (await desk.succeed(held.key)).state is None
    assert await desk.find(held.key) is None
    desk.clock.advance(hours=1)
    assert list(await desk.shard.submit(TimeOutClaims(desk.now, 10))) == []
    await desk.assert_counters_exact()


async def test_bulk_work_on_a_missing_queue_is_refused(desk: Desk) -> None:
    assert isinstance(await desk.shard.submit(PurgeJobs(Purge("missing", JobState.FAILED, 1, 1))), QueueNotFound)
    assert isinstance(
        await desk.shard.submit(RequeueFailedJobs(Requeue("missing", 1, 1, 0, 1), desk.now)), QueueNotFound
    )


@pytest.mark.differs("JSON_TABLE")
async def test_named_jobs_are_deleted_in_any_state(desk: Desk) -> None:
    for state in STATES[::-1]:
        key = await desk.put_in(state)
        other = await desk.put_in(state)

        assert await desk.shard.submit(DeleteJobs([key])) == 1

        assert await desk.find(key) is None
        assert await desk.find(other) is not None
        await desk.assert_counters_exact()


@pytest.mark.parametrize("state", STATES)
async def test_only_those_in_the_named_state_are_deleted(desk: Desk, state: JobState) -> None:
    keys = [await desk.put_in(one) for one in STATES[::-1]]

    assert await desk.shard.submit(DeleteJobs(keys, state)) == 1

    left = [job.state for key in keys if (job := await desk.find(key)) is not None]
    assert sorted(left) == [one for one in STATES if one is not state]
    await desk.assert_counters_exact()


async def test_a_deletion_counts_each_job_once_and_unknown_ones_not_at_all(desk: Desk) -> None:
    key = await desk.put()
    keys = [key._replace(id=1), key._replace(priority=2), key._replace(queue="missing"), key, key]

    assert await desk.shard.submit(DeleteJobs(keys)) == 1
    assert await desk.shard.submit(DeleteJobs([])) == 0
    assert (await desk.counts(QUEUE)).pending == 0
