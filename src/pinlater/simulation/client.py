"""The client processes: production `AsyncClient`s over the simulated network, which record the answers that they get."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any, TypeVar

from pinlater.client import Ack, AsyncClient, Checkpoint, Claim, Job
from pinlater.client._engine import Engine
from pinlater.client._retries import is_unsent
from pinlater.client._servers import ServerSource
from pinlater.client.errors import PinLaterError, QueueNotFound
from pinlater.client.values import AckBatch, AckResult, Dequeued, Enqueued
from pinlater.simulation.cluster import STARTS_AT_S
from pinlater.simulation.loop import Timeline, new_process
from pinlater.simulation.network import Network
from pinlater.simulation.trace import Trace

T = TypeVar("T")
# Request keys are kept for two minutes, so no client repeats a request that is older.
_ENQUEUE_DEADLINE_S = 90.0


class ClientClock:
    """A `domain.clock.Clock` of a simulated client."""

    def __init__(self, timeline: Timeline) -> None:
        self.monotonic = timeline.monotonic

    def now_ms(self) -> int:
        return round((STARTS_AT_S + self.monotonic()) * 1000)


class SimulatedClient(AsyncClient):
    """A client whose random numbers and timers are the simulation's. A client that follows the owners of queues asks for them with its
    first call."""

    def __init__(self, servers: Sequence[str], random: Random, timeline: Timeline, **more: Any) -> None:
        self._dice = random
        self._timeline = timeline
        super().__init__(servers, clock=ClientClock(timeline), **more)

    def _new_engine(self, enqueue_servers: ServerSource | None = None) -> Engine:
        options = self._engine_options._replace(
            monotonic=self._timeline.monotonic,
            loop_time=self._timeline.monotonic,
            random=self._dice,
            wait_for_servers=self._wait_for_servers,
            follow_owners=self._follow_owners if enqueue_servers is None else False,
        )
        engine = Engine(enqueue_servers or self._servers, self.source, options)
        if engine.owners is not None:
            engine.owners.ask_with_the_next_call()
        return engine


class RecordingClient(SimulatedClient):
    """Records the requests and answers of a worker. `trace`, `name` and `claim_timeout_ms` are set after it is made."""

    trace: Trace
    name: str
    claim_timeout_ms: int

    async def dequeue(self, queue: str, limit: int = 1, *, acks: AckBatch | None = None, **more: Any) -> Dequeued:
        self.trace.operations += 1
        riding = None
        if acks is not None:
            riding = self._ends([(one.descriptor, one.token or "", one.succeeded) for one in acks.acks])
        call = self.trace.call("claim", worker=self.name, queue=queue, timeout_ms=self.claim_timeout_ms)
        with self.trace.counting_errors("dequeue"):
            dequeued = await super().dequeue(queue, limit, acks=acks, **more)
        if riding is not None:
            self._ended(riding, dequeued.ack_results)
        jobs = [[job.descriptor, job.token, job.body.decode()] for job in dequeued.jobs]
        self.trace.answer(call, jobs=jobs)
        return dequeued

    async def ack(self, queue: str, acks: Sequence[Ack], **more: Any) -> list[AckResult]:
        call = self._ends([(one.descriptor, one.token or "", one.succeeded) for one in acks])
        with self.trace.counting_errors("ack"):
            results = await super().ack(queue, acks, **more)
        return self._ended(call, results)

    async def release(self, queue: str, claims: Sequence[Claim], **more: Any) -> list[AckResult]:
        call = self._ends([(one.descriptor, one.token, False) for one in claims])
        with self.trace.counting_errors("release"):
            released = await super().release(queue, claims, **more)
        return self._ended(call, released)

    async def checkpoint(self, queue: str, items: Sequence[Checkpoint], **more: Any) -> list[AckResult]:
        call = self._ends([(one.descriptor, one.token or "", False) for one in items])
        with self.trace.counting_errors("checkpoint"):
            results = await super().checkpoint(queue, items, **more)
        return self._ended(call, results)

    async def heartbeat(self, queue: str, claims: Sequence[Claim], **more: Any) -> list[AckResult]:
        self.trace.operations += 1
        calls = [self.trace.call("heartbeat", descriptor=one.descriptor, token=one.token) for one in claims]
        with self.trace.counting_errors("heartbeat"):
            results = await super().heartbeat(queue, claims, **more)
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


class ClientProcess:
    """One client process. Its client records nothing by itself. `host`: its machine; by default one of its own."""

    def __init__(
        self,
        name: str,
        timeline: Timeline,
        network: Network,
        servers: Sequence[str],
        seed: object,
        trace: Trace,
        *,
        host: str = "",
        **client_options: Any,
    ) -> None:
        self.name = name
        self.loop = new_process(timeline, name, host or name, network)
        self.loops = [self.loop]
        self.dice = Random(f"{seed} {name}")
        self.trace = trace
        self.errors = Counter[str]()
        self.clock = ClientClock(timeline)
        self._timeline = timeline
        self.client = self._make_client(
            servers, random=Random(f"{seed} {name} client"), timeline=timeline, source=name, **client_options
        )
        self._tasks: set[asyncio.Task[Any]] = set()

    def _make_client(self, servers: Sequence[str], **more: Any) -> SimulatedClient:
        return SimulatedClient(servers, **more)

    def kill(self) -> None:
        """Stops its processes as SIGKILL does."""
        for loop in self.loops:
            loop.kill()

    def pause(self) -> None:
        """Suspends its processes as SIGSTOP does."""
        for loop in self.loops:
            loop.pause()

    def resume(self) -> None:
        """Continues its processes as SIGCONT does."""
        for loop in self.loops:
            loop.resume()

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begins a coroutine in this process."""
        task = self.loop.create_task(self._opened(work))
        self._tasks.add(task)
        return task

    async def _opened(self, work: Coroutine[Any, Any, T]) -> T:
        await self.client.open()
        return await work

    async def _call(self, call: Coroutine[Any, Any, T]) -> T:
        """A call of the client, counted."""
        self.trace.operations += 1
        try:
            return await call
        except PinLaterError as error:
            what = f"{type(error).__name__} {error.detail}".strip()
            self.errors[what] += 1
            self.trace.note(f"{self.name}: {what}: {error.message}")
            raise

    async def _until_answered(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        while True:
            try:
                return await self._call(call())
            except PinLaterError:
                await asyncio.sleep(0.1)

    async def _enqueue_until_answered(
        self, queue: str, key: str, jobs: Sequence[Job], *, may_be_deleted: bool = False
    ) -> Enqueued | None:
        """Sends one request; sends it as a repeat once it may have taken effect. Returns None if it was not answered. Records no answer
        if another job has the unique key, because the request stored nothing.
        """
        bodies = [job.body.decode() for job in jobs]
        keys = [job.ordering_key for job in jobs]
        ordered = {"ordering_keys": keys} if any(keys) else {}
        call = self.trace.call("enqueue", client=self.name, queue=queue, bodies=bodies, **ordered)
        repeat, ends_at_s = False, self._timeline.now_s + _ENQUEUE_DEADLINE_S
        while self._timeline.now_s < ends_at_s:
            try:
                with self.trace.counting_errors("enqueue"):
                    enqueued = await self._call(self.client.enqueue(queue, jobs, request_key=key, repeat=repeat))
            except QueueNotFound:
                if may_be_deleted:
                    return None
            except PinLaterError as error:
                repeat = repeat or not is_unsent(error)
            else:
                if not enqueued.existing:
                    self.trace.answer(call, descriptors=list(enqueued.descriptors))
                return enqueued
            await asyncio.sleep(self.dice.uniform(0.02, 0.3))
        return None
