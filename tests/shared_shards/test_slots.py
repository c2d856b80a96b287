"""Servers lease slots in a shard: no two servers have the same slot, and a server that was suspended past its lease harms no other."""

from __future__ import annotations

import asyncio

import pytest

from pinlater.domain.clock import ManualClock
from pinlater.domain.errors import ShardConnectionFailed
from pinlater.domain.ids import slot_of
from pinlater.domain.job import Outcome
from pinlater.server.sharding.shards import ShardLanes
from pinlater.server.storage.values import InsertRequest
from tests.contract.desk import Desk
from tests.shared_shards.conftest import AnyRig
from tests.shared_shards.rig import QUEUE, stats_of


async def asleep(rig: AnyRig) -> tuple[Desk, Desk]:
    """A server that was suspended past its lease and does not know it, and the server that has its slot now."""
    sleeper = await rig.desk()
    await rig.expire_leases()
    heir = await rig.desk()
    assert sleeper.shard.slot == heir.shard.slot == 0
    return sleeper, heir


async def test_servers_that_come_at_once_get_different_slots(rig: AnyRig) -> None:
    shards = [rig.shard() for _ in range(6)]
    await rig.open()  # the first on an empty database makes the tables, which takes its time
    await asyncio.gather(*[shard.open(0) for shard in shards])
    assert sorted(shard.slot for shard in shards) == [1, 2, 3, 4, 5, 6]


async def test_a_slot_is_free_again_once_its_server_has_left(rig: AnyRig) -> None:
    first = await rig.open()
    await first.close()
    assert (await rig.open()).slot == 0


async def test_the_slot_of_a_killed_server_is_free_after_its_lease_and_not_before(rig: AnyRig) -> None:
    await rig.open()  # and never heard of again
    assert (await rig.open()).slot == 1
    await rig.expire_leases()
    assert (await rig.open()).slot == 0


async def test_a_heartbeat_keeps_the_slot(rig: AnyRig) -> None:
    shard = await rig.open()
    await rig.expire_leases()
    await shard.ping()
    assert (await rig.open()).slot == 1
    await shard.ping()
    assert shard.slot == 0


async def test_a_server_that_was_suspended_takes_another_slot_at_its_next_heartbeat(rig: AnyRig) -> None:
    sleeper, heir = await asleep(rig)
    await sleeper.shard.ping()
    assert (sleeper.shard.slot, heir.shard.slot) == (1, 0)
    assert [member.slot for member in await heir.shared.members()] == [0, 1]


async def test_a_server_that_was_suspended_takes_another_slot_at_its_next_change(rig: AnyRig) -> None:
    """Its claims and acks succeed."""
    sleeper, heir = await asleep(rig)
    key = await heir.put(b"heir's")
    [held] = await sleeper.claim()
    assert (held.key, held.job.body) == (key, b"heir's")
    assert (await sleeper.succeed(key, token=held.holder.token)).outcome is Outcome.APPLIED
    assert (sleeper.shard.slot, heir.shard.slot) == (1, 0)
    assert stats_of(sleeper).slots_lost == 1
    await rig.assert_consistent()


@pytest.mark.parametrize("knows", [True, False])
async def test_a_job_is_never_taken_for_the_one_that_the_heir_gave_the_same_id(rig: AnyRig, knows: bool) -> None:
    """Both make ids from the same slot and millisecond: the store must not take the second job for a repeat of the first."""
    sleeper, heir = await asleep(rig)
    theirs, ours = heir.job(b"heir's"), sleeper.job(b"sleeper's")
    assert ours.id == theirs.id
    await heir.insert(theirs)
    if knows:
        await sleeper.shard.ping()
    refused = await sleeper.request(InsertRequest(QUEUE, [ours]))
    assert isinstance(refused, ShardConnectionFailed)
    assert refused.retryable
    assert [held.job.body for held in await heir.claim(10)] == [b"heir's"]
    await rig.assert_consistent()


async def test_a_servers_lanes_make_ids_with_the_new_slot(rig: AnyRig) -> None:
    sleeper, heir = await asleep(rig)
    lanes = ShardLanes(sleeper.shard, ManualClock())
    assert {slot_of(job_id) for job_id in lanes.ids.make(2)} == {0}
    highest = (await heir.put()).id
    await sleeper.shard.ping()
    made = lanes.ids.make(2)
    assert {slot_of(job_id) for job_id in made} == {1}
    assert min(made) > highest


async def test_an_outcome_is_not_read_from_the_heirs_numbers(rig: AnyRig) -> None:
    """A lost answer is settled by the number of the writer's latest change, which may be the heir's by then."""
    sleeper = await rig.desk()
    await sleeper.insert()  # connects
    job = sleeper.job(b"sleeper's")
    rig.proxy.lose_answer(rig.packet_of("insert"))
    rig.proxy.refuse()
    with pytest.raises(ShardConnectionFailed):
        await sleeper.insert(job)
    rig.proxy.heal()
    await rig.expire_leases()
    heir = await rig.desk()
    await heir.put(b"heir's")
    assert isinstance(await sleeper.request(InsertRequest(QUEUE, [job])), ShardConnectionFailed)
    assert sorted(held.job.body for held in await heir.claim(10)) == [b"heir's", b"sleeper's"]
    await rig.assert_consistent()
