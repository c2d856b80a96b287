"""Redis refuses what it has no memory for before the server has looked how much Redis uses: the test keeps the server from looking."""

from __future__ import annotations

import pytest

from pinlater.domain.errors import StoreFull
from pinlater.server.storage.redis.shard import RedisShard
from tests.redis.proxied_redis import ProxiedRedis
from tests.redis.test_failures_refused import own

__all__ = ["own"]  # a fixture


async def test_an_enqueue_that_redis_itself_refuses_has_stored_nothing(own: ProxiedRedis) -> None:
    desk = await own.desk()
    await desk.put()
    shard = desk.shard
    assert isinstance(shard, RedisShard)
    shard._memory._looked_at = float("inf")
    own.server.execute("CONFIG", "SET", "maxmemory", 1_000)

    with pytest.raises(StoreFull):
        await desk.insert(*[desk.job(priority=priority) for priority in (1, 2, 3)])

    own.server.execute("CONFIG", "SET", "maxmemory", 0)
    assert [(await desk.counts(priority=priority)).pending for priority in (1, 2, 3)] == [1, 0, 0]
    await own.assert_consistent()
