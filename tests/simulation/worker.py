"""Client processes that run the production worker, with handlers that misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from pinlater.client import ClaimedJob
from pinlater.simulation.client import RecordingClient, SimulatedClient
from pinlater.simulation.worker import WorkerInProcess
from pinlater.worker import Snooze
from pinlater.worker.settings import WorkerSettings
from tests.simulation.workload import Process

_GRACE_MS = 2_000


class SimulatedWorkerProcess(Process):
    """A process that runs a worker."""

    def __init__(self, name: str, *args: Any) -> None:
        super().__init__(name, *args)
        self._worker = WorkerInProcess(self)

    def _make_client(self, servers: Sequence[str], **more: Any) -> SimulatedClient:
        client = RecordingClient(servers, **more)
        client.trace, client.name, client.claim_timeout_ms = self.trace, self.name, self.load.claim_timeout_ms
        return client

    def finish(self) -> None:
        super().finish()
        self._worker.stop()

    async def work(self, queues: Sequence[str]) -> None:
        settings = WorkerSettings(
            concurrency=self.dice.choice((1, 4)),
            prefetch_max=self.dice.choice((0, 8)),
            wait_ms=self.load.wait_ms,
            retry_delay_ms=100,
            grace_ms=_GRACE_MS,
            unknown_task_delay_ms=100,
        )
        await self._worker.run(queues, settings, self._run_job)

    async def _run_job(self, job: ClaimedJob) -> None:
        """A handler: mostly quick, at times longer than its claim, failing, putting off, or blocking the loop."""
        del job
        timeout_s, roll = self.load.claim_timeout_ms / 1000, self.dice.random()
        if self.ends_soon or roll < 0.6:
            await asyncio.sleep(self.dice.random() * min(0.1, timeout_s / 4))
        elif roll < 0.75:
            await asyncio.sleep(timeout_s * self.dice.uniform(1, 3))
        elif roll < 0.85:
            raise ValueError("a handler that fails")
        elif roll < 0.95:
            raise Snooze(0.2)
        else:
            self.loop.pause()
            self._worker.background.call_later(self.dice.uniform(0.5, 3), self.loop.resume)
            await asyncio.sleep(0)
