"""Servers that share a shard: each learns what the others make ready."""

from __future__ import annotations

import pytest

from pinlater.domain.clock import SystemClock
from pinlater.server.storage.commands import Announce, ListChangedQueues, ListMembers, ListQueues, ReleaseJobs
from tests.contract import two_servers
from tests.contract.desk import QUEUE, Desk
from tests.contract.ordered_load import OrderedLoad
from tests.shared_shards.conftest import AnyDatabase


@pytest.fixture
async def desks(database: AnyDatabase) -> tuple[Desk, Desk]:
    """Two servers' views of one shard."""
    return await database.desk(), await database.desk(direct=True)


async def changed(desk: Desk) -> list[str]:
    """What is told at last, looks being shared for a second."""
    deadline = SystemClock().monotonic() + 30
    while SystemClock().monotonic() < deadline:
        found = list(await desk.shared.submit(ListChangedQueues()))
        if found:
            return found
    return []


async def test_a_server_sees_the_queues_in_which_another_one_made_jobs_ready(
    desks: tuple[Desk, Desk], kind: str
) -> None:
    """By queue, and once."""
    one, other = desks
    await other.shard.submit(ListQueues())
    key = await one.put()
    assert await changed(other) == [QUEUE]
    assert list(await other.shared.submit(ListChangedQueues())) == []

    held = await other.take()
    assert held.key == key
    if kind != "redis":  # whose servers do not report claims
        assert await changed(one) == [QUEUE]
    await one.shard.submit(ReleaseJobs([held.ref], one.now))
    assert await changed(other) == [QUEUE]


async def test_servers_have_slots_of_their_own(desks: tuple[Desk, Desk]) -> None:
    one, other = desks
    assert {one.shard.slot, other.shard.slot} == {0, 1}
    assert [member.slot for member in await one.shared.submit(ListMembers())] == [0, 1]


async def test_a_server_that_is_told_its_address_before_it_opens_a_shard_is_listed_with_it(
    database: AnyDatabase,
) -> None:
    shard = database.shard()
    shard.register_as("10.0.0.1:9011")
    await shard.open(0)
    assert [member.address for member in await shard.submit(ListMembers())] == ["10.0.0.1:9011"]
    shard.register_as("10.0.0.1:9012")
    assert [member.address for member in await shard.submit(ListMembers())] == ["10.0.0.1:9011"], (
        "the shard was not told"
    )


async def test_a_server_with_two_places_is_counted_once(desks: tuple[Desk, Desk]) -> None:
    """After a failover its old one came along with the replica. A server at another address, or without one, counts apart."""
    one, other = (desk.shared for desk in desks)

    async def slots() -> list[int]:
        return [member.slot for member in await one.submit(ListMembers())]

    await one.submit(Announce("10.0.0.1:9011"))
    assert await slots() == [0, 1]
    await other.submit(Announce("10.0.0.1:9012"))
    assert await slots() == [0, 1]
    await other.submit(Announce("10.0.0.1:9011"))
    assert await slots() == [1]


@pytest.mark.parametrize("seed", range(3))
async def test_two_servers_hand_out_by_priority_whichever_stored_the_jobs(desks: tuple[Desk, Desk], seed: int) -> None:
    await two_servers.hand_out_by_priority(desks, seed)


@pytest.mark.parametrize("seed", range(3))
async def test_two_servers_hand_out_no_expired_job_and_expire_each_once(desks: tuple[Desk, Desk], seed: int) -> None:
    """While both claim and both sweep."""
    await two_servers.expire_once(desks, seed)


@pytest.mark.parametrize("seed", range(8))
async def test_two_servers_keep_the_order_of_ordering_keys(desks: tuple[Desk, Desk], seed: int) -> None:
    """While both store, claim, end, retry, move, cancel and delete jobs of the same keys, with any settings of the queue."""
    one, other = desks
    other.clock = one.clock
    await OrderedLoad(desks, seed).run()
