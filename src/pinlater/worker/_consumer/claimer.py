"""Claims one queue's jobs while the worker runs: how many are needed now, acks of earlier jobs in the same request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from pinlater.client.errors import DequeueRateLimited, PinLaterError, UnknownMethod
from pinlater.client.values import AckResult, ClaimedJob, Dequeued
from pinlater.worker._consumer.executor import Executor
from pinlater.worker._consumer.held_jobs import HeldJob, HeldJobs
from pinlater.worker._consumer.pacing import Pacing, claim_limit, prefetch_count
from pinlater.worker._consumer.runner import AttemptRunner
from pinlater.worker._consumer.worker_run import WorkerRun
from pinlater.worker._leases.leases import Lease
from pinlater.worker._reports.report import Report
from pinlater.worker._reports.reporter import Reporter

_log = logging.getLogger("pinlater.worker")
# The default of an original server, which doesn't say how long its claims last.
ORIGINAL_CLAIM_MS = 180_000
# Not 0, since a claim of a paused queue that does not wait is refused.
_WAIT_AFTER_FAILURE_MS = 500


class Claimer:
    """Belongs to one queue."""

    def __init__(
        self,
        run: WorkerRun,
        queue: str,
        jobs: HeldJobs,
        executor: Executor,
        reporter: Reporter,
        pacing: Pacing,
        runner: AttemptRunner,
    ) -> None:
        self._run = run
        self._client = run.client
        self._settings = run.settings
        self._clock = run.clock
        self._slots = run.slots
        self._queue = queue
        self._jobs = jobs
        self._executor = executor
        self._reporter = reporter
        self._pacing = pacing
        self._runner = runner
        self._server_ahead_ms: int | None = None  # the server's clock against our monotonic one
        self._asked = False
        self._failed = False  # the latest claim
        self.blocked_since_s: float | None = (
            None  # monotonic; since when abandoned functions use all of the queue's slots
        )

    @property
    def abandoned_functions(self) -> int:
        """Functions that still run although the worker gave up their jobs."""
        return self._jobs.abandoned_functions(self._runner.threads.busy)

    @property
    def server_answers(self) -> bool:
        """Whether the latest claim was answered; False before the first one."""
        return self._server_ahead_ms is not None

    async def claim_until_stopped(self) -> None:
        """Claims whenever jobs are needed. Ends between two claims."""
        while not self._run.stop.is_set():
            limit = self._limit()
            left = self._run.recycling.jobs_left(self._run.counts.claimed)
            if left == 0:
                self._run.recycle(f"{self._run.counts.claimed} jobs claimed")
            elif limit:
                await self._claim(limit if left is None else min(limit, left))
            else:
                self._jobs.changed.clear()
                await self._jobs.changed.wait()

    def _limit(self) -> int:
        abandoned = self.abandoned_functions
        if abandoned >= self._slots.most(self._queue):
            if self.blocked_since_s is None:
                self.blocked_since_s = self._clock.monotonic()
                _log.error("queue %s: %d functions don't end; no more jobs until they do", self._queue, abandoned)
            return 0
        self.blocked_since_s = None
        allowed = len(self._jobs.running) + self._slots.free_for(self._queue)
        prefetch = prefetch_count(self._jobs.mean_ms, allowed, self._settings.prefetch_max)
        limit = claim_limit(self._jobs.count, allowed, prefetch)
        if not limit:
            self._slots.wants(self._queue, True)
        return limit

    async def _claim(self, limit: int) -> None:
        acks = self._reporter.take()
        started = self._clock.monotonic()
        try:
            dequeued = await self._dequeue(limit, acks)
        except PinLaterError as error:
            self._reporter.undelivered(acks, error)
            if self._run.stop.is_set():  # the worker hung up
                return
            self._run.counts.claim_errors += 1
            if not acks or not _may_be_due_to_acks(error):
                self._server_ahead_ms = None
                self._failed = True
                await self._pacing.failed(error)
            return
        except asyncio.CancelledError:  # the server may have the acks; sending them again is safe
            self._reporter.undelivered(acks)
            raise
        self._failed = False
        self._reporter.delivered(acks, dequeued.ack_results)
        self._jobs.backlogged = len(dequeued.jobs) >= limit
        self._accept(dequeued.jobs)
        if dequeued.jobs and not self._jobs.backlogged:
            await asyncio.sleep(0)  # quick jobs end now, and their acks ride on the next claim
        await self._pacing.answered(dequeued, self._clock.monotonic() - started)

    async def _dequeue(self, limit: int, acks: Sequence[Report]) -> Dequeued:
        self._pacing.claiming()
        if self._server_ahead_ms is None:
            await self._ask_clock()
        # A queue's share of the slots is reserved until its first claim is answered, so that claim doesn't wait for jobs.
        first, self._asked = not self._asked, True
        wait_ms = 0 if first and len(self._run.consumers) > 1 else self._settings.wait_ms
        if self._failed:  # soon an answer, so that the log says soon that the server answers again
            wait_ms = min(wait_ms, _WAIT_AFTER_FAILURE_MS)
        return await self._client.dequeue(
            self._queue,
            limit,
            wait_ms=wait_ms,
            acks=self._reporter.riding(acks),
            process=self._run.introduction.about(self._queue),
        )

    async def _ask_clock(self) -> None:
        try:
            info = await self._client.server_info()
        except UnknownMethod:
            self._server_ahead_ms = 0
            self._reporter.original_server = True
        else:
            # Relative to the monotonic clock: a step of this machine's wall clock must not make claims look longer than they are.
            self._server_ahead_ms = info.now_ms - round(self._clock.monotonic() * 1000)
            self._reporter.original_server = False

    def _accept(self, jobs: Sequence[ClaimedJob]) -> None:
        now_ms = round(self._clock.monotonic() * 1000) + (self._server_ahead_ms or 0)
        for job in jobs:
            held = HeldJob(job)
            if (job.token or self._reporter.original_server) and not self._lease(held, now_ms):
                self._run.counts.released += 1
                continue
            self._jobs.waiting.append(held)
        self._run.counts.claimed += len(jobs)
        self._executor.start_waiting()
        if self._slots.wants(self._queue, self._jobs.wants_slots):
            self._run.offer_slots()

    def _lease(self, held: HeldJob, now_ms: int) -> bool:
        """Has the claim renewed; False if it was given back unread, while the event loop was blocked."""
        deadline_ms, stopper = held.job.claim_deadline_ms, self._executor.stopper
        length_ms = ORIGINAL_CLAIM_MS if deadline_ms is None else deadline_ms - now_ms
        on_loop = asyncio.get_running_loop().call_soon_threadsafe

        def lost(result: AckResult) -> None:
            on_loop(stopper.lose, held, result)

        lease = Lease(held.job, lost, partial(on_loop, stopper.given_back, held))
        held.lease = self._run.heartbeater.keep(lease, max(1, length_ms))
        return held.lease is not None


def _may_be_due_to_acks(error: PinLaterError) -> bool:
    """Whether a server without per-item errors may have refused the claim because of an ack that rode on it.

    Those acks are sent separately now, so the claim is made again at once.
    """
    return error.code is not None and error.retryable and not isinstance(error, DequeueRateLimited)
