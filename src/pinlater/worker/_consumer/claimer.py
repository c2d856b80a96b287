"""Claims one queue's jobs while the worker runs, when its slots allow it; acks of earlier jobs ride in the same request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from pinlater.client.errors import CallerError, DequeueRateLimited, PinLaterError, QueueNotFound, UnknownMethod
from pinlater.client.values import AckBatch, ClaimedJob, Dequeued
from pinlater.worker._consumer.held_job import HeldJobs
from pinlater.worker._consumer.pacing import Pacing
from pinlater.worker._consumer.worker_run import WorkerRun
from pinlater.worker._enqueueing.enqueuer import not_created

_log = logging.getLogger("pinlater.worker")
# Not 0, since a claim of a paused queue that does not wait is refused.
_WAIT_AFTER_FAILURE_MS = 500
# The wait of a claim that takes a part of the worker's allowance, and when it takes none any more.
_SHORT_WAIT_MS = 1
_OVERDUE_S = 1.0
# A long poll answered within this time found jobs that waited.
_AT_ONCE_S = 0.05


class Claimer:
    """Belongs to one queue. Calls `accept` with claimed jobs and the time of the server's clock."""

    def __init__(
        self, run: WorkerRun, jobs: HeldJobs, accept: Callable[[Sequence[ClaimedJob], int], None], pacing: Pacing
    ) -> None:
        self._run = run
        self._client = run.client
        self._settings = run.settings
        self._clock = run.clock
        self._slots = run.slots
        self._share = jobs.share
        self._queue = jobs.queue
        self._jobs = jobs
        self._outbox = jobs.outbox
        self._accept = accept
        self._pacing = pacing
        self._server_ahead_ms: int | None = None  # the server's clock against our monotonic one
        self._turn: asyncio.Future[int] | None = None
        self._failed = False  # the latest claim
        self._creates = run.settings.auto_create  # the queue, if it is missing
        self.blocked_since_s: float | None = (
            None  # monotonic; since when abandoned functions use all of the queue's slots
        )

    @property
    def server_answers(self) -> bool:
        """Whether the latest claim was answered; False before the first one."""
        return self._server_ahead_ms is not None

    async def claim_until_stopped(self) -> None:
        """Claims whenever the worker's slots allow it. Ends between two claims."""
        while not self._run.stop.is_set():
            limit = await self._allowed()
            left = self._run.jobs_left()
            if self._run.stop.is_set():
                return
            if left == 0:
                self._run.recycle_at_a_limit()
            elif self._is_blocked():
                self._ended(backlogged=self._share.backlogged)
                self._jobs.changed.clear()
                await self._jobs.changed.wait()
            else:
                await self._claim(limit if left is None else min(limit, left))

    async def _allowed(self) -> int:
        """Waits until the queue may claim; returns how many jobs."""
        self._turn = asyncio.get_running_loop().create_future()
        self._slots.want_claim(self._share)
        self._run.offer_claims()
        return await self._turn

    def begin(self, limit: int) -> None:
        """The queue may claim up to `limit` jobs."""
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(limit)

    def _is_blocked(self) -> bool:
        """Whether abandoned functions use all of the queue's slots."""
        abandoned = self._jobs.abandoned_functions
        if abandoned < self._share.most:
            self.blocked_since_s = None
            return False
        if self.blocked_since_s is None:
            self.blocked_since_s = self._clock.monotonic()
            _log.error("queue %s: %d functions don't end; no more jobs until they do", self._queue, abandoned)
        return True

    async def _claim(self, limit: int) -> None:
        started = self._clock.monotonic()
        # Another queue may need the slots, so that a queue that only seemed to have jobs must say soon that it has none.
        seeks = bool(self._share.asked) and self._slots.is_shared and self._settings.wait_ms > _SHORT_WAIT_MS
        overdue = asyncio.get_running_loop().call_later(_OVERDUE_S, self._is_overdue) if seeks else None
        wait_ms = _SHORT_WAIT_MS if seeks else self._settings.wait_ms
        outbox = self._run.outbox_with_acks(self._outbox) if seeks else self._outbox
        acks = outbox.take()
        if self._failed:  # soon an answer, so that the log says soon that the server answers again
            wait_ms = min(wait_ms, _WAIT_AFTER_FAILURE_MS)
        try:
            dequeued = await self._dequeue(limit, wait_ms, outbox.riding(acks))
        except PinLaterError as error:
            outbox.undelivered(acks, error if outbox is self._outbox else None)
            if self._run.stop.is_set():  # the worker hung up
                return
            self._run.counts.claim_errors += 1
            due_to_acks = bool(acks) and _may_be_due_to_acks(error, are_others=outbox is not self._outbox)
            self._ended(backlogged=due_to_acks and self._share.backlogged)
            if not due_to_acks:
                self._server_ahead_ms = None
                self._failed = True
                missing = isinstance(error, QueueNotFound)
                failure = await self._create(error) if missing and self._creates else error
                if failure is not None:
                    await self._pacing.failed(failure)
            return
        except asyncio.CancelledError:  # the server may have the acks; sending them again is safe
            outbox.undelivered(acks)
            raise
        finally:
            if overdue is not None:
                overdue.cancel()
        self._failed = False
        self._creates = self._settings.auto_create
        outbox.delivered(acks, dequeued.ack_results)
        took_s = self._clock.monotonic() - started
        found = self._seems_backlogged(dequeued, limit, took_s, seeks=seeks)
        self._slots.claim_ended(self._share, backlogged=found)
        if dequeued.jobs:
            self._accept(dequeued.jobs, round(self._clock.monotonic() * 1000) + (self._server_ahead_ms or 0))
        self._run.offer_claims()  # after the jobs, of which quick ones end first, so that their acks ride on the next claim
        await self._pacing.answered(dequeued, took_s, None if seeks else wait_ms)

    async def _create(self, missing: PinLaterError) -> PinLaterError | None:
        """Creates the queue; returns the error if that fails. A refusal is final until a claim has found the queue, so that a worker that
        is running does not bring back a queue that was deleted."""
        try:
            await self._client.ensure_queue(self._queue)
        except CallerError as error:
            self._creates = False
            return not_created(missing, error)
        except PinLaterError as error:
            return error
        _log.info("queue %s: created, since it did not exist", self._queue)
        return None

    def _seems_backlogged(self, dequeued: Dequeued, limit: int, took_s: float, *, seeks: bool) -> bool:
        """Claims of a worker without long polls always take a part of its allowance."""
        if not self._settings.wait_ms:
            return True
        # Jobs that a long poll had to wait for have just come.
        return len(dequeued.jobs) >= limit and (seeks or took_s < _AT_ONCE_S)

    def _is_overdue(self) -> None:
        """The claim is not answered soon: other queues may claim for the slots."""
        self._ended(backlogged=False)

    def _ended(self, *, backlogged: bool) -> None:
        """The claim takes no part of the allowance any more."""
        self._slots.claim_ended(self._share, backlogged=backlogged)
        self._run.offer_claims()

    async def _dequeue(self, limit: int, wait_ms: int, acks: AckBatch | None) -> Dequeued:
        self._pacing.claiming()
        if self._server_ahead_ms is None:
            await self._ask_clock()
        return await self._client.dequeue(
            self._queue,
            limit,
            wait_ms=wait_ms,
            acks=acks,
            process=self._run.introduction.about(self._queue),
        )

    async def _ask_clock(self) -> None:
        try:
            info = await self._client.server_info()
        except UnknownMethod:
            self._server_ahead_ms = 0
            self._outbox.delivery.original_server = True
        else:
            # Relative to the monotonic clock: a step of this machine's wall clock must not make claims look longer than they are.
            self._server_ahead_ms = info.now_ms - round(self._clock.monotonic() * 1000)
            self._outbox.delivery.original_server = False


def _may_be_due_to_acks(error: PinLaterError, *, are_others: bool) -> bool:
    """Whether a server without per-item errors may have refused the claim because of an ack that rode on it.

    Those acks are sent separately now, so the claim is made again at once. `are_others`: they are of another queue, which may be gone.
    """
    return error.code is not None and (error.retryable or are_others) and not isinstance(error, DequeueRateLimited)
