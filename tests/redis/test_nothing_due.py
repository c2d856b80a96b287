"""A claim of a queue in which nothing was due at the last claim asks Redis only if something may be due by now.

That it finds each job that becomes due through its own server is in the contract (`test_empty_claims.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pinlater.domain.clock import ManualClock
from pinlater.server.storage.commands import create_queues
from pinlater.server.storage.redis.nothing_due import TRUSTED_S, TRUSTED_UNCHANGED_S
from pinlater.server.storage.redis.shard import RedisShard
from tests.contract.desk import QUEUE, Desk
from tests.redis.proxied_redis import ProxiedRedis
from tests.redis.script_hooks import ScriptHooks, hooks

__all__ = ["hooks"]  # a fixture


class Asked:
    """How often claims asked Redis.

    `before_answer`: runs when the next claim has its answer.
    `before_insert`: runs before each insert.
    """

    def __init__(self, hooks: ScriptHooks) -> None:
        self.times = 0
        self.before_answer: Callable[[], Awaitable[Any]] | None = None
        self.before_insert: Callable[[], Awaitable[Any]] | None = None
        hooks.around = self._count

    async def _count(self, name: str, run: Callable[[], Awaitable[Any]]) -> Any:
        if name == "insert_jobs" and self.before_insert is not None:
            await self.before_insert()
        if name != "claim_jobs":
            return await run()
        self.times += 1
        answer = await run()
        before, self.before_answer = self.before_answer, None
        if before is not None:
            await before()
        return answer


@pytest.fixture
async def desk(database: ProxiedRedis) -> Desk:
    """With one time for claims and for what is trusted."""
    clock = ManualClock()
    desk = Desk(lambda: database.shard(direct=True, monotonic=clock.monotonic))
    desk.clock = clock
    await desk.open()
    await desk.shard.submit(create_queues([QUEUE], desk.now))
    return desk


@pytest.fixture
def asked(hooks: ScriptHooks) -> Asked:
    return Asked(hooks)


async def test_polls_of_an_empty_queue_ask_once_a_second(desk: Desk, asked: Asked) -> None:
    for _ in range(100):
        assert await desk.claim() == []
        desk.clock.advance(ms=round(TRUSTED_S * 1000 / 50))
    assert asked.times == 2
    assert desk.shard.figures()["claims_from_memory"] == 98, "the claims that asked nothing are counted"


async def test_a_server_that_does_not_own_the_queue_always_asks(desk: Desk, asked: Asked) -> None:
    for owned in (True, False, False):
        assert await desk.claim(owned=owned) == []
    assert asked.times == 3


async def test_a_claim_that_leaves_a_due_job_is_followed_by_one_that_asks(desk: Desk, asked: Asked) -> None:
    await desk.put(b"1")
    await desk.put(b"2")
    assert [(await desk.take()).job.body for _ in range(2)] == [b"1", b"2"]
    assert asked.times == 2


async def test_a_claim_that_takes_the_last_due_job_is_followed_by_none_that_asks_until_the_next_is_due(
    desk: Desk, asked: Asked
) -> None:
    await desk.put(b"now")
    later = await desk.put(b"later", delay_ms=500)
    assert (await desk.take()).job.body == b"now"
    assert await desk.claim() == []
    assert asked.times == 1
    desk.clock.advance(ms=500)
    assert (await desk.take()).key == later


async def test_a_later_job_is_found_when_it_is_due_and_its_time_is_told_before(desk: Desk, asked: Asked) -> None:
    key = await desk.put(delay_ms=500)
    assert await desk.claim() == []
    desk.clock.advance(ms=499)
    assert await desk.claim() == []
    assert asked.times == 1
    desk.clock.advance(ms=1)
    assert (await desk.take()).key == key


async def test_a_job_that_is_stored_while_a_claim_gets_its_answer_is_found_by_the_next(
    desk: Desk, asked: Asked
) -> None:
    asked.before_answer = desk.put
    assert await desk.claim() == []
    assert len(await desk.claim()) == 1


async def test_a_job_whose_insert_began_before_a_claim_and_ends_after_it_is_found_by_the_next(
    database: ProxiedRedis, desk: Desk, asked: Asked
) -> None:
    waits, may_go = asyncio.Event(), asyncio.Event()

    async def held_up() -> None:
        waits.set()
        await may_go.wait()

    asked.before_insert = held_up
    storing = asyncio.ensure_future(desk.put())
    await waits.wait()
    assert await desk.claim() == await desk.claim() == []
    assert asked.times == 1, "memory says that nothing is due"
    may_go.set()
    await storing
    assert len(await desk.claim()) == 1


async def test_a_job_of_another_server_is_found_within_a_second(database: ProxiedRedis, desk: Desk) -> None:
    other = await database.desk(direct=True)
    assert await desk.claim() == []
    await other.put()
    assert await desk.claim() == []
    desk.clock.advance(ms=round(TRUSTED_S * 1000))
    assert len(await desk.claim()) == 1


def follow(desk: Desk, others: Callable[[], int | None]) -> None:
    """Other servers say what they have changed on the shard."""
    assert isinstance(desk.shard, RedisShard)
    desk.shard.follow(others)


async def test_polls_ask_once_in_three_seconds_while_other_servers_say_that_they_change_nothing(
    desk: Desk, asked: Asked
) -> None:
    follow(desk, lambda: 1)
    for _ in range(120):
        assert await desk.claim() == []
        desk.clock.advance(ms=round(TRUSTED_UNCHANGED_S * 1000 / 60))
    assert asked.times == 2


async def test_a_job_of_another_server_is_found_within_a_second_once_that_server_says_that_it_changed_something(
    database: ProxiedRedis, desk: Desk
) -> None:
    other = await database.desk(direct=True)
    changes = 1
    follow(desk, lambda: changes)
    assert await desk.claim() == []
    await other.put()
    changes = 2
    assert await desk.claim() == []
    desk.clock.advance(ms=round(TRUSTED_S * 1000))
    assert len(await desk.claim()) == 1


async def test_a_job_of_another_server_that_says_nothing_any_more_is_found_within_a_second(
    database: ProxiedRedis, desk: Desk
) -> None:
    other = await database.desk(direct=True)
    changes: int | None = 1
    follow(desk, lambda: changes)
    assert await desk.claim() == []
    await other.put()
    changes = None
    desk.clock.advance(ms=round(TRUSTED_S * 1000))
    assert len(await desk.claim()) == 1


async def test_a_job_of_a_server_that_no_other_knows_is_found_within_three_seconds(
    database: ProxiedRedis, desk: Desk
) -> None:
    other = await database.desk(direct=True)
    follow(desk, lambda: 1)
    assert await desk.claim() == []
    await other.put()
    desk.clock.advance(ms=round(TRUSTED_UNCHANGED_S * 1000))
    assert len(await desk.claim()) == 1


async def test_a_claim_that_finds_nothing_is_no_change_that_other_servers_hear_of(desk: Desk) -> None:
    assert isinstance(desk.shard, RedisShard)
    before = desk.shard.changes
    assert await desk.claim(owned=False) == []
    assert desk.shard.changes == before
    await desk.put()
    stored = desk.shard.changes
    assert len(await desk.claim()) == 1
    assert before < stored < desk.shard.changes


async def test_a_failed_claim_is_no_claim_that_found_nothing(
    desk: Desk, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails() -> None:
        raise RuntimeError

    asked.before_answer = fails
    with pytest.raises(RuntimeError):
        await desk.claim()
    assert await desk.claim() == []
    assert asked.times == 2
