"""Copies of deleted jobs in Redis: all keys agree, old copies go, and a Redis without memory refuses to bring jobs back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from pinlater.domain.errors import StoreFull
from pinlater.domain.job import JobState
from pinlater.server.storage.commands import DeleteWithCopies, RestoreJobs, TrimSamples
from pinlater.server.storage.redis.shard import RedisShard
from pinlater.server.storage.values import COPIES_STEP_S, CopiesOf, Restored, RestoreOrder
from tests.contract.desk import QUEUE, Desk, unique
from tests.databases.redis import RedisServer
from tests.redis.consistency import keys_of
from tests.redis.proxied_redis import FRONT, ProxiedRedis, proxied

RUN = CopiesOf("0123456789abcdef", 1)


@pytest.fixture
async def own(start_redis: Callable[..., RedisServer]) -> AsyncIterator[ProxiedRedis]:
    """On a Redis of the test's own."""
    async with proxied(start_redis(appendonly=False)) as database:
        yield database


async def restore(desk: Desk, after: str = "", of: CopiesOf = RUN) -> Restored:
    return await desk.shard.submit(RestoreJobs(RestoreOrder(QUEUE, of, after), desk.now))


async def test_all_keys_agree_about_jobs_that_come_back(own: ProxiedRedis) -> None:
    desk = await own.desk()
    keys = {
        state: await desk.put_in(state, unique=unique(state.name), expires_in_ms=10**9)
        for state in list(JobState)[::-1]
    }
    for state, key in keys.items():
        assert (await desk.shard.submit(DeleteWithCopies([key], state, RUN, desk.now))).deleted == 1
        desk.clock.advance(ms=1)
    await own.assert_consistent()

    after: str | None = ""
    while after is not None:
        after = (await restore(desk, after)).after

    assert all([await desk.find(key) for key in keys.values()])
    await own.assert_consistent()


async def test_old_copies_leave_no_key_also_of_a_run_that_was_undone_before_its_first_copy(own: ProxiedRedis) -> None:
    desk = await own.desk()
    key = await desk.put()
    await desk.shard.submit(DeleteWithCopies([key], JobState.PENDING, RUN, desk.now))
    await restore(desk, of=CopiesOf("f" * 16, 1_000))
    assert await desk.shard.submit(TrimSamples(COPIES_STEP_S, desk.now + 1, 100)) == 2
    assert not [name for name in keys_of(own.server) if name.startswith((FRONT + b"b", FRONT + b"l", FRONT + b"cr"))]


@pytest.mark.parametrize("asked", [True, False], ids=["the server refuses", "Redis refuses"])
async def test_without_memory_nothing_comes_back_and_nothing_is_lost(own: ProxiedRedis, asked: bool) -> None:
    desk = await own.desk()
    keys = [await desk.put() for _ in range(3)]
    await desk.shard.submit(DeleteWithCopies(keys, JobState.PENDING, RUN, desk.now))
    shard = desk.shard
    assert isinstance(shard, RedisShard)
    if not asked:
        shard._memory._looked_at = float("inf")
    own.server.execute("CONFIG", "SET", "maxmemory", 1_000)

    with pytest.raises(StoreFull):
        await restore(desk)

    own.server.execute("CONFIG", "SET", "maxmemory", 0)
    assert (await desk.counts()).pending == 0
    assert (await restore(desk)).restored == 3
    await own.assert_consistent()


async def test_without_memory_jobs_are_deleted_with_copies(own: ProxiedRedis) -> None:
    """Bodies that compress free memory in the end."""
    desk = await own.desk(memory_used_max_percent=100)
    key = await desk.put(b"x" * 1_000)
    own.server.execute("CONFIG", "SET", "maxmemory", 1_000)

    assert (await desk.shard.submit(DeleteWithCopies([key], JobState.PENDING, RUN, desk.now))).deleted == 1

    own.server.execute("CONFIG", "SET", "maxmemory", 0)
    assert (await restore(desk)).restored == 1
