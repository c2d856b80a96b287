"""What a worker tells the server of its jobs: acks, which ride on the next claim or are flushed soon, and jobs given back.

An ack that may not have arrived is sent again, which tokens make safe. It must never drop one but where the server refuses it for good.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from pinlater.client.async_client import AsyncClient
from pinlater.client.errors import CallerError, PinLaterError, UnknownMethod, WorldError
from pinlater.client.values import Ack, AckResult, Checkpoint, Claim, ClaimedJob, Outcome
from pinlater.domain.clock import Clock
from pinlater.worker._acks import AckBuffer
from pinlater.worker._decisions import backoff_ms
from pinlater.worker._endings import Ending, Kind, type_name
from pinlater.worker.counts import WorkerCounts
from pinlater.worker.errors import ProcessDied
from pinlater.worker.settings import WorkerSettings

T = TypeVar("T")
_log = logging.getLogger("pinlater.worker")
_FINAL_FLUSH_S = 5.0
PROCESS_DIED = type_name(ProcessDied)


class Reports:
    """One queue's reports."""

    def __init__(
        self, client: AsyncClient, queue: str, settings: WorkerSettings, counts: WorkerCounts, clock: Clock
    ) -> None:
        self._client = client
        self._clock = clock
        self._queue = queue
        self._settings = settings
        self._counts = counts
        self._acks = AckBuffer()
        self._sent_before: set[str] = set()  # descriptors whose ack may have arrived already
        self.original_server = False  # one that knows no outcomes, no releases and no error types

    async def end(self, job: ClaimedJob, ending: Ending) -> None:
        """Reports how an attempt ended: with the next claim, or soon; what no ack can say, at once."""
        if ending.kind is Kind.SUCCEEDED:
            self._acks.add(Ack(job.descriptor, token=job.token))
        elif ending.kind is Kind.SNOOZED:
            await self.release([job], ending.delay_ms)
        elif ending.kind is Kind.RESCHEDULED and ending.rescheduling is not None:
            at_ms, body = ending.rescheduling
            await self._move_to_pending([job], at_ms, body)
        else:
            self._acks.add(self._failure(job, ending))

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
        """Saves a running job's progress. Raises what the client raises."""
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

    def take(self) -> list[Ack]:
        """Acks to ride on a claim; `delivered` or `undelivered` must follow."""
        return self._acks.take()

    def delivered(self, results: Sequence[AckResult]) -> None:
        """They arrived; says of which ones nothing came. One that was sent before counts as applied then."""
        for result in results:
            sent_before = result.descriptor in self._sent_before
            self._sent_before.discard(result.descriptor)
            if not result.applied and not sent_before:
                self._counts.acks_refused += 1
                _log.warning("job %s: ack refused: %s %s", result.descriptor, result.outcome.name, result.holder)

    def undelivered(self, acks: Sequence[Ack], error: PinLaterError | None = None) -> None:
        """Keeps acks for another try, unless the server refused them for good: then trying again would never end."""
        if not acks:
            return
        if isinstance(error, CallerError):
            _log.error("queue %s: %d acks refused: %s", self._queue, len(acks), error)
            self._counts.acks_refused += len(acks)
            self._sent_before.difference_update(ack.descriptor for ack in acks)
        else:
            self._give_back(acks)

    def _give_back(self, acks: Sequence[Ack]) -> None:
        self._sent_before.update(ack.descriptor for ack in acks)
        self._acks.give_back(acks)

    async def flush_until_cancelled(self) -> None:
        """Sends what no claim takes soon."""
        failures = 0
        while True:
            await self._acks.wait_ripe(self._settings.ack_flush_ms / 1000)
            if await self._deliver():
                failures = 0
            else:
                failures += 1
                await asyncio.sleep(self._pause_s(failures))

    def _pause_s(self, failures: int) -> float:
        settings, spread = self._settings, random.random()  # noqa: S311 - spreads returns, guards nothing
        return backoff_ms(failures, settings.backoff_first_ms, settings.backoff_max_ms, spread) / 1000

    async def flush_the_rest(self) -> None:
        """Sends all, trying for a few seconds."""
        try:
            async with asyncio.timeout(_FINAL_FLUSH_S):
                while len(self._acks):
                    if not await self._deliver():
                        await asyncio.sleep(self._settings.backoff_first_ms / 1000)
        except TimeoutError:
            _log.error("queue %s: %d acks could not be delivered; those jobs run again", self._queue, len(self._acks))

    async def _deliver(self) -> bool:
        """Sends a request's worth of acks; False where that has to be tried again."""
        acks = self._acks.take()
        if not acks:
            return True
        try:
            await self._send(acks)
        except PinLaterError as error:
            self.undelivered(acks, error)
            return isinstance(error, CallerError)
        except asyncio.CancelledError:
            self._give_back(acks)
            raise
        return True

    async def _send(self, acks: Sequence[Ack]) -> None:
        if not self.original_server:
            try:
                self.delivered(await self._client.ack(self._queue, acks))
            except UnknownMethod:
                self.original_server = True
            else:
                return
        await self._client.ack_plain(self._queue, acks)
        self._sent_before.difference_update(ack.descriptor for ack in acks)

    async def release(self, jobs: Sequence[ClaimedJob], delay_ms: int = 0) -> None:
        """Gives jobs back unspent. If that can't be delivered for some seconds their claims time out, which costs them an attempt."""
        if self.original_server:
            await self._move_to_pending(jobs, self._clock.now_ms() + delay_ms, None)
            return
        claims = [Claim(job.descriptor, job.token) for job in jobs if job.token]
        if not claims:
            return
        try:
            again, results = await self._until_delivered(
                lambda: self._client.release(self._queue, claims, delay_ms=delay_ms)
            )
            self._counts.released += sum(again or result.applied for result in results)
        except (PinLaterError, TimeoutError) as error:
            _log.warning("queue %s: %d jobs could not be given back: %s", self._queue, len(claims), error)

    async def _until_delivered(self, send: Callable[[], Awaitable[T]]) -> tuple[bool, T]:
        """Repeats for some seconds what tokens make safe to repeat. The answer, and whether it may be to a repetition."""
        failures = 0
        async with asyncio.timeout(_FINAL_FLUSH_S):
            while True:
                try:
                    return failures > 0, await send()
                except WorldError as error:
                    failures += 1
                    _log.debug("queue %s: %s; trying again", self._queue, error)
                await asyncio.sleep(self._pause_s(failures))

    async def _move_to_pending(self, jobs: Sequence[ClaimedJob], at_ms: int, body: bytes | None) -> None:
        if not jobs:
            return
        items = [
            Checkpoint(job.descriptor, job.token, new_body=body, move_to_pending=True, run_after_ms=at_ms)
            for job in jobs
        ]
        try:
            if self.original_server:
                await self._client.checkpoint_plain(self._queue, items)
                self._counts.released += len(items)
                return
            again, results = await self._until_delivered(lambda: self._client.checkpoint(self._queue, items))
            self._counts.released += sum(again or result.applied for result in results)
        except (PinLaterError, TimeoutError) as error:
            _log.warning("queue %s: %d jobs could not be put back: %s", self._queue, len(items), error)
