"""Where the jobs that tasks enqueue go: one client for a worker's tasks, from whatever thread or loop they are enqueued.

On a server that keeps no headers the envelope goes into the body; which kind it is, is asked once, before the first job.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from os import PathLike
from typing import TypeVar

from pinlater.client import _calls
from pinlater.client._calls import Call
from pinlater.client.async_client import AsyncClient
from pinlater.client.batching import Placed
from pinlater.client.errors import QueueNotFound, UnknownMethod
from pinlater.client.sync_client import Client
from pinlater.client.values import Enqueued, Job
from pinlater.domain.clock import Clock
from pinlater.worker import envelope

T = TypeVar("T")
Servers = str | PathLike[str] | Sequence[str] | None
_JOBS_A_REQUEST = 500
_BYTES_A_REQUEST = 4 * 1024 * 1024
_OWN = "own"


class Outbox:
    """Sends through the worker's client where that was given, else through a client of its own, made when first needed."""

    def __init__(self, servers: Servers | AsyncClient | Client, source: str | None, clock: Clock) -> None:
        self._servers = servers
        self._source = source
        self._clock = clock
        self._own: dict[str, Client] = {}
        self._keeps_headers: bool | None = None

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def use(self, client: AsyncClient) -> None:
        """From now on through this client, which is open."""
        self._servers = client
        self._keeps_headers = None

    @contextlib.contextmanager
    def redirected(self, client: Client, clock: Clock) -> Iterator[None]:
        """Meanwhile through this client, by this clock."""
        before = self._servers, self._clock, self._keeps_headers
        self._servers, self._clock, self._keeps_headers = client, clock, None
        try:
            yield
        finally:
            self._servers, self._clock, self._keeps_headers = before

    def send(self, queue: str, jobs: list[Job]) -> list[Placed]:
        """Stores the jobs. Raises what the client raises, and RuntimeError where it would block an event loop."""
        if _on_a_loop():
            raise RuntimeError("this would block the event loop: await the form that ends in _async")
        if self._keeps_headers is None:
            try:
                self._wait(_calls.server_info())
                self._keeps_headers = True
            except UnknownMethod:
                self._keeps_headers = False
        placed: list[Placed] = []
        with _saying_how_to_make(queue):
            for part in _parts(jobs):
                placed += _placed(self._wait(self._enqueue(queue, part)))
        return placed

    async def send_async(self, queue: str, jobs: list[Job]) -> list[Placed]:
        """`send`, for coroutines of any event loop."""
        if self._keeps_headers is None:
            try:
                await asyncio.wrap_future(self._client().submit(_calls.server_info()))
                self._keeps_headers = True
            except UnknownMethod:
                self._keeps_headers = False
        placed: list[Placed] = []
        with _saying_how_to_make(queue):
            for part in _parts(jobs):
                placed += _placed(await asyncio.wrap_future(self._client().submit(self._enqueue(queue, part))))
        return placed

    def create_queues(self, names: Sequence[str]) -> None:
        """Makes queues; those that exist stay as they are. Raises as `send` does."""
        if _on_a_loop():
            raise RuntimeError("this would block the event loop: await the form that ends in _async")
        for name in names:
            self._wait(_calls.create_queue(name))

    async def create_queues_async(self, names: Sequence[str]) -> None:
        """`create_queues`, for coroutines of any event loop."""
        for name in names:
            await asyncio.wrap_future(self._client().submit(_calls.create_queue(name)))

    def close(self) -> None:
        """Ends the client of its own."""
        for client in self._own.values():
            client.close()
        self._own.clear()

    def _enqueue(self, queue: str, jobs: list[Job]) -> Call[Enqueued]:
        sent = jobs if self._keeps_headers else [envelope.sealed_job(job) for job in jobs]
        return _calls.enqueue(queue, sent, _calls.new_request_key(self.now_ms()), False)

    def _wait(self, call: Call[T]) -> T:
        client = self._client()
        return client.carry_out(call) if isinstance(client, Client) else client.submit(call).result()

    def _client(self) -> AsyncClient | Client:
        if isinstance(self._servers, AsyncClient | Client):
            return self._servers
        own = self._own.get(_OWN)
        if own is None:  # two threads may come here at once: one client stays, the other never began
            own = self._own.setdefault(_OWN, Client(self._servers, source=self._source, clock=self._clock))
        return own


@contextlib.contextmanager
def _saying_how_to_make(queue: str) -> Iterator[None]:
    """Who meets a queue that isn't there has mostly just begun."""
    try:
        yield
    except QueueNotFound as error:
        error.add_note(
            f"Make it with `pinlater queue create {queue}`, or all of the worker's with worker.create_queues()."
        )
        raise


def _placed(enqueued: Enqueued) -> list[Placed]:
    existing = frozenset(enqueued.existing)
    return [Placed(descriptor, index in existing) for index, descriptor in enumerate(enqueued.descriptors)]


def _parts(jobs: list[Job]) -> list[list[Job]]:
    parts: list[list[Job]] = []
    size = 0
    for job in jobs:
        if not parts or len(parts[-1]) >= _JOBS_A_REQUEST or size + len(job.body) > _BYTES_A_REQUEST:
            parts.append([])
            size = 0
        parts[-1].append(job)
        size += len(job.body)
    return parts


def _on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
