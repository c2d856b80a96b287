"""Fixtures for the tests of failures: a rig on the session's Redis, or on one that may be killed."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.contract.desk import Desk
from tests.databases.redis import RedisServer
from tests.redis.rig import Rig, rig_on


@pytest.fixture
async def rig(redis_server: RedisServer) -> AsyncIterator[Rig]:
    """On the session's Redis, which must be left as it is."""
    async with rig_on(redis_server) as rig:
        yield rig


@pytest.fixture
async def desk(rig: Rig) -> Desk:
    """A desk behind the proxy."""
    return await rig.desk()
