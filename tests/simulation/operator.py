"""A process that changes a queue's settings while it is used: pauses and resumes, rate limits, bounds, partitions."""

from __future__ import annotations

import asyncio
import contextlib

from pinlater.client import QueueConfig
from pinlater.client.errors import PinLaterError
from tests.simulation.workload import Process

_RATES = (None, 0.0, 2.0, 20.0)
# More than any load has waiting; that a change came through is seen by it.
_BACKLOGS = (100_000, 200_000, 300_000)
# More than there are shards are refused.
_PARTITIONS = (None, 1, 2, 3)


class Operator(Process):
    """Changes settings; what was answered last should hold on every shard in the end."""

    async def operate(self, queue: str, changes: int, pause_s: float) -> None:
        """Makes this number of changes, each tried once."""
        for _ in range(changes):
            await asyncio.sleep(self.dice.expovariate(1 / pause_s))
            with contextlib.suppress(PinLaterError):
                await self._call(self._change(queue))

    async def _change(self, queue: str) -> None:
        roll = self.dice.random()
        config = QueueConfig(
            max_jobs_per_second=self.dice.choice(_RATES),
            max_backlog=self.dice.choice(_BACKLOGS),
            partitions=self.dice.choice(_PARTITIONS),
        )
        if roll < 0.3:
            await self._pause(queue)
        elif roll < 0.5:
            await self._resume(queue)
        else:
            await self._configure(queue, config)

    async def settle(self, queue: str) -> QueueConfig:
        """Ends every pause and limit, until it is answered; the settings that hold from now on."""
        config = QueueConfig(max_backlog=self.dice.choice(_BACKLOGS))
        await self.resume_queue(queue)
        await self._until_answered(lambda: self._configure(queue, config))
        return config

    async def divide(self, queue: str, partitions: int | None) -> None:
        """Gives the queue this number of partitions, until it is answered."""
        await self._until_answered(lambda: self._configure(queue, QueueConfig(partitions=partitions)))

    async def pause_queue(self, queue: str) -> None:
        """Until it is answered."""
        await self._until_answered(lambda: self._pause(queue))

    async def resume_queue(self, queue: str) -> None:
        """Until it is answered."""
        await self._until_answered(lambda: self._resume(queue))

    async def _pause(self, queue: str) -> None:
        self.trace.note("operator pauses the queue")
        await self.client.pause_queue(queue)
        self.trace.note("the pause is answered")

    async def _resume(self, queue: str) -> None:
        self.trace.note("operator resumes the queue")
        await self.client.resume_queue(queue)
        self.trace.note("the resumption is answered")

    async def _configure(self, queue: str, config: QueueConfig) -> None:
        self.trace.note(f"operator configures the queue: {config}")
        await self.client.configure_queue(queue, config)
        self.trace.note("the configuration is answered")
