"""Which Redis servers are taken, what is said of those that don't keep what an answer promises, and what an eviction does."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pinlater.domain.errors import PinLaterError, ShardConnectionFailed
from pinlater.storage.interface import Inserted, InsertRequest
from pinlater.storage.redis.fitness import check_server, warnings_of
from pinlater.storage.redis.scripts import names
from pinlater.storage.redis.settings import RedisEndpoint
from pinlater.storage.redis.shard import RedisShard
from tests.contract.desk import ALL, QUEUE, Desk
from tests.redis.rig import rig_on, stats_of
from tests.servers.redis import RedisServer
from tests.servers.redis_users import ADMIN, PASSWORD, USER, WITH_USERS, as_admin


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
    """Valkey calls itself Redis 7.2.4 here, for those who ask so."""
    looking = check_server(Saying(redis_version=version), RedisEndpoint())  # type: ignore[arg-type]
    if refused:
        with pytest.raises(ShardConnectionFailed, match=r"too old: 6\.2") as raised:
            await looking
        assert not raised.value.retryable
    else:
        await looking


def test_settings_that_may_lose_jobs_give_a_warning() -> None:
    assert warnings_of({"maxmemory_policy": "noeviction", "aof_enabled": "1"}) == []
    assert warnings_of({"maxmemory_policy": "volatile-lru", "aof_enabled": "1"}) == []
    [eviction] = warnings_of({"maxmemory_policy": "allkeys-lru", "aof_enabled": "1"})
    assert "throws jobs away" in eviction
    [log] = warnings_of({"aof_enabled": "0"})
    assert "appendonly is off" in log


def test_every_script_is_used() -> None:
    """And none is called that isn't there."""
    folder = Path(names.__wrapped__.__code__.co_filename).parent
    code = "\n".join(path.read_text() for path in folder.glob("*.py"))
    assert [name for name in names() if f'"{name}"' not in code] == []


async def test_a_right_that_is_missing_is_named(start_redis: Callable[..., RedisServer]) -> None:
    """So that who set up the user knows what to add."""
    server = start_redis(**WITH_USERS, appendonly=False)
    with as_admin(server) as admin:
        admin.execute_command("ACL", "SETUSER", USER, "-evalsha", "-eval")
    shard = RedisShard(RedisEndpoint(server.host, server.port, USER, PASSWORD))
    with pytest.raises(ShardConnectionFailed, match=r"(?i)no permissions.*eval.*ACL") as raised:
        await shard.open(0)
    assert not raised.value.retryable
    await shard.close()
    assert ADMIN != USER


async def test_where_redis_throws_jobs_away_the_others_are_done_and_nothing_wedges(
    start_redis: Callable[..., RedisServer], caplog: pytest.LogCaptureFixture
) -> None:
    """`allkeys-random`, against which we warn: of any keys, indexes and our own books among them."""
    server = start_redis(appendonly=False, maxmemory="4mb", maxmemory_policy="allkeys-random", maxmemory_samples=10)
    async with rig_on(server) as rig:
        desk = await rig.desk(memory_used_max_percent=100)
        assert "throws jobs away" in caplog.text
        stored = 0
        for turn in range(60):
            if turn % 20 == 19:
                await look_after(desk)
            # It may be a server's own books that went in this moment: what it does then may fail, until it has looked after them.
            with contextlib.suppress(PinLaterError):
                inserted = await desk.request(InsertRequest(QUEUE, [desk.job(bytes(4_000)) for _ in range(25)]))
                stored += len(inserted.ids) if isinstance(inserted, Inserted) else 0
        assert server.execute("INFO", "stats")["evicted_keys"] > 50
        server.execute("CONFIG", "SET", "maxmemory", 0)

        await look_after(desk)
        await desk.reopen()
        await look_after(desk)
        lost = stats_of(desk).jobs_lost
        done = 0
        while claimed := await desk.claim(100):
            for held in claimed:
                await desk.succeed(held.key, token=held.holder.token)
            done += len(claimed)
        assert 0 < done < stored
        assert lost + stats_of(desk).jobs_lost > 0
        assert (await desk.counts()).pending == 0
        await desk.collect(succeeded_ms=-1)
        rig.assert_consistent()


async def look_after(desk: Desk) -> None:
    """What a server does by itself; and whoever misses the queue makes it again."""
    for _ in range(4):
        with contextlib.suppress(PinLaterError):
            await desk.shard.ping()
            await desk.shard.create_queues(["another"], desk.now)
        await desk.shard.time_out_claims(desk.now, ALL)
        await desk.collect()
    await desk.shard.create_queues([QUEUE], desk.now)
