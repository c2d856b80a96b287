"""What the lanes of one shard hand to its store in one call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pinlater.domain.clock import ManualClock
from pinlater.domain.errors import PinLaterError
from pinlater.domain.job import NewJob
from pinlater.sharding.shards import ShardLanes
from pinlater.storage.interface import Inserted, InsertRequest
from pinlater.storage.memory import MemoryShard

MIB = 1 << 20


class WatchedShard(MemoryShard):
    """Notes how many bytes of bodies each call brings."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes: list[int] = []

    async def insert_jobs(self, requests: Sequence[InsertRequest], now_ms: int) -> Sequence[Inserted | PinLaterError]:
        self.bytes.append(sum(len(job.body) for request in requests for job in request.jobs))
        return await super().insert_jobs(requests, now_ms)


async def test_large_bodies_are_spread_over_several_calls() -> None:
    clock, shard = ManualClock(), WatchedShard()
    await shard.open(clock.now_ms())
    await shard.create_queues(["q"], clock.now_ms())
    lanes = ShardLanes(shard, clock)
    body = b"x" * MIB
    requests = [InsertRequest("q", [NewJob(i, body, 1, clock.now_ms(), 1)]) for i in lanes.ids.make(100)]
    await asyncio.gather(*[lanes.insert.submit(request) for request in requests])
    assert sum(shard.bytes) == 100 * MIB
    assert max(shard.bytes) <= 20 * MIB
    await lanes.close()
