"""What a worker tells the server of its jobs: acks, which ride on the next claim or are flushed soon, and jobs given back.

Whatever can't be delivered waits in a retry queue of its shard, for as long as the worker runs, and its claim is renewed meanwhile;
tokens make it safe to send a report again. While a shard has such a queue its new reports join it: none of them rides on a claim, so a
server that refuses a whole request for one shard's sake (those before per-item errors do) refuses no claim for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Sequence

from pinlater.client.async_client import AsyncClient
from pinlater.client.errors import PinLaterError, QueueNotFound
from pinlater.client.values import Ack, AckBatch, AckResult, Checkpoint, Claim, ClaimedJob, Outcome
from pinlater.domain.clock import Clock
from pinlater.domain.descriptor import shard_of
from pinlater.worker._acks import AckBuffer
from pinlater.worker._decisions import backoff_ms
from pinlater.worker._delivery import Delivery, GiveBack, Report, first_request, mark_sent
from pinlater.worker._endings import Ending, Kind, type_name
from pinlater.worker._retry_queue import RetryQueue
from pinlater.worker.counts import WorkerCounts
from pinlater.worker.errors import ProcessDied
from pinlater.worker.settings import WorkerSettings

_log = logging.getLogger("pinlater.worker")
# For so long a job waits in its slot for the first try of what is not an ack.
_FIRST_TRY_S = 5.0
PROCESS_DIED = type_name(ProcessDied)


class Reports:
    """One queue's reports. `settled` is called with the heartbeats of claims that need to be kept no longer."""

    def __init__(
        self,
        client: AsyncClient,
        queue: str,
        settings: WorkerSettings,
        counts: WorkerCounts,
        clock: Clock,
        settled: Callable[[Sequence[int]], object],
    ) -> None:
        self._client = client
        self._clock = clock
        self._queue = queue
        self._settings = settings
        self._delivery = Delivery(client, queue, counts, clock, settings.retry_delay_ms, settled)
        self._acks: AckBuffer[Report] = AckBuffer()
        self._retries: dict[str, RetryQueue] = {}  # by shard; each is there while it has reports
        self._retrying: asyncio.TaskGroup | None = None

    @property
    def original_server(self) -> bool:
        """Whether the server knows no outcomes, no releases and no error types."""
        return self._delivery.original_server

    @original_server.setter
    def original_server(self, is_original: bool) -> None:
        self._delivery.original_server = is_original

    @property
    def undelivered_count(self) -> int:
        """Reports that the server has not taken yet."""
        return len(self._acks) + sum(map(len, self._retries.values()))

    async def end(self, job: ClaimedJob, ending: Ending, beat: int | None = None) -> None:
        """Reports how an attempt ended: with the next claim, or soon; what no ack can say, at once. Its heartbeat ends with that."""
        if ending.kind is Kind.SUCCEEDED:
            report = Report(job, Ack(job.descriptor, token=job.token), beat)
        elif ending.kind is Kind.SNOOZED:
            await self.release([(job, beat)], ending.delay_ms)
            return
        elif ending.kind is Kind.RESCHEDULED and ending.rescheduling is not None:
            at_ms, body = ending.rescheduling
            move = Checkpoint(job.descriptor, job.token, new_body=body, move_to_pending=True, run_after_ms=at_ms)
            await self._send_now([Report(job, move, beat)])
            return
        else:
            report = Report(job, self._failure(job, ending), beat)
        if not self._retries or not self._joined_retries(report):
            self._acks.add(report)

    def _failure(self, job: ClaimedJob, ending: Ending) -> Ack:
        return Ack(
            job.descriptor,
            succeeded=False,
            token=job.token,
            retry_delay_ms=ending.delay_ms,
            final=ending.kind is Kind.GIVEN_UP,
            error_type="" if self.original_server else ending.error_type,
            error_text="" if self.original_server else ending.error_text,
            append_status=f"{ending.status}\n" if self.original_server else "",
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
            await asyncio.sleep(self._pause_s(failures))

    async def _checkpoint_once(self, item: Checkpoint) -> AckResult:
        if not self.original_server:
            return (await self._client.checkpoint(self._queue, [item]))[0]
        await self._client.checkpoint_plain(self._queue, [item])
        return AckResult(item.descriptor, Outcome.APPLIED)

    async def crashes_of(self, job: ClaimedJob) -> int:
        """How many processes this job has killed before, as its own history says; 0 where that can't be had."""
        try:
            info = (await self._client.lookup([job.descriptor])).get(job.descriptor)
        except PinLaterError as error:
            _log.warning("queue %s: the history of job %s can't be had: %s", self._queue, job.descriptor, error)
            return 0
        if info is None:
            return 0
        in_history = sum(attempt.error_type == PROCESS_DIED for attempt in info.attempts)
        return in_history or info.custom_status.count(f"{PROCESS_DIED}:")

    async def release(self, claims: Sequence[tuple[ClaimedJob, int | None]], delay_ms: int = 0) -> None:
        """Gives jobs back unspent, with their heartbeats. What can't be delivered at once is tried as long as the worker runs."""
        await self._send_now(
            [
                Report(job, GiveBack(Claim(job.descriptor, job.token), delay_ms), beat)
                for job, beat in claims
                if job.token or self.original_server
            ]
        )

    # --- acks that ride on a claim ----------------------------------------------------------------------------------------
    def take(self) -> list[Report]:
        """Acks to ride on a claim; `delivered` or `undelivered` must follow."""
        return self._acks.take()

    def riding(self, acks: Sequence[Report]) -> AckBatch | None:
        """These acks as a claim takes them along."""
        return self._delivery.batch(acks) if acks else None

    def delivered(self, acks: Sequence[Report], results: Sequence[AckResult]) -> None:
        """The server has answered. What it could not carry out is tried again."""
        if acks:
            self._keep(self._delivery.told(acks, results), at_once=False)

    def undelivered(self, acks: Sequence[Report], error: PinLaterError | None = None) -> None:
        """The claim failed. Each shard's acks are sent by themselves, unless the queue is gone, which is the same for all of them."""
        if isinstance(error, QueueNotFound):
            self._delivery.refused(acks, error)
            return
        mark_sent(acks)
        self._keep(acks, at_once=error is not None and error.code is not None)

    # --- acks by themselves -----------------------------------------------------------------------------------------------
    async def flush_until_cancelled(self) -> None:
        """Sends what no claim takes soon, and what could not be delivered."""
        async with asyncio.TaskGroup() as group:
            self._retrying = group
            try:
                while True:
                    await self._acks.wait_ripe(self._settings.ack_flush_ms / 1000)
                    await self._send(self._acks.take())
            finally:
                self._retrying = None

    async def flush_the_rest(self, patience_s: float) -> None:
        """Sends all, trying for so long. `flush_until_cancelled` must have ended."""
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await self._send_the_rest()
        finally:
            if count := self.undelivered_count:
                _log.error("queue %s: %d reports could not be delivered; those jobs run again", self._queue, count)

    async def _send_the_rest(self) -> None:
        while acks := self._acks.take():
            await self._send(acks)
        async with asyncio.TaskGroup() as group:
            for shard, retries in self._retries.items():
                retries.hurry()
                group.create_task(retries.run(), name=f"reports of shard {shard}")

    async def _send_now(self, reports: Sequence[Report]) -> None:
        waiting = [report for report in reports if not self._joined_retries(report)]
        while waiting:
            part = first_request(waiting)
            waiting = waiting[len(part) :]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FIRST_TRY_S):
                    await self._send(part)

    async def _send(self, reports: Sequence[Report]) -> None:
        """One try; what fails is kept. Cancelled, it keeps all of them."""
        if not reports:
            return
        try:
            again = await self._delivery.send(reports)
        except PinLaterError as error:
            self.undelivered(reports, error)
        except asyncio.CancelledError:
            self.undelivered(reports)
            raise
        else:
            self._keep(again, at_once=False)

    # --- what could not be delivered --------------------------------------------------------------------------------------
    def _joined_retries(self, report: Report) -> bool:
        """Whether it waits with others of its shard that could not be delivered."""
        retries = self._retries.get(shard_of(report.job.descriptor))
        if retries is None:
            return False
        retries.add([report])
        return True

    def _keep(self, reports: Sequence[Report], *, at_once: bool) -> None:
        """They are sent again, each shard's by themselves. `at_once`: the server answered, so other shards than the one at fault work."""
        by_shard: dict[str, list[Report]] = {}
        for report in reports:
            by_shard.setdefault(shard_of(report.job.descriptor), []).append(report)
        for shard, part in by_shard.items():
            retries = self._retries.get(shard)
            if retries is not None:
                retries.add(part)
                continue
            retries = self._retries[shard] = RetryQueue(self._delivery, shard, self._queue, self._pause_s)
            retries.add(part)
            if not at_once:
                retries.pause_first()
            if self._retrying is not None:
                self._retrying.create_task(self._retry(shard, retries), name=f"reports of shard {shard}")

    async def _retry(self, shard: str, retries: RetryQueue) -> None:
        await retries.run()
        del self._retries[shard]  # in the very step that finds it empty: whoever adds to it counts on its task

    def _pause_s(self, failures: int) -> float:
        settings, spread = self._settings, random.random()  # noqa: S311 - spreads returns, guards nothing
        return backoff_ms(failures, settings.backoff_first_ms, settings.backoff_max_ms, spread) / 1000
