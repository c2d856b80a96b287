"""Client processes that run the production worker: its consumers, its reports, and the heartbeater, on a loop of its own.

What the real worker has in threads beside its event loop is a second loop of the same process here. Not part of it: signals, probes, cron,
and handlers in threads and processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from pinlater.client import Ack, Checkpoint, Claim, ClaimedJob
from pinlater.client.values import AckBatch, AckResult, Dequeued
from pinlater.worker import Snooze, Worker
from pinlater.worker._consumer.consumer import Consumer
from pinlater.worker._consumer.worker_run import WorkerRun
from pinlater.worker._leases.heartbeater import Heartbeater
from pinlater.worker._leases.loop_watchdog import LoopWatchdog
from pinlater.worker.settings import WorkerSettings
from tests.simulation.loop import ProcessLoop, new_process
from tests.simulation.workload import Process, SimulatedClient, Trace

_GRACE_MS = 2_000


class RecordingClient(SimulatedClient):
    """Writes down what a worker asks and is told. `trace`, `name` and `claim_timeout_ms` are set once it is made."""

    trace: Trace
    name: str
    claim_timeout_ms: int

    async def dequeue(
        self,
        queue: str,
        limit: int = 1,
        *,
        wait_ms: int = 0,
        acks: AckBatch | None = None,
        dry_run: bool = False,
        coverage: float = 1.0,
    ) -> Dequeued:
        self.trace.operations += 1
        riding = (
            None
            if acks is None
            else self._ends([(one.descriptor, one.token or "", one.succeeded) for one in acks.acks])
        )
        call = self.trace.call("claim", worker=self.name, queue=queue, timeout_ms=self.claim_timeout_ms)
        dequeued = await super().dequeue(queue, limit, wait_ms=wait_ms, acks=acks, dry_run=dry_run, coverage=coverage)
        if riding is not None:
            self._ended(riding, dequeued.ack_results)
        jobs = [[job.descriptor, job.token, job.body.decode()] for job in dequeued.jobs]
        self.trace.answer(call, jobs=jobs)
        return dequeued

    async def ack(self, queue: str, acks: Sequence[Ack], *, per_item_errors: bool = False) -> list[AckResult]:
        call = self._ends([(one.descriptor, one.token or "", one.succeeded) for one in acks])
        return self._ended(call, await super().ack(queue, acks, per_item_errors=per_item_errors))

    async def release(
        self, queue: str, claims: Sequence[Claim], *, delay_ms: int = 0, per_item_errors: bool = False
    ) -> list[AckResult]:
        call = self._ends([(one.descriptor, one.token, False) for one in claims])
        released = await super().release(queue, claims, delay_ms=delay_ms, per_item_errors=per_item_errors)
        return self._ended(call, released)

    async def checkpoint(
        self, queue: str, items: Sequence[Checkpoint], *, per_item_errors: bool = False
    ) -> list[AckResult]:
        call = self._ends([(one.descriptor, one.token or "", False) for one in items])
        return self._ended(call, await super().checkpoint(queue, items, per_item_errors=per_item_errors))

    async def heartbeat(self, queue: str, claims: Sequence[Claim], *, per_item_errors: bool = False) -> list[AckResult]:
        self.trace.operations += 1
        calls = [self.trace.call("heartbeat", descriptor=one.descriptor, token=one.token) for one in claims]
        results = await super().heartbeat(queue, claims, per_item_errors=per_item_errors)
        for call, result in zip(calls, results, strict=True):
            if result.error is None:
                self.trace.answer(call, outcome=int(result.outcome))
        return results

    def _ends(self, acks: Sequence[tuple[str, str, bool]]) -> int:
        self.trace.operations += 1
        return self.trace.call("ack", acks=acks, client=self.name)

    def _ended(self, call: int, results: Sequence[AckResult]) -> list[AckResult]:
        outcomes = [None if result.error is not None else int(result.outcome) for result in results]
        if outcomes:
            self.trace.answer(call, outcomes=outcomes)
        return list(results)


class SimulatedHeartbeater(Heartbeater):
    """Runs on a loop of the simulation instead of in a thread."""

    def __init__(self, background: ProcessLoop, client: RecordingClient, process: Process) -> None:
        super().__init__(client.unopened_copy, process.clock, client.unread)
        self._background = background

    def start(self) -> None:
        watchdog = LoopWatchdog(asyncio.get_running_loop(), self.leases.lock, self._background.time)
        self._background.create_task(self.run(watchdog, lambda: None))


class SimulatedWorkerProcess(Process):
    """A process that runs a worker."""

    def __init__(self, name: str, *args: Any) -> None:
        super().__init__(name, *args)
        self._background = new_process(self._timeline, f"{name}'s heartbeats", name, self.loop.network)
        self.loops.append(self._background)
        self._run: WorkerRun | None = None

    def _make_client(self, servers: Sequence[str], **more: Any) -> SimulatedClient:
        client = RecordingClient(servers, **more)
        client.trace, client.name, client.claim_timeout_ms = self.trace, self.name, self.load.claim_timeout_ms
        return client

    def finish(self) -> None:
        super().finish()
        if self._run is not None:
            self.loop.call_soon(self._run.stop.set)

    async def work(self, queues: Sequence[str]) -> None:
        load = self.load
        settings = WorkerSettings(
            concurrency=self.dice.choice((1, 4)),
            prefetch_max=self.dice.choice((0, 8)),
            wait_ms=load.wait_ms,
            retry_delay_ms=100,
            grace_ms=_GRACE_MS,
            unknown_task_delay_ms=100,
        )
        client = self.client
        assert isinstance(client, RecordingClient)
        worker = Worker(client, settings=settings, clock=self.clock)
        for queue in dict.fromkeys(queues):
            worker.task(queue, name=queue)(self._run_job)
        chosen = worker._registry.chosen(None)
        heartbeater = SimulatedHeartbeater(self._background, client, self)
        run = self._run = worker._run_with(client, settings, heartbeater, chosen)
        run.consumers.extend(Consumer(run, name, queue.tasks, queue.default()) for name, queue in chosen.items())
        heartbeater.start()
        if not self.working:
            run.stop.set()
        async with asyncio.TaskGroup() as group:
            for consumer in run.consumers:
                group.create_task(consumer.run())
        heartbeater.request_stop()

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
            self._background.call_later(self.dice.uniform(0.5, 3), self.loop.resume)
            await asyncio.sleep(0)
