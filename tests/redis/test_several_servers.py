"""Servers that share a shard: what one does, those who wait at another learn."""

from __future__ import annotations

import pytest

from pinlater.domain.clock import SystemClock
from tests.contract import two_servers
from tests.contract.desk import QUEUE, Desk
from tests.redis.rig import Rig


@pytest.fixture
async def desks(rig: Rig) -> tuple[Desk, Desk]:
    """Two servers' views of one shard."""
    return await rig.desk(), await rig.desk(direct=True)


async def changed(desk: Desk) -> list[str]:
    """What is told at last, looks being shared for a second."""
    deadline = SystemClock().monotonic() + 10
    while SystemClock().monotonic() < deadline:
        found = list(await desk.shared.changed_queues())
        if found:
            return found
    return []


async def test_what_another_server_makes_ready_is_seen(desks: tuple[Desk, Desk]) -> None:
    """By queue, and once."""
    one, other = desks
    await other.shard.list_queues()
    key = await one.put()
    assert await changed(other) == [QUEUE]
    assert list(await other.shared.changed_queues()) == []

    held = await other.take()
    assert held.key == key
    await one.shard.release_jobs([held.ref], one.now)
    assert await changed(other) == [QUEUE]


async def test_servers_have_slots_of_their_own(desks: tuple[Desk, Desk]) -> None:
    one, other = desks
    assert {one.shard.slot, other.shard.slot} == {0, 1}
    assert [member.slot for member in await one.shared.members()] == [0, 1]


@pytest.mark.parametrize("seed", range(3))
async def test_two_servers_hand_out_by_priority_whichever_stored_the_jobs(desks: tuple[Desk, Desk], seed: int) -> None:
    await two_servers.hand_out_by_priority(desks, seed)


@pytest.mark.parametrize("seed", range(3))
async def test_two_servers_hand_out_no_expired_job_and_expire_each_once(desks: tuple[Desk, Desk], seed: int) -> None:
    """While both claim and both sweep."""
    await two_servers.expire_once(desks, seed)
