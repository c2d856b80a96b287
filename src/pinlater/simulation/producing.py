"""The producers of a scenario: they enqueue at random times, whether or not earlier enqueues have been answered."""

from __future__ import annotations

import asyncio

from pinlater.client import Job
from pinlater.client.values import QueueConfig
from pinlater.simulation.client import ClientProcess
from pinlater.simulation.cluster import SimulatedCluster
from pinlater.simulation.measure import Measure
from pinlater.simulation.scenario import QueueLoad
from pinlater.simulation.trace import Trace


class ProducerProcess(ClientProcess):
    """One process that enqueues. A request that fails is repeated under its request key for a minute and a half."""

    def __init__(self, name: str, cluster: SimulatedCluster, seed: int, trace: Trace, measure: Measure) -> None:
        super().__init__(name, cluster.timeline, cluster.network, cluster.addresses, seed, trace)
        self._measure = measure
        self._sending: set[asyncio.Task[None]] = set()

    @property
    def unanswered(self) -> int:
        """How many of its requests have no answer yet."""
        return len(self._sending)

    async def create(self, queues: list[str], config: QueueConfig) -> None:
        for queue in queues:
            await self._until_answered(lambda queue=queue: self.client.create_queue(queue))  # type: ignore[misc]
            await self._until_answered(lambda queue=queue: self.client.configure_queue(queue, config))  # type: ignore[misc]

    async def produce(self, load: QueueLoad, rate: float, batch: int, until_s: float) -> None:
        """Sends requests of `batch` jobs, `rate` jobs a second on average, as a Poisson process."""
        number = 0
        while True:
            await asyncio.sleep(self.dice.expovariate(rate / batch))
            if self._timeline.now_s >= until_s:
                return
            number += 1
            sending = self.loop.create_task(self._send(load.name, number, batch))
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)

    async def _send(self, queue: str, number: int, batch: int) -> None:
        key = f"{self.name}-{queue}-{number}"
        jobs = [Job(f"{key}-{index}".encode()) for index in range(batch)]
        began_s = self._timeline.now_s
        answer = await self._enqueue_until_answered(queue, key, jobs)
        if answer is not None:
            self._measure.enqueued(queue, began_s, self._timeline.now_s, len(answer.descriptors))
