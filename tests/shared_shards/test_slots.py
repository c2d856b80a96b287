"""Servers lease slots in a shard: no two servers have the same slot, and a server that was suspended past its lease harms no other."""

from __future__ import annotations

import asyncio

import pytest

from pinlater.domain.clock import ManualClock
from pinlater.domain.errors import ShardConnectionFailed
from pinlater.domain.ids import slot_of
from pinlater.domain.job import Outcome
from pinlater.server.sharding.shards import ShardLanes
from pinlater.server.storage.commands import ListMembers
from pinlater.server.storage.values import InsertRequest
from tests.contract.desk import Desk
from tests.shared_shards.conftest import AnyDatabase
from tests.shared_shards.proxied_database import QUEUE, stats_of


async def asleep(database: AnyDatabase) -> tuple[Desk, Desk]:
    """A server that was suspended past its lease and does not know it, and the server that has its slot now."""
    sleeper = await database.desk()
    await database.expire_leases()
    successor = await database.desk()
    assert sleeper.shard.slot == successor.shard.slot == 0
    return sleeper, successor


async def test_servers_that_come_at_once_get_different_slots(database: AnyDatabase) -> None:
    shards = [database.shard() for _ in range(6)]
    await database.open()  # the first on an empty database makes the tables, which takes its time
    await asyncio.gather(*[shard.open(0) for shard in shards])
    assert sorted(shard.slot for shard in shards) == [1, 2, 3, 4, 5, 6]


async def test_a_slot_is_free_again_once_its_server_has_left(database: AnyDatabase) -> None:
    first = await database.open()
    await first.close()
    assert (await database.open()).slot == 0


async def test_the_slot_of_a_killed_server_is_free_after_its_lease_and_not_before(database: AnyDatabase) -> None:
    await database.open()  # and never heard of again
    assert (await database.open()).slot == 1
    await database.expire_leases()
    assert (await database.open()).slot == 0


async def test_a_heartbeat_keeps_the_slot(database: AnyDatabase) -> None:
    shard = await database.open()
    await database.expire_leases()
    await shard.ping()
    assert (await database.open()).slot == 1
    await shard.ping()
    assert shard.slot == 0


async def test_a_server_that_was_suspended_takes_another_slot_at_its_next_heartbeat(database: AnyDatabase) -> None:
    sleeper, successor = await asleep(database)
    await sleeper.shard.ping()
    assert (sleeper.shard.slot, successor.shard.slot) == (1, 0)
    assert [member.slot for member in await successor.shared.submit(ListMembers())] == [0, 1]


async def test_a_server_that_was_suspended_takes_another_slot_at_its_next_change(database: AnyDatabase) -> None:
    """Its claims and acks succeed."""
    sleeper, successor = await asleep(database)
    key = await successor.put(b"successor's")
    [held] = await sleeper.claim()
    assert (held.key, held.job.body) == (key, b"successor's")
    assert (await sleeper.succeed(key, token=held.holder.token)).outcome is Outcome.APPLIED
    assert (sleeper.shard.slot, successor.shard.slot) == (1, 0)
    assert stats_of(sleeper).slots_lost == 1
    await database.assert_consistent()


@pytest.mark.parametrize("knows", [True, False])
async def test_a_job_is_never_taken_for_the_one_to_which_the_next_holder_of_the_slot_gave_the_same_id(
    database: AnyDatabase, knows: bool
) -> None:
    """Both make ids from the same slot and millisecond: the store must not take the second job for a repeat of the first."""
    sleeper, successor = await asleep(database)
    theirs, ours = successor.job(b"successor's"), sleeper.job(b"sleeper's")
    assert ours.id == theirs.id
    await successor.insert(theirs)
    if knows:
        await sleeper.shard.ping()
    refused = await sleeper.request(InsertRequest(QUEUE, [ours]))
    assert isinstance(refused, ShardConnectionFailed)
    assert refused.retryable
    assert [held.job.body for held in await successor.claim(10)] == [b"successor's"]
    await database.assert_consistent()


async def test_a_servers_lanes_make_ids_with_the_new_slot(database: AnyDatabase) -> None:
    sleeper, successor = await asleep(database)
    lanes = ShardLanes(sleeper.shard, ManualClock())
    assert {slot_of(job_id) for job_id in lanes.ids.make(2)} == {0}
    highest = (await successor.put()).id
    await sleeper.shard.ping()
    made = lanes.ids.make(2)
    assert {slot_of(job_id) for job_id in made} == {1}
    assert min(made) > highest


async def test_an_outcome_is_not_read_from_the_numbers_of_the_next_holder_of_the_slot(database: AnyDatabase) -> None:
    """A lost answer is settled by the number of the writer's latest change, which may be the successor's by then."""
    sleeper = await database.desk()
    await sleeper.insert()  # connects
    job = sleeper.job(b"sleeper's")
    database.proxy.lose_answer(database.packet_of("insert"))
    database.proxy.refuse()
    with pytest.raises(ShardConnectionFailed):
        await sleeper.insert(job)
    database.proxy.heal()
    await database.expire_leases()
    successor = await database.desk()
    await successor.put(b"successor's")
    assert isinstance(await sleeper.request(InsertRequest(QUEUE, [job])), ShardConnectionFailed)
    assert sorted(held.job.body for held in await successor.claim(10)) == [b"sleeper's", b"successor's"]
    await database.assert_consistent()
