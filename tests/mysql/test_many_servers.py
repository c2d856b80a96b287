"""Twenty servers on one shard: each sees what each of the others does, however many there are, and nothing of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count

import pytest

from pinlater.domain.ids import slot_of
from pinlater.server.storage.commands import (
    ListChangedQueues,
    ListMembers,
    ListQueues,
    ReleaseJobs,
    TimeOutClaims,
    create_queues,
)
from pinlater.server.storage.mysql.settings import MysqlSettings
from pinlater.server.storage.mysql.shard import MysqlShard
from tests.contract.desk import Desk
from tests.mysql.proxied_mysql import LIMITS, ProxiedMysql

SERVERS = 20


@pytest.fixture
async def desks(database: ProxiedMysql) -> AsyncIterator[list[Desk]]:
    """Their looks are never shared: their clocks go on by a second whenever they are asked. Each has a queue that it works on."""
    endpoint, settings = database.endpoint(direct=True), MysqlSettings(**LIMITS)
    desks = [Desk(lambda: MysqlShard(endpoint, settings, monotonic=count().__next__)) for _ in range(SERVERS)]
    for desk in desks:
        await desk.open()
    await desks[0].shard.submit(create_queues([queue_of(number) for number in range(SERVERS)], desks[0].now))
    for desk in desks:
        await desk.shard.submit(ListQueues())
        await desk.shared.submit(ListChangedQueues())
    yield desks
    for desk in desks:
        await desk.shard.close()


def queue_of(number: int) -> str:
    return f"queue{number}"


async def assert_seen_by_others(desks: list[Desk], number: int) -> None:
    """By its queue, and nothing else."""
    for other, desk in enumerate(desks):
        expected = [] if other == number else [queue_of(number)]
        assert list(await desk.shared.submit(ListChangedQueues())) == expected, (
            f"server {other} of what server {number} did"
        )


async def test_each_sees_what_each_other_does(desks: list[Desk], database: ProxiedMysql) -> None:
    """An enqueue; a claim, after which less waits; and a job given back, after which as much waits as before."""
    for number, desk in enumerate(desks):
        key = await desk.put(queue=queue_of(number))
        assert slot_of(key.id) == number
        await assert_seen_by_others(desks, number)
        [held] = await desk.claim(1, queue=queue_of(number))
        await assert_seen_by_others(desks, number)
        await desk.shard.submit(ReleaseJobs([held.ref], desk.now))
        await assert_seen_by_others(desks, number)
    await database.assert_consistent()


async def test_a_server_sees_all_changes_of_several_servers_since_it_last_asked(desks: list[Desk]) -> None:
    """By a server that did nothing, and by one that did something as well."""
    for number, desk in enumerate(desks[1:], start=1):
        await desk.put(queue=queue_of(number))
    assert sorted(await desks[0].shared.submit(ListChangedQueues())) == sorted(
        queue_of(number) for number in range(1, SERVERS)
    )
    assert sorted(await desks[1].shared.submit(ListChangedQueues())) == sorted(
        queue_of(number) for number in range(2, SERVERS)
    )


async def test_each_knows_all(desks: list[Desk]) -> None:
    for desk in desks:
        assert isinstance(desk.shard, MysqlShard)
        assert [member.slot for member in await desk.shared.submit(ListMembers())] == list(range(SERVERS))


async def test_each_sweeps_what_any_other_left(desks: list[Desk]) -> None:
    """One look tells all sweeps whether there is anything to do: a claim of the twentieth server is seen by it, too."""
    for number, desk in enumerate(desks):
        await desk.put(queue=queue_of(number))
        await desk.claim(1, queue=queue_of(number))
        sweeper = desks[(number + 5) % SERVERS]
        later = desk.now + 3_600_000
        [swept] = await sweeper.shard.submit(TimeOutClaims(later, 100))
        assert (swept.queue, swept.retried) == (queue_of(number), 1)
