"""The production worker in a simulated process: its consumers, its reports, and the heartbeater, on a loop of its own.

The part of the real worker that runs in threads beside its event loop has a second loop of the same process here. Not part of it:
signals, probes, cron, and handlers in threads and processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from zlib import crc32

from pinlater.client import ClaimedJob, WorkerInfo
from pinlater.simulation.client import ClientProcess, RecordingClient
from pinlater.simulation.loop import ProcessLoop, new_process
from pinlater.worker import Worker
from pinlater.worker._consumer.consumer import Consumer
from pinlater.worker._consumer.worker_run import WorkerRun
from pinlater.worker._outbox.blocked_loop import LoopWatchdog
from pinlater.worker._outbox.heartbeater import Heartbeater, Service
from pinlater.worker.settings import WorkerSettings


class SimulatedHeartbeater(Heartbeater):
    """Runs on a loop of the simulation instead of in a thread."""

    def __init__(self, background: ProcessLoop, client: RecordingClient, process: ClientProcess) -> None:
        super().__init__(client.unopened_copy, process.clock, client.unread)
        self._background = background

    def start(self, *services: Service) -> None:
        assert not services
        watchdog = LoopWatchdog(asyncio.get_running_loop(), self.leases.lock, self._background.time)
        self._background.create_task(self.run(watchdog, Future(), {}))


class WorkerInProcess:
    """Runs a worker in a client process, whose client must be a `RecordingClient`."""

    def __init__(self, process: ClientProcess) -> None:
        self._process = process
        loop = process.loop
        self.background = new_process(loop.timeline, f"{process.name}'s heartbeats", loop.host, loop.network)
        process.loops.append(self.background)
        self._run: WorkerRun | None = None
        self._stops = False

    def stop(self) -> None:
        """Stops the worker: it claims no more jobs, finishes the running ones, and ends."""
        self._stops = True
        if self._run is not None:
            self._process.loop.call_soon(self._run.stop.set)

    async def run(
        self, queues: Sequence[str], settings: WorkerSettings, handler: Callable[[ClaimedJob], Awaitable[None]]
    ) -> None:
        """Runs `handler` for the jobs of the queues until it is stopped."""
        client = self._process.client
        assert isinstance(client, RecordingClient)
        worker = Worker(client, settings=settings, clock=self._process.clock)
        for queue in dict.fromkeys(queues):
            worker.task(queue, name=queue)(handler)
        chosen = worker._registry.chosen(None)
        heartbeater = SimulatedHeartbeater(self.background, client, self._process)
        name = self._process.name
        info = WorkerInfo("python", "", name, 1, settings.concurrency)  # the same in each run of a seed
        run = self._run = worker._run_with(
            client, settings, heartbeater, chosen, number=1 + crc32(name.encode()) // 2, info=info
        )
        consumers = [Consumer(run, name, queue.tasks, queue.default()) for name, queue in chosen.items()]
        heartbeater.start()
        if self._stops:
            run.stop.set()
        async with asyncio.TaskGroup() as group:
            for consumer in consumers:
                group.create_task(consumer.run())
        heartbeater.request_stop()
