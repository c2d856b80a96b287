"""The work of a minute, by slice."""

from __future__ import annotations

import asyncio
from random import Random

from pinlater.domain.clock import ManualClock
from pinlater.domain.job import Holder
from pinlater.domain.slices import slice_of
from pinlater.server.cluster.ownership.work import SliceWork
from pinlater.server.sharding.shards import ClaimRequest, ShardLanes, Shards
from pinlater.server.storage.commands import create_queues
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.server.storage.values import ClaimCall, Claimed, InsertRequest, NewJob
from tests.sharding.faulty import FaultyShard


async def shared_shard(clock: ManualClock, *queues: str) -> ShardLanes:
    shard = FaultyShard(MemoryShard("s"))
    await shard.open(clock.now_ms())
    await shard.submit(create_queues(list(queues), clock.now_ms()))
    return ShardLanes(shard, clock)


async def enqueue(lanes: ShardLanes, queue: str, jobs: int) -> None:
    now_ms = lanes.clock.now_ms()
    await lanes.insert.submit(InsertRequest(queue, [NewJob(i, b"x", 1, now_ms, 1) for i in lanes.ids.make(jobs)]))


def claim(lanes: ShardLanes, queue: str, limit: int) -> asyncio.Future[Claimed]:
    return lanes.claim.submit(ClaimRequest(queue, ClaimCall(limit, Holder("h", "s", "t"), 1 << 20), 60_000))


async def test_jobs_count_once_when_stored_and_twice_when_claimed_for_one_minute() -> None:
    clock = ManualClock()
    lanes = await shared_shard(clock, "a", "b")
    work = SliceWork(Shards([lanes], Random(1)), clock.monotonic)
    a, b = slice_of("a"), slice_of("b")
    assert a != b
    work.look()
    await asyncio.gather(enqueue(lanes, "a", 5), enqueue(lanes, "b", 2))
    await asyncio.gather(claim(lanes, "a", 3), claim(lanes, "b", 9))
    clock.advance(seconds=5)
    work.look()
    assert work.last_minute == {"s": {a: 5 + 2 * 3, b: 2 + 2 * 2}}
    for _ in range(12):
        clock.advance(seconds=5)
        work.look()
    assert work.last_minute == {}
    await lanes.close()


async def test_a_shard_that_was_opened_anew_counts_from_zero() -> None:
    clock = ManualClock()
    lanes = await shared_shard(clock, "a")
    shards = Shards([lanes], Random(1))
    work = SliceWork(shards, clock.monotonic)
    await enqueue(lanes, "a", 50)
    work.look()
    anew = await shared_shard(clock, "a")
    shards.take_over_map([anew])
    await enqueue(anew, "a", 3)
    clock.advance(seconds=5)
    work.look()
    assert work.last_minute == {}
    await enqueue(anew, "a", 70)
    clock.advance(seconds=60)
    work.look()
    assert work.last_minute["s"][slice_of("a")] <= 73
    await asyncio.gather(lanes.close(), anew.close())
