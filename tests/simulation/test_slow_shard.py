"""A shard that answers all its servers, and takes longer than a dequeue waits for one shard of several."""

from __future__ import annotations

import asyncio

import pytest

from pinlater.client import Job
from pinlater.simulation.store_trouble import StoreTrouble
from tests.simulation.test_owners import Scene

pytestmark = pytest.mark.usefixtures("collected")

# Each call takes up to this long, on the average 0.6 of it.
_LATENCY_S = 1.0
# A few calls: the search that finds the job, after one that was under way when it came, and its enqueue was told of.
_SOON_S = 5.0


@pytest.mark.parametrize("seed", range(3))
def test_dequeues_that_wait_get_the_jobs_of_a_slow_shard(seed: int) -> None:
    """By way of its owner, and of other servers."""

    async def work(scene: Scene) -> None:
        timeline = scene.timeline
        servers = scene.cluster.servers
        producer = scene.client("producer", servers[0])
        workers = [scene.client(f"worker{index}", server) for index, server in enumerate(servers)]
        await scene.done(producer, producer.client.create_queue("q"))
        await asyncio.sleep(2.0)
        scene.stores[1].trouble = StoreTrouble(latency_s=_LATENCY_S)
        took_s: list[float] = []
        for index in range(20):
            worker = workers[index % len(workers)]
            waiting = worker.start(worker.client.dequeue("q", 1, wait_ms=15_000))
            await asyncio.sleep(0.3)
            enqueuing = producer.start(producer.client.enqueue("q", [Job(b"x")]))
            while not enqueuing.done():
                await asyncio.sleep(0.01)
            stored_s = timeline.now_s
            while not waiting.done():
                await asyncio.sleep(0.01)
            assert len(waiting.result().jobs) == 1, took_s
            took_s.append(timeline.now_s - stored_s)
        assert max(took_s) < _SOON_S, took_s

    Scene(3, 2, seed).run(work)
