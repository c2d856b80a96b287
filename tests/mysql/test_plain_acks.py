"""Acks that suppose their claims to be as they should be: what isn't so changes nothing, and is decided one by one."""

from __future__ import annotations

import pytest

from pinlater.domain.job import JobState, Outcome, UniqueKey, UniqueScope
from pinlater.server.storage.commands import FinishJobs
from pinlater.server.storage.values import JobAck, JobKey
from tests.contract.desk import Desk, DeskJob
from tests.mysql.proxied_mysql import ProxiedMysql
from tests.shared_shards.proxied_database import QUEUE, stats_of


async def held(desk: Desk, count: int) -> list[DeskJob]:
    return [await desk.put_and_take(b"%d" % number) for number in range(count)]


def successes(claims: list[DeskJob], *, fenced: bool = True) -> list[JobAck]:
    return [JobAck(claim.key, True, claim.ref.token if fenced else None) for claim in claims]


async def finish(desk: Desk, acks: list[JobAck]) -> list[Outcome]:
    return [acked.outcome for acked in await desk.shard.submit(FinishJobs(acks, desk.now))]


@pytest.mark.parametrize("count", [1, 7])
@pytest.mark.parametrize("fenced", [True, False], ids=["tokens", "no tokens"])
async def test_plain_acks_take_one_round_trip(database: ProxiedMysql, count: int, fenced: bool) -> None:
    desk = await database.desk(direct=True)
    await finish(desk, successes(await held(desk, 1)))  # opens the connection
    claims = await held(desk, count)
    before = stats_of(desk).round_trips
    assert await finish(desk, successes(claims, fenced=fenced)) == [Outcome.APPLIED] * count
    assert stats_of(desk).round_trips == before + 1
    assert (await desk.counts()).succeeded == count + 1
    await database.assert_consistent()


@pytest.mark.parametrize("company", [0, 5], ids=["alone", "among others"])
@pytest.mark.parametrize("why", ["token", "gone", "priority", "id", "past", "key", "twice"])
async def test_one_that_is_not_plain_is_decided_alone(database: ProxiedMysql, why: str, company: int) -> None:
    """And no other one with it, whichever way it differs from what was supposed."""
    desk = await database.desk(direct=True)
    others = await held(desk, company)
    odd, expected, left = await odd_ack(desk, why)
    outcomes = await finish(desk, [*successes(others), *odd])
    assert outcomes == [Outcome.APPLIED] * company + expected
    counts = await desk.counts()
    assert counts.succeeded == company + expected.count(Outcome.APPLIED)
    assert counts.in_progress == left
    await desk.assert_counters_exact()
    await database.assert_consistent()


async def odd_ack(desk: Desk, why: str) -> tuple[list[JobAck], list[Outcome], int]:
    """An ack that differs, what it should be answered, and how many jobs are in hand afterwards."""
    if why == "past":
        key = await desk.put(attempts=2)
        await desk.fail((await desk.take()).key)
        return successes([await desk.take()]), [Outcome.APPLIED], 0
    if why == "key":
        unique = UniqueKey("once", UniqueScope.UNFINISHED)
        claim = await desk.put_and_take(unique=unique)
        return successes([claim]), [Outcome.APPLIED], 0
    claim = await desk.put_and_take()
    if why == "token":
        return [JobAck(claim.key, True, "another's\\ '\"")], [Outcome.STALE_CLAIM], 1
    if why == "gone":
        await desk.release(claim.ref)
        return successes([claim]), [Outcome.STALE_CLAIM], 0
    if why == "priority":
        key = JobKey(QUEUE, 2, claim.key.id)
        return [JobAck(key, True, claim.ref.token)], [Outcome.NOT_FOUND], 1
    if why == "id":
        key = JobKey(QUEUE, 1, claim.key.id + 1)
        return [JobAck(key, True)], [Outcome.NOT_FOUND], 1
    return successes([claim, claim]), [Outcome.APPLIED, Outcome.ALREADY_FINAL], 0


async def test_after_a_refused_ack_calls_read_first_for_a_while(database: ProxiedMysql) -> None:
    """Where jobs with a history are acked all the time, being refused stays rare."""
    desk = await database.desk(direct=True)
    claims = await held(desk, 60)
    await finish(desk, [JobAck(claims[0].key, True, "another's")])
    trips = []
    for claim in claims:
        before = stats_of(desk).round_trips
        await finish(desk, successes([claim]))
        trips.append(stats_of(desk).round_trips - before)
    assert trips == [2] * 50 + [1] * 10


async def test_failures_ride_with_plain_successes(database: ProxiedMysql) -> None:
    desk = await database.desk(direct=True)
    claims = await held(desk, 4)
    acks = successes(claims)
    acks[1] = acks[1]._replace(succeeded=False, error_type="Boom")
    acks[2] = acks[2]._replace(append_status="fine")
    assert await finish(desk, acks) == [Outcome.APPLIED] * 4
    assert [(await desk.look(claim.key)).state for claim in claims] == [
        JobState.SUCCEEDED,
        JobState.PENDING if (await desk.look(claims[1].key)).attempts_remaining else JobState.FAILED,
        JobState.SUCCEEDED,
        JobState.SUCCEEDED,
    ]
    await database.assert_consistent()


async def test_acks_of_jobs_with_ordering_keys_take_three_round_trips(database: ProxiedMysql) -> None:
    """And one more if others wait behind them: the next ones of their keys."""
    desk = await database.desk(direct=True)
    for key in ("a", "b", "c"):
        await desk.put(b"first", ordering_key=key)
    following = await desk.put(b"next", ordering_key="c")
    claims = [await desk.take() for _ in range(3)]
    await finish(desk, successes([claims[0]]))  # the refused one, after which calls look first
    trips = []
    for claim in claims[1:]:
        before = stats_of(desk).round_trips
        assert await finish(desk, successes([claim])) == [Outcome.APPLIED]
        trips.append(stats_of(desk).round_trips - before)
    assert trips == [3, 4]
    held_then = await desk.take()
    assert held_then.key == following
    before = stats_of(desk).round_trips
    assert await finish(desk, successes([held_then])) == [
        Outcome.APPLIED
    ]  # plain as well, though it has waited behind another
    assert stats_of(desk).round_trips - before == 3
    await desk.assert_counters_exact()
    await database.assert_consistent()
