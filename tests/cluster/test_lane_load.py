"""How busy the lanes to a shard are."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from pinlater.domain.clock import ManualClock
from pinlater.server.sharding.lane_load import LaneLoads
from pinlater.server.sharding.shard_lanes import WHOLE_UP_TO_ELSEWHERE, ShardLanes
from pinlater.server.sharding.shards import Shards
from pinlater.server.storage.commands import InsertJobs, create_queues
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.server.storage.values import InsertRequest, NewJob
from tests.sharding.faulty import FaultyShard


class Lanes:
    """A shard whose inserts take as long as the test says."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = FaultyShard(MemoryShard("s"))

    async def open(self) -> LaneLoads:
        await self.store.open(self.clock.now_ms())
        await self.store.submit(create_queues(["q"], self.clock.now_ms()))
        self.shard = ShardLanes(self.store, self.clock)
        return LaneLoads(Shards([self.shard], Random(1)), self.clock.monotonic)

    async def insert(self, requests: int, seconds: float) -> None:
        """One call with this number of requests."""
        fault = self.store.hangs(InsertJobs)
        now_ms = self.clock.now_ms()
        waiting = [
            self.shard.insert.submit(InsertRequest("q", [NewJob(job_id, b"x", 1, now_ms, 1)]))
            for job_id in self.shard.ids.make(requests)
        ]
        await asyncio.sleep(0)
        self.clock.advance(ms=round(seconds * 1000))
        fault.release()
        await asyncio.gather(*waiting)


@pytest.mark.parametrize(
    ("requests", "seconds", "load"),
    [
        (WHOLE_UP_TO_ELSEWHERE, 5.0, 1.0),
        (WHOLE_UP_TO_ELSEWHERE, 4.0, 0.8),
        (WHOLE_UP_TO_ELSEWHERE // 2, 4.0, 0.4),
        (1, 5.0, 0.04),
    ],
)
async def test_a_lane_is_busy_while_a_call_is_under_way_as_far_as_the_call_is_full(
    requests: int, seconds: float, load: float
) -> None:
    """A lane whose calls follow one another without being full can do much more."""
    lanes = Lanes()
    loads = await lanes.open()
    assert loads.of == {}
    await lanes.insert(requests, seconds)
    lanes.clock.advance(ms=round((5.0 - seconds) * 1000))
    loads.look()
    assert loads.of == {"s": load}
    lanes.clock.advance(seconds=4)
    loads.look()
    assert loads.of == {"s": load}
    lanes.clock.advance(seconds=1)
    loads.look()
    assert loads.of == {"s": 0.0}
    await lanes.shard.close()


async def test_a_call_that_is_still_under_way_counts() -> None:
    lanes = Lanes()
    loads = await lanes.open()
    fault = lanes.store.hangs(InsertJobs)
    now_ms = lanes.clock.now_ms()
    ids = lanes.shard.ids.make(WHOLE_UP_TO_ELSEWHERE)
    waiting = [lanes.shard.insert.submit(InsertRequest("q", [NewJob(each, b"x", 1, now_ms, 1)])) for each in ids]
    await asyncio.sleep(0)
    lanes.clock.advance(seconds=5)
    loads.look()
    assert loads.of == {"s": 1.0}
    fault.release()
    await asyncio.gather(*waiting)
    await lanes.shard.close()
