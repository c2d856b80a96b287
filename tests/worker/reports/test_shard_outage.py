"""The worker while one of two shards is unreachable: two private Redis servers behind a real server, one of them killed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from pinlater.client import AsyncClient, ClaimedJob, JobState
from pinlater.domain.queue import QueueConfig
from pinlater.testing.real_server import RealServer
from pinlater.worker import Worker, WorkerSettings
from tests.databases.redis import RedisServer
from tests.worker.conftest import eventually
from tests.worker.test_worker import running

DEADLINE_S = 60.0
# Enough at once that jobs of both shards are claimed.
FAST = WorkerSettings(
    concurrency=100, prefetch_max=0, wait_ms=500, backoff_first_ms=20, backoff_max_ms=200, grace_ms=5_000
)


def shard_of(descriptor: str) -> str:
    return descriptor.split(":")[1].removeprefix("s")


class TwoShards:
    """A server on two shards, `1` and `2`, each on its own Redis, and a client with a queue `q`."""

    def __init__(self, redis: dict[str, RedisServer], client: AsyncClient) -> None:
        self.redis = redis
        self.client = client

    async def enqueue(self, *, on_each: int) -> dict[str, list[str]]:
        """Enqueues at least that many jobs on each shard. Returns their descriptors by shard."""
        placed: dict[str, list[str]] = {"1": [], "2": []}
        while min(map(len, placed.values())) < on_each:
            [descriptor] = (await self.client.enqueue("q", [b"x"])).descriptors
            placed[shard_of(descriptor)].append(descriptor)
        return placed

    async def take_away(self, name: str, descriptor: str) -> None:
        """Kills the shard and waits until the server knows. `descriptor`: any job there."""
        self.redis[name].kill()

        async def is_away() -> bool:
            try:
                await self.client.lookup([descriptor])
            except Exception:  # noqa: BLE001 - whatever it says, the shard did not answer
                return True
            return False

        await eventually(is_away, DEADLINE_S)

    async def succeeded(self, descriptors: list[str]) -> bool:
        """Whether all of them succeeded at their first attempt."""
        try:
            found = await self.client.lookup(descriptors)
        except Exception:  # noqa: BLE001 - the shard is not back yet
            return False
        return len(found) == len(descriptors) and all(info.state is JobState.SUCCEEDED for info in found.values())


@pytest.fixture
async def two_shards(tmp_path: Path, start_redis: Callable[..., RedisServer]) -> AsyncIterator[TwoShards]:
    redis = {"1": start_redis(), "2": start_redis()}
    file = tmp_path / "shards.json"
    places = {name: {"host": server.host, "port": server.port} for name, server in redis.items()}
    file.write_text(json.dumps({"shards": [{"name": n, "shardConfig": {"master": at}} for n, at in places.items()]}))
    with RealServer(tmp_path, store=f"redis:{file}") as server:
        async with AsyncClient(server.address, source="test", retries=0) as client:
            await client.create_queue("q")
            await client.configure_queue("q", QueueConfig(partitions=2))
            yield TwoShards(redis, client)


@pytest.mark.timeout(180)
async def test_a_dead_shard_does_not_stop_a_worker_on_the_others(two_shards: TwoShards) -> None:
    placed = await two_shards.enqueue(on_each=5)
    in_hand = {*placed["1"], *placed["2"]}
    may_end, begun = asyncio.Event(), set[str]()
    worker = Worker(two_shards.client, settings=FAST)

    @worker.task("q")
    async def handle(job: ClaimedJob) -> None:
        begun.add(job.descriptor)
        await may_end.wait()

    async with running(worker):
        await eventually(lambda: begun == in_hand, DEADLINE_S)
        await two_shards.take_away("2", placed["2"][0])
        may_end.set()
        for _ in range(20):  # they come while the acks of the other shard can't be delivered
            [later] = (await two_shards.client.enqueue("q", [b"later"])).descriptors
            placed["1"].append(later)
            await eventually(lambda: two_shards.succeeded([later]))  # noqa: B023 - called in this turn
        await eventually(lambda: two_shards.succeeded(placed["1"]), DEADLINE_S)
        assert not two_shards.redis["2"].running
        await asyncio.to_thread(two_shards.redis["2"].start)
        await eventually(lambda: two_shards.succeeded(placed["2"]), DEADLINE_S)
    assert worker.counts.acks_refused == 0
    assert worker.counts.claimed == len(in_hand) + 20
