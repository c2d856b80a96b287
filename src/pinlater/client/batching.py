"""Many enqueues of many tasks in few requests: whatever comes while a request is under way rides in the next.

No timer: a lone job goes out at once, and batches grow with the load. A job that the server refuses must harm no other: a refused
batch is sent once more in halves, each under a key of its own, which is safe since a refused request stores nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import NamedTuple, Self, cast

from pinlater.client import values
from pinlater.client.async_client import AsyncClient
from pinlater.client.errors import (
    CallerError,
    ClientClosed,
    PinLaterError,
    QueueNameInvalid,
    QueueNameTooLong,
    QueueNotFound,
    TooManyWaiting,
)

# Refusals that hold for every job of a request.
_OF_THE_QUEUE = (QueueNotFound, QueueNameInvalid, QueueNameTooLong, ClientClosed)
_JOBS_MAX = 1_000
_OVERHEAD_BYTES = 100  # what a job takes on the wire beside its body, about


class Placed(NamedTuple):
    """What became of one job. `existing`: it was there already under its unique key."""

    descriptor: str
    existing: bool = False


class _Entry(NamedTuple):
    job: values.Job | bytes
    done: asyncio.Future[Placed]

    @property
    def size(self) -> int:
        return _OVERHEAD_BYTES + len(self.job.body if isinstance(self.job, values.Job) else self.job)


class EnqueueBatcher:
    """Joins single enqueues into requests: at most `jobs_max` jobs and `bytes_max` bytes each, `in_flight_max` of a queue at a time.

    Use as `async with EnqueueBatcher(client) as batcher:`; leaving it waits for what is under way. `waiting_max` jobs may wait;
    beyond that `enqueue` raises `TooManyWaiting` (await what you enqueue, and it never does).
    """

    def __init__(
        self,
        client: AsyncClient,
        *,
        jobs_max: int = 500,
        bytes_max: int = 4 * 1024 * 1024,
        in_flight_max: int = 2,
        waiting_max: int = 100_000,
    ) -> None:
        if not 1 <= jobs_max <= _JOBS_MAX or bytes_max < 1 or in_flight_max < 1 or waiting_max < 1:
            raise ValueError(f"jobs_max must be 1 to {_JOBS_MAX}; bytes_max, in_flight_max and waiting_max at least 1")
        self._client = client
        self._jobs_max = jobs_max
        self._bytes_max = bytes_max
        self._in_flight_max = in_flight_max
        self._waiting_max = waiting_max
        self._waiting: dict[str, deque[_Entry]] = {}
        self._count = 0
        self._senders: dict[str, set[asyncio.Task[None]]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.flush()

    async def enqueue(self, queue: str, job: values.Job | bytes) -> Placed:
        """Stores the job; it is safe when this returns. Cancelled before it was sent, the job is not stored."""
        if self._count >= self._waiting_max:
            raise TooManyWaiting(f"{self._count} jobs wait to be enqueued already; await them before adding more")
        done: asyncio.Future[Placed] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(queue, deque()).append(_Entry(job, done))
        self._count += 1
        senders = self._senders.setdefault(queue, set())
        if len(senders) < self._in_flight_max and (not senders or len(self._waiting[queue]) >= self._jobs_max):
            self._start_sender(queue)
        return await done

    async def flush(self) -> None:
        """Returns when all that was enqueued before is stored or refused."""
        while tasks := [task for senders in self._senders.values() for task in senders]:
            await asyncio.wait(tasks)

    def _start_sender(self, queue: str) -> None:
        senders = self._senders[queue]
        senders.add(asyncio.create_task(self._send_all(queue, senders), name=f"enqueue {queue}"))

    async def _send_all(self, queue: str, senders: set[asyncio.Task[None]]) -> None:
        """Leaves `senders` in the very step that finds nothing left: whoever enqueues next must not count on it."""
        try:
            while batch := self._next_batch(queue):
                await self._send(queue, batch)
        finally:
            senders.discard(cast("asyncio.Task[None]", asyncio.current_task()))
            if not senders and self._waiting[queue]:  # cancelled, which is its batch's end only
                self._start_sender(queue)
            elif not senders:
                del self._senders[queue], self._waiting[queue]

    def _next_batch(self, queue: str) -> list[_Entry]:
        waiting = self._waiting[queue]
        batch: list[_Entry] = []
        room = self._bytes_max
        while waiting and len(batch) < self._jobs_max and (not batch or waiting[0].size <= room):
            entry = waiting.popleft()
            self._count -= 1
            if not entry.done.done():
                room -= entry.size
                batch.append(entry)
        return batch

    async def _send(self, queue: str, batch: list[_Entry]) -> None:
        try:
            enqueued = await self._client.enqueue(queue, [entry.job for entry in batch])
        except PinLaterError as error:
            if isinstance(error, CallerError) and not isinstance(error, _OF_THE_QUEUE) and len(batch) > 1:
                middle = len(batch) // 2
                await self._send(queue, batch[:middle])
                await self._send(queue, batch[middle:])
                return
            for entry in batch:
                _settle(entry, error)
        except BaseException:
            for entry in batch:
                entry.done.cancel()
            raise
        else:
            existing = frozenset(enqueued.existing)
            for index, (entry, descriptor) in enumerate(zip(batch, enqueued.descriptors, strict=True)):
                _settle(entry, Placed(descriptor, index in existing))


def _settle(entry: _Entry, outcome: Placed | PinLaterError) -> None:
    if entry.done.done():
        return
    if isinstance(outcome, Placed):
        entry.done.set_result(outcome)
    else:
        entry.done.set_exception(outcome)
