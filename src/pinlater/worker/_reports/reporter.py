"""Tells the server how jobs ended: acks, which ride on the next claim or are flushed soon, and jobs given back.

A report that can't be delivered waits in its shard's retry queue as long as the worker runs, and its claim is renewed meanwhile; tokens
make it safe to send a report again. While a shard has a retry queue, its new reports join that queue and don't ride on claims: a server
without per-item errors would refuse the claim together with the ack.
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
from pinlater.domain.wording import counted
from pinlater.worker._attempts.endings import Ending, Kind, type_name
from pinlater.worker._reports.delivery import Delivery
from pinlater.worker._reports.report import AckBuffer, GiveBack, Report, first_request, mark_maybe_applied
from pinlater.worker._reports.retry_queue import RetryQueue
from pinlater.worker.counts import TaskCounts, WorkerCounts
from pinlater.worker.errors import ProcessDied
from pinlater.worker.settings import WorkerSettings, backoff_ms

_log = logging.getLogger("pinlater.worker")
# How long a job waits in its slot for the first try of a report that is not an ack.
_FIRST_TRY_S = 5.0
PROCESS_DIED = type_name(ProcessDied)


class Reporter:
    """One queue's reports. Calls `settled` with the leases of claims that need no more heartbeats."""

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
        """Whether the server has no outcomes, releases and error types."""
        return self._delivery.original_server

    @original_server.setter
    def original_server(self, is_original: bool) -> None:
        self._delivery.original_server = is_original

    @property
    def waiting_acks(self) -> int:
        """Acks that may ride on a claim."""
        return len(self._acks)

    @property
    def undelivered_count(self) -> int:
        """Reports that the server has not taken or refused yet."""
        return len(self._acks) + sum(map(len, self._retries.values()))

    async def end(
        self, job: ClaimedJob, ending: Ending, lease: int | None = None, task_counts: TaskCounts | None = None
    ) -> None:
        """Reports how an attempt ended: an ack with the next claim or soon, a release or a new run time at once.

        `task_counts` have counted the attempt; they learn of it if its claim had ended before.
        """
        if ending.kind is Kind.SUCCEEDED:
            report = Report(job, Ack(job.descriptor, token=job.token), lease, task_counts)
        elif ending.kind is Kind.SNOOZED:
            await self.release([(job, lease)], max(1, ending.delay_ms))  # 0 is for jobs that have not run
            return
        elif ending.kind is Kind.RESCHEDULED and ending.rescheduling is not None:
            at_ms, body = ending.rescheduling
            move = Checkpoint(job.descriptor, job.token, new_body=body, move_to_pending=True, run_after_ms=at_ms)
            await self._send_now([Report(job, move, lease)])
            return
        else:
            report = Report(job, self._failure(job, ending), lease, task_counts)
        if not self._retries or not self._joins_retries(report):
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
            await asyncio.sleep(self._backoff_s(failures))

    async def _checkpoint_once(self, item: Checkpoint) -> AckResult:
        if not self.original_server:
            return (await self._client.checkpoint(self._queue, [item]))[0]
        await self._client.checkpoint_plain(self._queue, [item])
        return AckResult(item.descriptor, Outcome.APPLIED)

    async def crashes_of(self, job: ClaimedJob) -> int:
        """How many processes died while they ran this job, by its history; 0 if the server doesn't answer."""
        try:
            info = (await self._client.lookup([job.descriptor])).get(job.descriptor)
        except PinLaterError as error:
            _log.warning("queue %s: can't read the history of job %s: %s", self._queue, job.descriptor, error)
            return 0
        if info is None:
            return 0
        in_history = sum(attempt.error_type == PROCESS_DIED for attempt in info.attempts)
        return in_history or info.custom_status.count(f"{PROCESS_DIED}:")

    async def release(self, claims: Sequence[tuple[ClaimedJob, int | None]], delay_ms: int = 0) -> None:
        """Gives jobs back, each with its lease, so that they keep their attempts. Retried as long as the worker runs."""
        await self._send_now(self._give_backs(claims, delay_ms))

    def release_soon(self, claims: Sequence[tuple[ClaimedJob, int | None]]) -> None:
        """The same, without waiting for the server."""
        if self._retrying is None:  # the worker is about to send all that is left
            self._keep(self._give_backs(claims), at_once=True)
        else:
            self._retrying.create_task(self.release(claims), name=f"jobs of {self._queue} go back")

    def _give_backs(self, claims: Sequence[tuple[ClaimedJob, int | None]], delay_ms: int = 0) -> list[Report]:
        return [
            Report(job, GiveBack(Claim(job.descriptor, job.token), delay_ms), lease)
            for job, lease in claims
            if job.token or self.original_server
        ]

    # --- acks that ride on a claim ----------------------------------------------------------------------------------------
    def take(self) -> list[Report]:
        """Acks that ride on a claim; `delivered` or `undelivered` must follow."""
        return self._acks.take()

    def riding(self, acks: Sequence[Report]) -> AckBatch | None:
        """The acks as a part of a claim."""
        return self._delivery.batch(acks) if acks else None

    def delivered(self, acks: Sequence[Report], results: Sequence[AckResult]) -> None:
        """The server has answered. Acks that it could not apply are sent again."""
        if acks:
            self._keep(self._delivery.settle(acks, results), at_once=False)

    def undelivered(self, acks: Sequence[Report], error: PinLaterError | None = None) -> None:
        """The claim failed. Each shard's acks are sent separately now, unless the queue is gone, which is final for all of them."""
        if isinstance(error, QueueNotFound):
            self._delivery.refused(acks, error)
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
                    await self._acks.wait_for_flush(self._settings.ack_flush_ms / 1000)
                    await self._send(self._acks.take())
            finally:
                self._retrying = None

    async def flush_the_rest(self, timeout_s: float) -> None:
        """Sends all reports, retrying until the timeout. `flush_until_cancelled` must have ended."""
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._send_the_rest()
        finally:
            if count := self.undelivered_count:
                number = counted(count, "report")
                _log.error("queue %s: %s could not be delivered; those jobs run again", self._queue, number)

    async def _send_the_rest(self) -> None:
        while acks := self._acks.take():
            await self._send(acks)
        async with asyncio.TaskGroup() as group:
            for shard, retries in self._retries.items():
                retries.retry_now()
                group.create_task(retries.run(), name=f"reports of shard {shard}")

    async def _send_now(self, reports: Sequence[Report]) -> None:
        waiting = [report for report in reports if not self._joins_retries(report)]
        while waiting:
            part = first_request(waiting)
            waiting = waiting[len(part) :]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FIRST_TRY_S):
                    await self._send(part)

    async def _send(self, reports: Sequence[Report]) -> None:
        """One try. Keeps the reports that fail; cancelled, all of them."""
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

    # --- retry queues -----------------------------------------------------------------------------------------------------
    def _joins_retries(self, report: Report) -> bool:
        """Whether its shard has a retry queue, which then takes the report."""
        retries = self._retries.get(shard_of(report.job.descriptor))
        if retries is None:
            return False
        retries.add([report])
        return True

    def _keep(self, reports: Sequence[Report], *, at_once: bool) -> None:
        """Puts reports into retry queues. `at_once`: the server answered, so only some shards are at fault."""
        by_shard: dict[str, list[Report]] = {}
        for report in reports:
            by_shard.setdefault(shard_of(report.job.descriptor), []).append(report)
        for shard, part in by_shard.items():
            retries = self._retries.get(shard)
            if retries is not None:
                retries.add(part)
                continue
            retries = self._retries[shard] = RetryQueue(self._delivery, shard, self._queue, self._backoff_s)
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
