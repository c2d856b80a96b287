"""The workers of a scenario: production workers, each restarted by a supervisor after a kill."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from pinlater.client import ClaimedJob
from pinlater.simulation.client import ClientProcess, RecordingClient, SimulatedClient
from pinlater.simulation.cluster import SimulatedCluster
from pinlater.simulation.loop import ProcessState
from pinlater.simulation.measure import Measure
from pinlater.simulation.trace import Trace
from pinlater.simulation.worker import WorkerInProcess
from pinlater.worker.settings import WorkerSettings


class HandlerFailed(Exception):
    """The error that a simulated handler raises in the share of attempts that fail."""


class WorkerProcess(ClientProcess):
    """A simulated process that runs a worker. `claim_timeout_ms`: how long its claims last."""

    def __init__(
        self, name: str, host: str, cluster: SimulatedCluster, seed: int, trace: Trace, claim_timeout_ms: int
    ) -> None:
        self._claim_timeout_ms = claim_timeout_ms
        # Like the client of a real worker, which retries by itself.
        super().__init__(
            name,
            cluster.timeline,
            cluster.network,
            cluster.addresses,
            seed,
            trace,
            host=host,
            wait_for_servers=False,
        )
        self.worker = WorkerInProcess(self)

    def _make_client(self, servers: Sequence[str], **more: Any) -> SimulatedClient:
        client = RecordingClient(servers, **more)
        client.trace, client.name, client.claim_timeout_ms = self.trace, self.name, self._claim_timeout_ms
        return client


class SupervisedWorker:
    """A worker and its supervisor. `make` makes its process, from the names of the process and its machine.

    `handler_s`: how long a handler takes on average; the times are exponentially distributed.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[str, str], WorkerProcess],
        queues: Sequence[str],
        concurrency: int,
        handler_s: float,
        failing: float,
        measure: Measure,
    ) -> None:
        self.name = name
        self._make = make
        self._queues = queues
        self._settings = WorkerSettings(concurrency=concurrency)
        self._handler_s = handler_s
        self._failing = failing
        self._measure = measure
        self._starts = 0
        self._process: WorkerProcess | None = None
        self._work: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts a new process, unless there is one."""
        if self._process is None or self._process.loop.state is ProcessState.DEAD:
            self._starts += 1
            process = self._process = self._make(f"{self.name}-{self._starts}", self.name)
            self._work = process.start(process.worker.run(self._queues, self._settings, self._handle))

    def kill(self) -> None:
        """Ends the worker as SIGKILL does."""
        if self._process is not None:
            self._process.kill()
            for loop in self._process.loops:
                if loop.network is not None:
                    loop.network.process_died(loop, told=True)

    def suspend(self) -> None:
        """Suspends the worker as SIGSTOP does."""
        if self._process is not None:
            self._process.pause()

    def resume(self) -> None:
        """Continues the worker as SIGCONT does."""
        if self._process is not None:
            self._process.resume()

    def stop(self) -> None:
        """Stops the worker as SIGTERM does."""
        if self._process is not None:
            self._process.worker.stop()

    @property
    def over(self) -> bool:
        """Whether it has ended after `stop`."""
        return self._work is None or self._work.done()

    def raise_error(self) -> None:
        """Raises the error with which the worker ended."""
        if self._work is not None and self._work.done():
            self._work.result()

    async def _handle(self, job: ClaimedJob) -> None:
        process = self._process
        assert process is not None
        if job.attempt == 1 and job.created_at_ms is not None:
            self._measure.started(job.descriptor, job.created_at_ms, process.clock.now_ms())
        if self._handler_s:
            await asyncio.sleep(process.dice.expovariate(1 / self._handler_s))
        if process.dice.random() < self._failing:
            raise HandlerFailed("simulated")
