"""Fixtures for the tests of failures: a database on the session's Redis, or on one that may be killed."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.contract.desk import Desk
from tests.databases.redis import RedisServer
from tests.redis.proxied_redis import ProxiedRedis, proxied


@pytest.fixture
async def database(redis_server: RedisServer) -> AsyncIterator[ProxiedRedis]:
    """On the session's Redis, which must be left as it is."""
    async with proxied(redis_server) as database:
        yield database


@pytest.fixture
async def desk(database: ProxiedRedis) -> Desk:
    """A desk behind the proxy."""
    return await database.desk()
