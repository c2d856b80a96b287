"""What only Redis does when the answer to a script is lost. Lost answers in general: tests/shared_shards."""

from __future__ import annotations

import asyncio

import pytest

from pinlater.domain.errors import OutcomeUnknown, QueueNotFound
from pinlater.server.storage.commands import InsertJobs, ListChangedQueues, TimeOutClaims
from pinlater.server.storage.values import InsertRequest
from tests.contract.desk import QUEUE, Desk
from tests.redis.proxied_redis import LIMITS, ProxiedRedis
from tests.shared_shards.changes import CHANGES, Change, assert_done_once, prepare
from tests.shared_shards.proxied_database import stats_of


@pytest.fixture(params=list(CHANGES))
def change(request: pytest.FixtureRequest) -> Change:
    return CHANGES[request.param]


async def test_an_answer_that_is_lost_again_and_again_is_found_out(
    database: ProxiedRedis, desk: Desk, change: Change
) -> None:
    held = await prepare(desk, change)
    traps = [database.proxy.lose_answer(database.packet_of(change.name)) for _ in range(LIMITS["retries"])]
    assert change.answered(await change.act(desk, held))
    assert all(trap.sprung for trap in traps)
    await assert_done_once(database, desk, change.name, held)


async def test_a_request_that_arrives_after_its_caller_was_told_that_it_failed_does_nothing(
    database: ProxiedRedis,
) -> None:
    """Held up by the network, and delivered when it heals."""
    desk = await database.desk(command_timeout_ms=500)
    other = await database.desk(direct=True)
    await desk.insert()  # connects
    database.proxy.hold()
    call = asyncio.ensure_future(desk.put(b"late"))
    with pytest.raises(OutcomeUnknown):
        await call
    database.proxy.heal()
    await desk.put(b"next")
    bodies = [held.job.body for held in await other.claim(10, owned=False)]
    assert bodies in ([b"next"], [b"late", b"next"])  # whole or not at all, and at most once
    await desk.put(b"last")
    assert [held.job.body for held in await other.claim(10, owned=False)] == [b"last"]
    await database.assert_consistent()


async def test_an_insert_that_sends_nothing_still_settles_the_one_before(database: ProxiedRedis, desk: Desk) -> None:
    """Its good end tells the lane that nothing before it can be carried out any more."""
    await desk.insert()  # connects
    database.proxy.lose_answer(database.packet_of("insert"))
    database.proxy.refuse()
    with pytest.raises(OutcomeUnknown):
        await desk.insert(desk.job(b"new"))
    database.proxy.heal()
    before = stats_of(desk).settled
    [missing] = await desk.shard.submit(InsertJobs([InsertRequest("missing", [desk.job()])], desk.now))
    assert isinstance(missing, QueueNotFound)
    assert stats_of(desk).settled == before + 1


async def test_a_claim_with_an_unknown_outcome_is_given_back(database: ProxiedRedis, desk: Desk) -> None:
    """No worker has the job: the next sweep gives it back unspent and wakes a waiter."""
    await desk.put(b"old")
    assert await desk.claim(0) == []  # connects
    database.proxy.lose_answer(database.packet_of("claim"))
    database.proxy.refuse()
    with pytest.raises(OutcomeUnknown):
        await desk.claim()
    database.proxy.heal()
    assert (await desk.counts()).in_progress == 1

    assert list(await desk.shard.submit(TimeOutClaims(desk.now, 10))) == []
    assert QUEUE in await desk.shared.submit(ListChangedQueues())
    again = await desk.take()
    assert (again.job.body, again.job.attempts_remaining) == (b"old", again.job.attempts_allowed)
    await database.assert_consistent()
