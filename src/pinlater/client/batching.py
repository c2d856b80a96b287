"""Many enqueues of many tasks in few requests: jobs that come while a request is under way go into the next one.

No timer: a lone job goes out at once, and batches grow with the load. A job that can't be sent, or that the server refuses, must harm
no other: what no request could carry is refused as it is handed in, and a refused batch is sent once more in halves, each under a key of
its own, which is safe since a refused request stores nothing. Each waiting caller gets an answer; if the batcher itself ends, an error.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self, cast

from pinlater.client import values
from pinlater.client._batches import BatchedJob, Bounds, UnsentJobs, halves, settle
from pinlater.client._batches import Placed as Placed
from pinlater.client._job_calls import check_job
from pinlater.client.async_client import AsyncClient
from pinlater.client.errors import ConnectionLost, PinLaterError, TooManyWaiting

_Entry = BatchedJob["asyncio.Future[Placed]"]


class AsyncEnqueueBatcher:
    """Joins single enqueues into requests: at most `jobs_max` jobs and `bytes_max` bytes each, `in_flight_max` of a queue at a time.

    Use as `async with AsyncEnqueueBatcher(client) as batcher:`; leaving it waits for what is under way. `waiting_max` jobs may wait;
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
        self._client = client
        self._bounds = Bounds(jobs_max, bytes_max, in_flight_max, waiting_max).check()
        self._waiting: UnsentJobs[asyncio.Future[Placed]] = UnsentJobs(self._bounds, _is_open)
        self._senders: dict[str, set[asyncio.Task[None]]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.flush()

    async def enqueue(self, queue: str, job: values.Job | bytes) -> Placed:
        """Stores the job; it is safe when this returns. Cancelled before it was sent, the job is not stored.

        Raises TypeError or CallerError at once if the job can't be sent as it is.
        """
        check_job(job)
        if self._waiting.count >= self._bounds.waiting_max:
            raise TooManyWaiting(
                f"{self._waiting.count} jobs wait to be enqueued already; await them before adding more"
            )
        done: asyncio.Future[Placed] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.add(queue, BatchedJob(job, done))
        if self._bounds.another_sender(len(self._senders.setdefault(queue, set())), waiting):
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
        """Leaves `senders` in the same step that finds nothing left, so that the next `enqueue` starts a sender of its own."""
        try:
            while batch := self._waiting.next_batch(queue):
                await self._send(queue, batch)
        finally:
            senders.discard(cast("asyncio.Task[None]", asyncio.current_task()))
            if not senders and queue in self._waiting:  # cancelled, which is its batch's end only
                self._start_sender(queue)
            elif not senders:
                del self._senders[queue]

    async def _send(self, queue: str, batch: list[_Entry]) -> None:
        try:
            await self._send_or_halve(queue, batch)
        except (
            BaseException
        ) as error:  # not a mere cancellation of what callers wait for: a TaskGroup would take no notice of it
            unknown = ConnectionLost("Given up while it was sent: it may be stored or not")
            unknown.__cause__ = error
            settle(batch, unknown)
            raise

    async def _send_or_halve(self, queue: str, batch: list[_Entry]) -> None:
        parts: list[list[_Entry]] = []
        try:
            call = self._client.enqueue_call(queue, [entry.job for entry in batch])
        except Exception as error:  # noqa: BLE001 - a job may have changed since it was handed in: its caller gets the error
            refused: Exception = error
            parts = halves(batch, error, unsent=True)
        else:
            try:
                outcome = await self._client.carry_out(call)
            except PinLaterError as error:
                refused = error
                parts = halves(batch, error)
            else:
                settle(batch, outcome)
                return
        for part in parts:
            await self._send_or_halve(queue, part)
        if not parts:
            settle(batch, refused)


def _is_open(done: asyncio.Future[Placed]) -> bool:
    return not done.done()
