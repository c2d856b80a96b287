"""A private Redis with two users: the product's, who may do what the documentation says and nothing more, and an administrator.

redis = start_redis(**WITH_USERS, appendfsync="no")
store = url_of(redis)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import pytest
import redis

from tests.databases.fixtures import start_redis_or_skip
from tests.databases.redis import RedisServer
from tests.databases.servers import DatabaseServers

USER, ADMIN = "pinlater", "default"
# Of both. With what has to be quoted in addresses and shells.
PASSWORD = "pin:later@tests/#1%"
RULES = "~* resetchannels -@all +@read +@write +@scripting +@connection -@dangerous +select +time +info +client|setname"
WITH_USERS: Mapping[str, Any] = {
    "requirepass": PASSWORD,
    "masteruser": ADMIN,
    "masterauth": PASSWORD,
    "user": f"{USER} on >{PASSWORD} {RULES}",
}

_numbers = itertools.count(1)


def url_of(server: RedisServer, place: str = "", *, scheme: str = "redis") -> str:
    """What `--store` is given. `place`: where else than at the server's own address."""
    return f"{scheme}://{USER}:{quote(PASSWORD, safe='')}@{place or f'{server.address}/0'}"


def as_admin(server: RedisServer) -> Any:
    """A client of the administrator's, past whatever the product uses."""
    return redis.Redis(server.host, server.port, username=ADMIN, password=PASSWORD)


@pytest.fixture(scope="session")
def redis_with_users(database_servers: DatabaseServers) -> RedisServer:
    """One for all tests that leave it as it is."""
    return start_redis_or_skip(database_servers, **WITH_USERS, appendonly=False)


@pytest.fixture
def redis_prefix(redis_with_users: RedisServer) -> Iterator[str]:
    """What the names of a test's keys in `redis_with_users` begin with; afterwards they are gone."""
    prefix = f"t{next(_numbers)}"
    yield prefix
    with as_admin(redis_with_users) as client:
        for key in client.scan_iter(match=f"{prefix}{{*", count=1_000):
            client.unlink(key)
