"""A rig on each kind of database server that several servers share."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from tests.contract.desk import Desk
from tests.databases.redis import RedisServer
from tests.mysql.rig import rig_on as mysql_rig_on
from tests.redis.rig import rig_on as redis_rig_on
from tests.shared_shards.rig import ShardRig

# The fixture with the session's server of each kind.
SERVERS = {"mariadb": "mariadb", "mysql8": "mysql8", "redis": "redis_server"}

AnyRig = ShardRig[Any, Any]


def rig_on(server: Any) -> AbstractAsyncContextManager[AnyRig]:
    """A rig on a running server of any kind, with an empty shard."""
    return redis_rig_on(server) if isinstance(server, RedisServer) else mysql_rig_on(server)


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what a test sets."""
    for name in [name for name in os.environ if name.startswith("PINLATER_")]:
        monkeypatch.delenv(name)


@pytest.fixture(params=list(SERVERS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def rig(kind: str, request: pytest.FixtureRequest) -> AsyncIterator[AnyRig]:
    """On the session's server, which a test must leave as it is."""
    async with rig_on(request.getfixturevalue(SERVERS[kind])) as rig:
        yield rig


@pytest.fixture
async def desk(rig: AnyRig) -> Desk:
    """A desk behind the proxy."""
    return await rig.desk()
