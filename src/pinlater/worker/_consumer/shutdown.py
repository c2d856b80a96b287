"""Ends one queue's consumer in order: gives back what has not started, waits for what runs, reports the rest."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from pinlater.worker._consumer.held_job import CANCEL_S, HeldJobs, HeldState, StopReason, handed_over
from pinlater.worker._consumer.worker_run import WorkerRun

_log = logging.getLogger("pinlater.worker")
# How long a claim under way may still be answered: a busy queue's is, an idle queue's long poll is not.
_BUSY_CLAIM_S = 0.25
# How long the server may take to end a long poll that was hung up.
_HANG_UP_S = 1.0
# How long reports of ended jobs may take.
_REPORT_S = 6.0


class Shutdown:
    """Takes the grace time at most, and a few seconds for reports."""

    def __init__(self, run: WorkerRun, jobs: HeldJobs) -> None:
        self._run = run
        self._jobs = jobs
        self._outbox = jobs.outbox

    async def end_claiming(self, claiming: asyncio.Task[None]) -> None:
        """Waits for the worker to stop, then ends the claim under way."""
        await first_of(self._run.stop.wait(), asyncio.wait({claiming}))
        self._run.offer_claims()  # which ends those that wait to claim
        await asyncio.wait({claiming}, timeout=_BUSY_CLAIM_S)
        self._run.client.hang_up()
        await asyncio.wait({claiming}, timeout=_HANG_UP_S)
        claiming.cancel()
        await asyncio.wait({claiming})

    async def finish(self, flushing: asyncio.Task[None]) -> None:
        """Ends all held jobs and delivers their reports. Ends `flushing`, which sends reports meanwhile."""
        until = self._run.clock.monotonic() + self._run.settings.grace_ms / 1000
        await asyncio.gather(self._give_back_waiting(), self._wait_for_running())
        await self._give_back_running()
        await self._wait_for_reports()
        flushing.cancel()  # keeps the acks that it is sending
        await asyncio.wait({flushing})
        timeout_s = max(_REPORT_S, until - self._run.clock.monotonic())
        await first_of(self._outbox.flush_the_rest(timeout_s), self._stopped_now())

    async def _give_back_waiting(self) -> None:
        await self._outbox.release(handed_over(self._jobs.drop_waiting()))

    async def _wait_for_running(self) -> None:
        tasks = [held.running for held in self._jobs.running if held.running is not None]
        if tasks:
            grace_s = self._run.settings.grace_ms / 1000
            await first_of(self._run.stop_now.wait(), asyncio.wait(tasks), timeout_s=grace_s)

    async def _give_back_running(self) -> None:
        left = [held for held in self._jobs.running if held.state is HeldState.RUNNING]
        if not left:
            return
        _log.warning("queue %s: jobs that did not finish in time are given back: %d", self._jobs.queue, len(left))
        given_back = handed_over(left)  # heartbeats go on until the server has the jobs
        stopping = [held.running for held in left if held.running is not None]
        for held in left:
            held.stop(StopReason.GIVEN_BACK)
        await asyncio.wait(stopping, timeout=CANCEL_S)
        await self._outbox.release(given_back)

    async def _wait_for_reports(self) -> None:
        ended = [held.running for held in self._jobs.running if held.state is HeldState.REPORTING]
        reporting = [*self._jobs.late_reports, *(task for task in ended if task is not None)]
        if reporting:
            await asyncio.wait(reporting, timeout=_REPORT_S)

    async def _stopped_now(self) -> None:
        await self._run.stop_now.wait()
        await asyncio.sleep(_REPORT_S)


async def first_of(*waits: Coroutine[Any, Any, Any], timeout_s: float | None = None) -> None:
    """Returns when the first of these is done, or after the timeout; cancels the others."""
    tasks = {asyncio.create_task(wait) for wait in waits}
    try:
        await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
