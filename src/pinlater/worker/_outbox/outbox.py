"""All that a queue's jobs tell the server: checkpoints at once, and how they ended: acks, which ride on the next claim or are flushed soon,
new run times, and jobs given back. Heartbeats, which must not wait for the event loop, are sent by `heartbeater`.

A report that can't be delivered waits in its shard's retry queue as long as the worker runs, and its claim is renewed meanwhile; tokens
make it safe to send a report again. While a shard has a retry queue, its new reports join that queue and don't ride on claims: a server
without per-item errors would refuse the claim together with the ack.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import deque
from collections.abc import Sequence

from pinlater.client.errors import PinLaterError, QueueNotFound
from pinlater.client.values import Ack, AckBatch, AckResult, Checkpoint, Claim, ClaimedJob, Outcome
from pinlater.domain.descriptor import shard_of
from pinlater.domain.wording import counted
from pinlater.worker._attempts.endings import Ending, Kind
from pinlater.worker._outbox.delivery import (
    ACKS_PER_REQUEST_MAX,
    Delivery,
    RetryQueue,
    acks_of,
    first_request,
    mark_maybe_applied,
)
from pinlater.worker._outbox.leases import GiveBack, Lease
from pinlater.worker.settings import WorkerSettings, backoff_ms

_log = logging.getLogger("pinlater.worker")
# How long a job waits in its slot for the first try of a report that is not an ack.
_FIRST_TRY_S = 5.0


class Outbox:
    """Belongs to one queue."""

    def __init__(self, delivery: Delivery, settings: WorkerSettings) -> None:
        self.delivery = delivery
        self._client, self._queue = delivery.client, delivery.queue
        self._settings = settings
        self._acks: deque[Lease] = deque()  # bounded by the jobs that a worker may hold
        self._filled = asyncio.Event()  # there are acks
        self._since_s = 0.0  # when the oldest came, by the event loop's time
        self._retries: dict[str, RetryQueue] = {}  # by shard; each is there while it has reports
        self._retrying: asyncio.TaskGroup | None = None

    @property
    def waiting_acks(self) -> int:
        """Acks that may ride on a claim."""
        return len(self._acks)

    async def end(self, held: Lease, ending: Ending) -> None:
        """Reports how an attempt ended: an ack with the next claim or soon, a release or a new run time at once.

        The counts of the job's task have counted the attempt; they learn of it if its claim had ended before.
        """
        job = held.job
        if ending.kind is Kind.SUCCEEDED:
            held.message = Ack(job.descriptor, token=job.token)
        elif ending.kind is Kind.SNOOZED:
            await self.release([held], max(1, ending.delay_ms))  # 0 is for jobs that have not run
            return
        elif ending.kind is Kind.RESCHEDULED and ending.rescheduling is not None:
            at_ms, body = ending.rescheduling
            held.message = Checkpoint(
                job.descriptor, job.token, new_body=body, move_to_pending=True, run_after_ms=at_ms
            )
            await self._send_now([held])
            return
        else:
            held.message = self._failure(job, ending)
        held.is_counted = True
        if self._retries and self._joins_retries(held):
            return
        if not self._acks:
            self._since_s = asyncio.get_running_loop().time()
            self._filled.set()
        self._acks.append(held)

    def _failure(self, job: ClaimedJob, ending: Ending) -> Ack:
        return Ack(
            job.descriptor,
            succeeded=False,
            token=job.token,
            retry_delay_ms=ending.delay_ms,
            final=ending.kind is Kind.GIVEN_UP,
            error_type="" if self.delivery.original_server else ending.error_type,
            error_text="" if self.delivery.original_server else ending.error_text,
            append_status=f"{ending.status}\n" if self.delivery.original_server else "",
        )

    async def checkpoint(self, item: Checkpoint) -> AckResult:
        """Saves a running job's progress. Tries again, as for acks, until the server answers or the caller is cancelled.

        Raises what no further try would change.
        """
        failures = 0
        while True:
            try:
                return await self._checkpoint_once(item)
            except PinLaterError as error:
                if not error.retryable:
                    raise
                failures += 1
                if failures == 1:
                    _log.warning("queue %s: job %s waits for its checkpoint: %s", self._queue, item.descriptor, error)
            await asyncio.sleep(self._backoff_s(failures))

    async def _checkpoint_once(self, item: Checkpoint) -> AckResult:
        if not self.delivery.original_server:
            return (await self._client.checkpoint(self._queue, [item]))[0]
        await self._client.checkpoint_plain(self._queue, [item])
        return AckResult(item.descriptor, Outcome.APPLIED)

    async def release(self, jobs: Sequence[Lease], delay_ms: int = 0) -> None:
        """Gives jobs back, so that they keep their attempts. Retried as long as the worker runs."""
        await self._send_now(self._give_backs(jobs, delay_ms))

    def release_soon(self, jobs: Sequence[Lease]) -> None:
        """The same, without waiting for the server."""
        if self._retrying is None:  # the worker is about to send all that is left
            self._keep(self._give_backs(jobs), at_once=True)
        else:
            self._retrying.create_task(self.release(jobs), name=f"jobs of {self._queue} go back")

    def _give_backs(self, jobs: Sequence[Lease], delay_ms: int = 0) -> list[Lease]:
        sendable = [held for held in jobs if held.job.token or self.delivery.original_server]
        for held in sendable:
            held.message = GiveBack(Claim(held.job.descriptor, held.job.token), delay_ms)
        return sendable

    # --- acks that ride on a claim ----------------------------------------------------------------------------------------
    def take(self) -> list[Lease]:
        """Acks that ride on a claim; `delivered` or `undelivered` must follow."""
        taken = [self._acks.popleft() for _ in range(min(len(self._acks), ACKS_PER_REQUEST_MAX))]
        if not self._acks:
            self._filled.clear()
        return taken

    def riding(self, acks: Sequence[Lease]) -> AckBatch | None:
        """The acks as a part of a claim."""
        return AckBatch(self._queue, acks_of(acks), per_item_errors=True) if acks else None

    def delivered(self, acks: Sequence[Lease], results: Sequence[AckResult]) -> None:
        """The server has answered. Acks that it could not apply are sent again."""
        if acks:
            self._keep(self.delivery.settle(acks, results), at_once=False)

    def undelivered(self, acks: Sequence[Lease], error: PinLaterError | None = None) -> None:
        """The claim failed. Each shard's acks are sent separately now, unless the queue is gone, which is final for all of them."""
        if isinstance(error, QueueNotFound):
            self.delivery.refused(acks, error)
            return
        mark_maybe_applied(acks)
        self._keep(acks, at_once=error is not None and error.code is not None)

    # --- separate requests ------------------------------------------------------------------------------------------------
    async def flush_until_cancelled(self) -> None:
        """Sends acks that no claim takes soon, and runs the retry queues."""
        async with asyncio.TaskGroup() as group:
            self._retrying = group
            try:
                while True:
                    await self._wait_for_flush(self._settings.ack_flush_ms / 1000)
                    await self._send(self.take())
            finally:
                self._retrying = None

    async def _wait_for_flush(self, after_s: float) -> None:
        """Returns when the oldest ack has waited for `after_s`."""
        loop = asyncio.get_running_loop()
        while True:
            await self._filled.wait()
            remaining_s = self._since_s + after_s - loop.time()
            if remaining_s <= 0:
                return
            await asyncio.sleep(remaining_s)

    async def flush_the_rest(self, timeout_s: float) -> None:
        """Sends all reports, retrying until the timeout. `flush_until_cancelled` must have ended."""
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._send_the_rest()
        finally:
            if count := len(self._acks) + sum(map(len, self._retries.values())):
                number = counted(count, "report")
                _log.error("queue %s: %s could not be delivered; those jobs run again", self._queue, number)

    async def _send_the_rest(self) -> None:
        while acks := self.take():
            await self._send(acks)
        async with asyncio.TaskGroup() as group:
            for shard, retries in self._retries.items():
                retries.retry_now()
                group.create_task(retries.run(), name=f"reports of shard {shard}")

    async def _send_now(self, reports: Sequence[Lease]) -> None:
        waiting = [report for report in reports if not self._joins_retries(report)]
        while waiting:
            part = first_request(waiting)
            waiting = waiting[len(part) :]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FIRST_TRY_S):
                    await self._send(part)

    async def _send(self, reports: Sequence[Lease]) -> None:
        """One try. Keeps the reports that fail; cancelled, all of them."""
        if not reports:
            return
        try:
            again = await self.delivery.send(reports)
        except PinLaterError as error:
            self.undelivered(reports, error)
        except asyncio.CancelledError:
            self.undelivered(reports)
            raise
        else:
            self._keep(again, at_once=False)

    # --- retry queues -----------------------------------------------------------------------------------------------------
    def _joins_retries(self, report: Lease) -> bool:
        """Whether its shard has a retry queue, which then takes the report."""
        retries = self._retries.get(shard_of(report.job.descriptor))
        if retries is None:
            return False
        retries.add([report])
        return True

    def _keep(self, reports: Sequence[Lease], *, at_once: bool) -> None:
        """Puts reports into retry queues. `at_once`: the server answered, so only some shards are at fault."""
        by_shard: dict[str, list[Lease]] = {}
        for report in reports:
            by_shard.setdefault(shard_of(report.job.descriptor), []).append(report)
        for shard, part in by_shard.items():
            retries = self._retries.get(shard)
            if retries is not None:
                retries.add(part)
                continue
            retries = self._retries[shard] = RetryQueue(self.delivery, shard, self._backoff_s)
            retries.add(part)
            if not at_once:
                retries.wait_first()
            if self._retrying is not None:
                self._retrying.create_task(self._retry(shard, retries), name=f"reports of shard {shard}")

    async def _retry(self, shard: str, retries: RetryQueue) -> None:
        await retries.run()
        del self._retries[shard]  # in the step that found it empty: `add` relies on a running task

    def _backoff_s(self, failures: int) -> float:
        return backoff_ms(self._settings, failures, random.random()) / 1000  # noqa: S311 - spreads load, guards nothing
