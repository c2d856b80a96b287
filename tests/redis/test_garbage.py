"""Garbage that the other stores don't know: by bytes; and that a queue which is made and deleted again and again leaves nothing behind."""

from __future__ import annotations

import pytest

from pinlater.domain.job import JobState
from pinlater.server.storage.commands import CollectGarbage, DeleteQueues, create_queues
from pinlater.server.storage.values import Swept
from tests.contract.desk import ALL, QUEUE, Desk
from tests.redis.consistency import keys_of
from tests.redis.proxied_redis import FRONT, ProxiedRedis

DAY_MS = 86_400_000


async def finished(desk: Desk, count: int, *, priority: int = 1) -> list[int]:
    """Ids of jobs of about 1,000 bytes, each finished a second after the one before."""
    ids = []
    for number in range(count):
        state = JobState.SUCCEEDED if number % 2 else JobState.FAILED
        ids.append((await desk.put_in(state, bytes(979), priority=priority)).id)
        desk.clock.advance(seconds=1)
    return ids


async def kept(desk: Desk) -> set[int]:
    rows = [await desk.scan(state, priority=p) for state in (JobState.SUCCEEDED, JobState.FAILED) for p in (1, 2)]
    return {row.key.id for found in rows for row in found}


async def test_the_oldest_finished_jobs_go_first_once_they_take_too_many_bytes(database: ProxiedRedis) -> None:
    """Over all priorities and both states; those that wait or run don't count."""
    desk = await database.desk(finished_bytes_max=5_000)
    oldest = await finished(desk, 4)
    newer = await finished(desk, 4, priority=2)
    waiting = await desk.put(bytes(20_000))

    swept = await desk.shard.submit(CollectGarbage([], desk.now, ALL))

    assert await kept(desk) == {oldest[3], *newer}
    assert swept == [Swept(QUEUE, 1, deleted_succeeded=1, deleted_failed=2)]
    assert (await desk.look(waiting)).state is JobState.PENDING
    await database.assert_consistent()


async def test_garbage_by_bytes_keeps_to_its_limit_too(database: ProxiedRedis) -> None:
    desk = await database.desk(finished_bytes_max=0)
    await finished(desk, 5)

    steps = []
    for _ in range(4):
        swept = await desk.shard.submit(CollectGarbage([], desk.now, 2))
        steps.append(sum(one.deleted_succeeded + one.deleted_failed for one in swept))

    assert steps == [2, 2, 1, 0]
    assert await kept(desk) == set()
    await database.assert_consistent()


async def test_without_a_bound_time_alone_decides(database: ProxiedRedis, desk: Desk) -> None:
    ids = await finished(desk, 4)
    await desk.collect(succeeded_ms=DAY_MS, failed_ms=DAY_MS)
    assert await kept(desk) == set(ids)


@pytest.mark.parametrize("state", list(JobState))
async def test_a_deleted_queue_leaves_no_key_behind(database: ProxiedRedis, desk: Desk, state: JobState) -> None:
    """Once its rows have been collected."""
    before = set(keys_of(database.server))
    await desk.shard.submit(create_queues(["other"], desk.now))
    await desk.put(queue="other")
    await desk.put_in(state, b"here")
    await desk.shard.submit(DeleteQueues(["other", QUEUE]))

    await desk.collect()

    left = set(keys_of(database.server)) - before
    assert {key.removeprefix(FRONT) for key in left if not key.startswith(FRONT + b"w")} <= {b"top", b"fb", b"an"}
    await database.assert_consistent()
