"""One queue's part of a worker: claims its jobs, runs them, reports them, keeps their claims alive.

What to do is decided in `_decisions`; this module acts. Every job claimed ends in one of: an ack, a release, or a claim that was
lost. It must never ack a job whose claim it lost. Weakness: a claim whose answer arrives in the very instant in which an idle long
poll is given up at a stop comes back only when its claim times out.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any

from pinlater.client.async_client import AsyncClient
from pinlater.client.errors import PinLaterError, UnknownMethod
from pinlater.client.values import Ack, AckBatch, AckResult, Claim, ClaimedJob, Dequeued
from pinlater.domain.clock import Clock
from pinlater.worker import _decisions
from pinlater.worker._handlers import Handler, Threads, call_handler
from pinlater.worker._heartbeats import HeartbeatTable
from pinlater.worker._reports import Reports
from pinlater.worker.counts import WorkerCounts
from pinlater.worker.errors import Snooze
from pinlater.worker.settings import WorkerSettings

_log = logging.getLogger("pinlater.worker")
_BUSY_CLAIM_S = (
    0.25  # how long a claim under way at a stop may still answer: a busy queue's does, an idle one's long poll not
)
_CANCEL_S = 1.0


class InHand:
    """A claim in hand. Equal to itself only: a job may come a second time while its first, lost claim still runs."""

    __slots__ = ("job",)

    def __init__(self, job: ClaimedJob) -> None:
        self.job = job


class Consumer:
    """Runs one queue's jobs until `stop` is set; then `run` ends after the grace time at the latest, a few seconds of reporting on top."""

    def __init__(
        self,
        client: AsyncClient,
        handler: Handler,
        settings: WorkerSettings,
        clock: Clock,
        stop: asyncio.Event,
        hurry: asyncio.Event,
        counts: WorkerCounts,
    ) -> None:
        self._client = client
        self._handler = handler
        self._settings = settings
        self._clock = clock
        self._stop = stop
        self._hurry = hurry
        self._counts = counts
        self.queue = handler.queue
        self._concurrency = handler.concurrency or settings.concurrency
        self._threads = None if handler.is_async else Threads(self._concurrency, f"pinlater-{self.queue}")
        self._stock: deque[InHand] = deque()
        self._running: dict[InHand, asyncio.Task[None]] = {}
        self._given_up: set[InHand] = set()
        self._reports = Reports(client, handler.queue, settings, counts)
        self._beats = HeartbeatTable[InHand]()
        self._beat_at: float | None = None
        self._beats_changed = asyncio.Event()
        self._room = asyncio.Event()
        self._mean_ms: float | None = None
        self._server_ahead_ms: int | None = None
        self._failures = 0
        self._early_answers = 0

    @property
    def in_threads(self) -> int:
        """Plain functions that still run."""
        return len(self._threads.busy) if self._threads else 0

    async def run(self) -> None:
        """Claims and runs jobs until stopped. Ends without an error unless the worker itself has a bug.

        Cancelling it takes its handlers with it and reports nothing more: their claims time out.
        """
        try:
            async with asyncio.TaskGroup() as group:
                flushing = group.create_task(self._reports.flush_until_cancelled())
                beating = group.create_task(self._send_heartbeats())
                await self._claim_until_stopped()
                await self._finish()
                flushing.cancel()
                beating.cancel()
        finally:
            self._stock.clear()
            for task in self._running.values():
                task.cancel()
            if self._threads is not None:
                self._threads.close()

    # --- claiming ---------------------------------------------------------------------------------------------------------
    async def _claim_until_stopped(self) -> None:
        while not self._stop.is_set():
            prefetch = _decisions.prefetch_count(self._mean_ms, self._concurrency, self._settings.prefetch_max)
            limit = _decisions.claim_limit(len(self._running) + len(self._stock), self._concurrency, prefetch)
            if limit:
                await self._claim(limit)
            else:
                self._room.clear()
                await _first_of(self._stop.wait(), self._room.wait())

    async def _claim(self, limit: int) -> None:
        acks = self._reports.take()
        started = self._clock.monotonic()
        try:
            dequeued = await self._dequeue(limit, acks)
        except PinLaterError as error:
            self._reports.undelivered(acks, error)
            self._counts.claim_errors += 1
            await self._stay_away(error)
            return
        if dequeued is None:  # stopped while waiting: whether the acks arrived is unknown, and repeating them is safe
            self._reports.undelivered(acks)
            return
        if self._failures:
            _log.info("queue %s: the server answers again", self.queue)
            self._failures = 0
        self._reports.delivered(dequeued.ack_results)
        self._take_in(dequeued.jobs)
        await self._pace(dequeued, self._clock.monotonic() - started)

    async def _pace(self, dequeued: Dequeued, took_s: float) -> None:
        """Where an empty answer came too early, waits before asking again: a server that drains does that, and an original one always."""
        if dequeued.jobs or took_s * 2000 >= self._settings.wait_ms > 0:
            self._early_answers = 0
            return
        self._early_answers += 1
        settings = self._settings
        delay_ms = _decisions.backoff_ms(
            self._early_answers, settings.backoff_first_ms, settings.backoff_max_ms, _spread()
        )
        await _first_of(self._stop.wait(), timeout_s=delay_ms / 1000)

    async def _dequeue(self, limit: int, acks: Sequence[Ack]) -> Dequeued | None:
        if self._server_ahead_ms is None:
            await self._ask_clock()
        riding = AckBatch(self.queue, acks) if acks else None
        waiting = self._client.dequeue(self.queue, limit, wait_ms=self._settings.wait_ms, acks=riding)
        call = asyncio.create_task(waiting)
        stopped = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({call, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                await asyncio.wait({call}, timeout=_BUSY_CLAIM_S)
            return call.result() if call.done() else None
        finally:
            stopped.cancel()
            call.cancel()

    async def _ask_clock(self) -> None:
        try:
            info = await self._client.server_info()
        except UnknownMethod:
            self._server_ahead_ms = 0
        else:
            self._server_ahead_ms = info.now_ms - self._clock.now_ms()

    async def _stay_away(self, error: PinLaterError) -> None:
        self._failures += 1
        self._server_ahead_ms = None
        if self._failures == 1:
            _log.warning("queue %s: can't claim, trying again: %s", self.queue, error)
        settings = self._settings
        delay_ms = _decisions.backoff_ms(
            self._failures,
            settings.backoff_first_ms,
            settings.backoff_max_ms,
            _spread(),
        )
        await _first_of(self._stop.wait(), timeout_s=max(delay_ms, error.retry_after_ms or 0) / 1000)

    def _take_in(self, jobs: Sequence[ClaimedJob]) -> None:
        now, now_ms = self._clock.monotonic(), self._clock.now_ms() + (self._server_ahead_ms or 0)
        for job in jobs:
            claim = InHand(job)
            self._stock.append(claim)
            if job.token and job.claim_deadline_ms is not None:
                due = self._beats.add(claim, max(1, job.claim_deadline_ms - now_ms), now)
                if self._beat_at is None or due < self._beat_at:
                    self._beats_changed.set()
        self._counts.claimed += len(jobs)
        self._start_more()

    # --- running ----------------------------------------------------------------------------------------------------------
    def _start_more(self) -> None:
        while self._stock and len(self._running) < self._concurrency and not self._stop.is_set():
            claim = self._stock.popleft()
            self._running[claim] = asyncio.create_task(self._run_job(claim), name=f"job {claim.job.descriptor}")
            self._counts.running += 1

    async def _run_job(self, claim: InHand) -> None:
        started = self._clock.monotonic()
        try:
            error = await call_handler(self._handler, claim.job, self._threads)
            self._mean_ms = _decisions.smoothed_ms(self._mean_ms, (self._clock.monotonic() - started) * 1000)
            if claim not in self._given_up:
                await self._report(claim.job, error)
        finally:
            self._given_up.discard(claim)
            self._beats.drop(claim)
            del self._running[claim]
            self._counts.running -= 1
            self._room.set()
            self._start_more()

    async def _report(self, job: ClaimedJob, error: BaseException | None) -> None:
        if error is None:
            self._counts.succeeded += 1
            self._reports.add(_decisions.success_ack(job))
        elif isinstance(error, Snooze):
            await self._reports.release([job], error.delay_ms)
        else:
            self._counts.failed += 1
            _log.info("queue %s: job %s failed: %s", self.queue, job.descriptor, type(error).__name__, exc_info=error)
            self._reports.add(_decisions.failure_ack(job, error, self._settings.retry_delay_ms))

    # --- heartbeats -------------------------------------------------------------------------------------------------------
    async def _send_heartbeats(self) -> None:
        while True:
            self._beats_changed.clear()
            self._beat_at = self._beats.next_due()
            wait_s = None if self._beat_at is None else max(0.0, self._beat_at - self._clock.monotonic())
            await _first_of(self._beats_changed.wait(), timeout_s=wait_s)
            due = self._beats.take_due(self._clock.monotonic())
            if due:
                await self._renew(due)

    async def _renew(self, claims: Sequence[InHand]) -> None:
        wanted = [Claim(claim.job.descriptor, claim.job.token) for claim in claims]
        try:
            results = await self._client.heartbeat(self.queue, wanted)
        except PinLaterError as error:
            _log.warning("queue %s: heartbeat failed: %s", self.queue, error)
            return
        for claim, result in zip(claims, results, strict=False):
            # One that has ended meanwhile is no longer ours for the best of reasons.
            if not result.applied and (claim in self._running or claim in self._stock):
                self._lose(claim, result)

    def _lose(self, claim: InHand, result: AckResult) -> None:
        """The claim is gone: the job is no longer ours to run or to ack."""
        _log.warning("job %s: claim lost (%s %s)", result.descriptor, result.outcome.name, result.holder)
        self._counts.lost += 1
        self._beats.drop(claim)
        if claim in self._stock:
            self._stock.remove(claim)
        self._give_up(claim)

    def _give_up(self, claim: InHand) -> None:
        if claim in self._running:
            self._given_up.add(claim)
            if self._threads is None:
                self._running[claim].cancel()

    # --- stopping ---------------------------------------------------------------------------------------------------------
    async def _finish(self) -> None:
        """Gives back what has not begun, lets what runs finish within the grace time, gives back the rest, reports all."""
        unstarted = list(self._stock)
        self._stock.clear()
        for claim in unstarted:
            self._beats.drop(claim)
        await self._reports.release([claim.job for claim in unstarted])
        await self._drain(self._settings.grace_ms / 1000)
        left = [claim for claim in self._running if claim not in self._given_up]
        if left:
            _log.warning("queue %s: %d jobs did not finish in time and are given back", self.queue, len(left))
            for claim in left:
                self._give_up(claim)
            if self._threads is None:
                await asyncio.wait(set(self._running.values()), timeout=_CANCEL_S)
            await self._reports.release([claim.job for claim in left])
        await self._reports.flush_the_rest()

    async def _drain(self, grace_s: float) -> None:
        if self._running:
            await _first_of(self._hurry.wait(), asyncio.wait(set(self._running.values())), timeout_s=grace_s)


def _spread() -> float:
    return random.random()  # noqa: S311 - spreads reconnects, guards nothing


async def _first_of(*waits: Coroutine[Any, Any, Any], timeout_s: float | None = None) -> None:
    """Returns when the first of these is done, or the time is over; the others are cancelled."""
    tasks = {asyncio.create_task(wait) for wait in waits}
    try:
        await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
