"""Which Redis servers are taken, what is said of those that don't keep what an answer promises, and what an eviction does."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pinlater.domain.errors import ShardConnectionFailed
from pinlater.server.storage.redis.scripts import names
from pinlater.server.storage.redis.server_requirements import check_server, warnings_of
from pinlater.server.storage.redis.settings import RedisEndpoint
from pinlater.server.storage.redis.shard import RedisShard
from tests.databases.redis import RedisServer
from tests.databases.redis_users import ADMIN, PASSWORD, USER, WITH_USERS, as_admin


class Saying:
    """Readers of a server that says what it is."""

    def __init__(self, **info: str) -> None:
        self._info = "".join(f"{name}:{value}\r\n" for name, value in info.items()).encode()

    async def command(self, *words: Any) -> bytes:
        return self._info


@pytest.mark.parametrize(
    ("version", "refused"),
    [
        ("6.2.0", False),
        ("7.0.15", False),
        ("7.2.4", False),
        ("8.0.0", False),
        ("6.0.16", True),
        ("5.0.14", True),
        ("", False),
    ],
)
async def test_a_redis_that_is_too_old_is_refused(version: str, refused: bool) -> None:
    """Valkey calls itself Redis 7.2.4 here, for compatibility."""
    looking = check_server(Saying(redis_version=version), RedisEndpoint())  # type: ignore[arg-type]
    if refused:
        with pytest.raises(ShardConnectionFailed, match=r"too old: 6\.2") as raised:
            await looking
        assert not raised.value.retryable
    else:
        await looking


async def test_keydb_with_active_replication_is_refused_by_name() -> None:
    """Both nodes take changes, and the later one of a key wins. Without it, KeyDB is as good as Redis."""
    said = {"redis_version": "6.3.4", "mvcc_depth": "0"}
    with pytest.raises(ShardConnectionFailed, match=r"KeyDB with active replication.*handed out twice") as raised:
        await check_server(Saying(**said, role="active-replica"), RedisEndpoint())  # type: ignore[arg-type]
    assert not raised.value.retryable
    for role in ("master", "slave"):
        await check_server(Saying(**said, role=role), RedisEndpoint())  # type: ignore[arg-type]


def test_settings_that_may_lose_jobs_give_a_warning() -> None:
    assert warnings_of({"maxmemory_policy": "noeviction", "aof_enabled": "1"}) == []
    assert warnings_of({"maxmemory_policy": "volatile-lru", "aof_enabled": "1"}) == []
    [eviction] = warnings_of({"maxmemory_policy": "allkeys-lru", "aof_enabled": "1"})
    assert "throws jobs away" in eviction
    [log] = warnings_of({"aof_enabled": "0"})
    assert "appendonly is off" in log


async def test_a_redis_that_evicts_jobs_is_warned_of_at_the_start(
    start_redis: Callable[..., RedisServer], caplog: pytest.LogCaptureFixture
) -> None:
    server = start_redis(maxmemory="50mb", maxmemory_policy="allkeys-lru")
    shard = RedisShard(RedisEndpoint(server.host, server.port))
    with caplog.at_level(logging.WARNING):
        await shard.open(0)
    await shard.close()
    assert "its maxmemory-policy is allkeys-lru" in caplog.text


def test_every_script_is_used() -> None:
    folder = Path(names.__wrapped__.__code__.co_filename).parent
    code = "\n".join(path.read_text() for path in folder.glob("*.py"))
    assert [name for name in names() if f'"{name}"' not in code] == []


async def test_a_right_that_is_missing_is_named(start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis(**WITH_USERS, appendonly=False)
    with as_admin(server) as admin:
        admin.execute_command("ACL", "SETUSER", USER, "-evalsha", "-eval")
    shard = RedisShard(RedisEndpoint(server.host, server.port, USER, PASSWORD))
    with pytest.raises(ShardConnectionFailed, match=r"(?i)no permissions.*eval.*ACL") as raised:
        await shard.open(0)
    assert not raised.value.retryable
    await shard.close()
    assert ADMIN != USER
