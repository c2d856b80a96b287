"""Garbage collection of finished jobs and old keys."""

from __future__ import annotations

import pytest

from pinlater.domain.job import JobState
from pinlater.server.storage.commands import CollectGarbage, InsertJobs, create_queues
from pinlater.server.storage.values import InsertRequest, Swept, TimeToLive
from tests.contract.desk import ALL, QUEUE, Desk


async def test_finished_jobs_are_deleted_after_their_own_times_to_live(desk: Desk) -> None:
    await desk.put()
    await desk.put(attempts=1)
    first, second = await desk.claim(2)
    desk.clock.advance(hours=500)
    await desk.succeed(first.key)
    await desk.fail(second.key)

    assert await desk.collect(succeeded_ms=1000, failed_ms=5000) == (0, 0)
    desk.clock.advance(ms=1001)
    assert await desk.collect(succeeded_ms=1000, failed_ms=5000) == (1, 0)
    assert await desk.find(first.key) is None
    assert await desk.find(second.key) is not None
    desk.clock.advance(ms=4000)
    assert await desk.collect(succeeded_ms=1000, failed_ms=5000) == (0, 1)
    assert await desk.find(second.key) is None
    await desk.assert_counters_exact()


@pytest.mark.parametrize("state", [JobState.PENDING, JobState.IN_PROGRESS])
async def test_unfinished_jobs_are_no_garbage_however_old(desk: Desk, state: JobState) -> None:
    key = await desk.put_in(state)
    desk.clock.advance(hours=10_000)

    assert await desk.collect(succeeded_ms=0, failed_ms=0) == (0, 0)
    assert (await desk.look(key)).state is state


async def test_only_the_named_queues_are_collected(desk: Desk) -> None:
    await desk.shard.submit(create_queues(["other"], desk.now))
    key = await desk.put_in(JobState.SUCCEEDED)
    desk.clock.advance(hours=1000)

    swept = await desk.shard.submit(
        CollectGarbage([TimeToLive("other", 1, 1), TimeToLive("missing", 1, 1)], desk.now, ALL)
    )

    assert sum(one.deleted_succeeded for one in swept) == 0
    assert await desk.find(key) is not None


async def test_a_sweep_says_what_went_by_queue_and_priority(desk: Desk) -> None:
    for priority in (1, 1, 2):
        await desk.put_in(JobState.SUCCEEDED, priority=priority)
    await desk.put_in(JobState.FAILED, priority=2)
    desk.clock.advance(ms=2)

    swept = await desk.shard.submit(CollectGarbage([TimeToLive(QUEUE, 1, 1)], desk.now, ALL))

    assert sorted(swept, key=lambda one: one[:2]) == [
        Swept(QUEUE, 1, deleted_succeeded=2),
        Swept(QUEUE, 2, deleted_succeeded=1, deleted_failed=1),
    ]


async def test_a_sweep_is_bounded_and_gets_there_step_by_step(desk: Desk) -> None:
    for _ in range(6):
        await desk.put_in(JobState.SUCCEEDED)
        await desk.put_in(JobState.FAILED)
    desk.clock.advance(ms=2)

    gone = 0
    for _ in range(50):
        step = sum(await desk.collect(succeeded_ms=1, failed_ms=1, limit=5))
        assert step <= 5
        gone += step

    assert gone == 12
    await desk.assert_counters_exact()


async def test_collected_jobs_leave_the_totals_as_they_were(desk: Desk) -> None:
    """Totals count since the queue was created."""
    await desk.put_in(JobState.SUCCEEDED)
    desk.clock.advance(ms=2)
    await desk.collect(succeeded_ms=1)

    counts = await desk.counts()
    assert (counts.succeeded, counts.succeeded_total, counts.enqueued_total) == (0, 1, 1)


async def test_a_sweep_of_nothing_says_nothing(desk: Desk) -> None:
    assert list(await desk.shard.submit(CollectGarbage([], desk.now, ALL))) == []
    assert await desk.collect() == (0, 0)


async def test_old_keys_that_go_are_counted_and_bounded(desk: Desk) -> None:
    await desk.shard.submit(InsertJobs([InsertRequest(QUEUE, [], f"key {number}") for number in range(5)], desk.now))
    desk.clock.advance(ms=120_001)

    freed = [sum(one.freed for one in await desk.shard.submit(CollectGarbage([], desk.now, 3))) for _ in range(3)]

    assert freed == [3, 2, 0]
