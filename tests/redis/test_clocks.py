"""Redis' clock jumps while servers use it: a server that starts later goes by the time of those that run."""

from __future__ import annotations

import pytest

from pinlater.server.storage.commands import AdvanceDue, AskShardTime, CountJobs, ListMembers
from tests.contract.desk import QUEUE
from tests.redis.proxied_redis import FRONT, ProxiedRedis

HOUR_MS = 3_600_000


def shift_seen(database: ProxiedRedis, slot: int, by_ms: int) -> None:
    """As if Redis' clock had been another when the server was seen last."""
    server: bytes = database.server.execute("HGET", FRONT + b"servers", slot)
    seen_ms = int.from_bytes(server[24:32], "big") + by_ms
    database.server.execute("HSET", FRONT + b"servers", slot, server[:24] + seen_ms.to_bytes(8, "big") + server[32:])


@pytest.mark.parametrize("ahead_ms", [HOUR_MS, -HOUR_MS])
async def test_a_server_that_joins_uses_the_time_of_the_present_servers(database: ProxiedRedis, ahead_ms: int) -> None:
    one = await database.open()
    redis_ms = (await one.submit(AskShardTime())).ms
    await one.ping(redis_ms + ahead_ms)

    other = await database.open()

    assert abs((await other.submit(AskShardTime())).ms - redis_ms - ahead_ms) < 30_000
    await other.ping((await other.submit(AskShardTime())).ms)
    assert abs((await one.submit(AskShardTime())).ms - redis_ms - ahead_ms) < 30_000


async def test_small_differences_are_redis_time(database: ProxiedRedis) -> None:
    """Its clock is the one that is corrected."""
    one, other = await database.open(), await database.open()
    before_ms = (await one.submit(AskShardTime())).ms
    await one.ping(before_ms + 400)

    assert (await other.submit(AskShardTime())).ms - before_ms < 30_000


async def test_a_jump_is_said(database: ProxiedRedis, caplog: pytest.LogCaptureFixture) -> None:
    """Seen from here it is the server's own time that differs suddenly."""
    shard = await database.open()
    now_ms = (await shard.submit(AskShardTime())).ms
    await shard.ping(now_ms)
    assert "jumped" not in caplog.text
    await shard.ping(now_ms + HOUR_MS)
    assert "jumped" in caplog.text


@pytest.mark.parametrize("by_ms", [HOUR_MS, -HOUR_MS])
async def test_a_heartbeat_from_another_time_counts_for_nothing_until_the_next(
    database: ProxiedRedis, by_ms: int
) -> None:
    """From the past it is old; from the future it is from before the clock was set back."""
    one, other = await database.open(), await database.open()
    shift_seen(database, one.slot, by_ms)
    assert [member.slot for member in await other.submit(ListMembers())] == [other.slot]
    await one.ping()
    assert [member.slot for member in await other.submit(ListMembers())] == [one.slot, other.slot]


async def test_a_server_whose_own_clock_was_ahead_when_it_started_counts_no_future_job_as_due(
    database: ProxiedRedis,
) -> None:
    """It opens the shard before it takes the time by which servers go."""
    desk = await database.desk()
    await desk.put(delay_ms=HOUR_MS // 2)
    late = database.shard()
    await late.open(desk.now + HOUR_MS)
    await late.submit(AdvanceDue(desk.now, 100))
    [counts] = [row.counts for row in await late.submit(CountJobs([QUEUE])) if row.counts.pending]
    assert counts.future == 1
