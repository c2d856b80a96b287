"""One queue's consumer: claims jobs, runs them and reports how they ended, until the worker stops.

A stop gives back what has not started, waits for what runs, and delivers the reports. It takes the grace time at most, and a few seconds
for reports.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from pinlater.client.values import ClaimedJob
from pinlater.worker._children.pool import ChildPool
from pinlater.worker._consumer.claimer import Claimer
from pinlater.worker._consumer.held_job import CANCEL_S, HeldJob, HeldJobs, HeldState, StopReason, handed_over
from pinlater.worker._consumer.pacing import Pacing, PollingPace
from pinlater.worker._consumer.places import Places
from pinlater.worker._consumer.worker_run import WorkerRun
from pinlater.worker._outbox.delivery import Delivery
from pinlater.worker._outbox.outbox import Outbox
from pinlater.worker.tasks import Task

_log = logging.getLogger("pinlater.worker")
# How long a claim under way may still be answered: a busy queue's is, an idle queue's long poll is not.
_BUSY_CLAIM_S = 0.25
# How long the server may take to end a long poll that was hung up.
_HANG_UP_S = 1.0
# How long reports of ended jobs may take.
_REPORT_S = 6.0


class Consumer:
    """Runs one queue's jobs."""

    def __init__(
        self,
        run: WorkerRun,
        queue: str,
        tasks: Mapping[str, Task[..., Any]],
        default: Task[..., Any] | None,
        pacing: Callable[[HeldJobs], Pacing] | None = None,
    ) -> None:
        self._run = run
        self.queue = queue
        delivery = Delivery(run.client, queue, run.counts, run.clock, run.settings.retry_delay_ms, run.leases.drop)
        self._outbox = Outbox(delivery, run.settings)
        run.outboxes.append(self._outbox)
        children = ChildPool(run.settings, run.options.child_setups, run.options.servers_of_children)
        self._places = Places(queue, self._outbox.checkpoint, run.options.middleware, children, run.clock)
        self.jobs = HeldJobs(run, queue, tasks, default, self._outbox, self._places)
        run.jobs.append(self.jobs)
        pace = PollingPace(queue, run.settings, run.stop, run.outage) if pacing is None else pacing(self.jobs)
        self.claimer = Claimer(run, self.jobs, self._accept, pace)
        share = self.jobs.share
        share.start_next, share.claim, share.give_back_newest = (
            self.jobs.start_next, self.claimer.begin, self._give_back_newest
        )  # fmt: skip

    async def run(self) -> None:
        """Claims and runs jobs until the worker stops. Raises only if the worker itself has a defect.

        Cancelling it cancels the jobs and reports nothing more: their claims time out.
        """
        self._places.threads.ended = self.jobs.changed.set  # perhaps an abandoned one
        try:
            async with asyncio.TaskGroup() as group:
                flushing = group.create_task(self._outbox.flush_until_cancelled())
                await self._end_claiming(group.create_task(self.claimer.claim_until_stopped()))
                await self._end_jobs(flushing)
        finally:
            for held in [*self.jobs.drop_waiting(), *self.jobs.running]:
                held.cancel()
            self._places.close()

    # --- claimed jobs -----------------------------------------------------------------------------------------------------
    def _accept(self, jobs: Sequence[ClaimedJob], server_now_ms: int) -> None:
        """These claimed jobs wait for slots, but for those that the heartbeat thread gave back before they were read."""
        claimed = [HeldJob(self.jobs, job, server_now_ms) for job in jobs]
        original = self._outbox.delivery.original_server
        given_back = self._run.renew([held for held in claimed if held.job.token or original])
        self._run.counts.claimed += len(claimed)
        self._run.counts.released += len(given_back)
        kept = [held for held in claimed if held not in given_back] if given_back else claimed
        self.jobs.waiting.extend(kept)
        self._run.slots.add_waiting(self.jobs.share, len(kept))
        self._run.jobs_came()

    def _give_back_newest(self, jobs: int) -> None:
        """Gives back the jobs that were claimed last, for other workers."""
        self._outbox.release_soon(handed_over(self.jobs.pop_newest(jobs)))

    # --- stopping ---------------------------------------------------------------------------------------------------------
    async def _end_claiming(self, claiming: asyncio.Task[None]) -> None:
        """Waits for the worker to stop, then ends the claim under way."""
        await _first_of(self._run.stop.wait(), asyncio.wait({claiming}))
        self._run.offer_claims()  # which ends those that wait to claim
        await asyncio.wait({claiming}, timeout=_BUSY_CLAIM_S)
        self._run.client.hang_up()
        await asyncio.wait({claiming}, timeout=_HANG_UP_S)
        claiming.cancel()
        await asyncio.wait({claiming})

    async def _end_jobs(self, flushing: asyncio.Task[None]) -> None:
        """Ends all held jobs and delivers their reports. Ends `flushing`, which sends reports meanwhile."""
        grace_s = self._run.settings.grace_ms / 1000
        until = self._run.clock.monotonic() + grace_s
        waiting = handed_over(self.jobs.drop_waiting())
        await asyncio.gather(self._outbox.release(waiting), self._wait_for_running(grace_s))
        await self._give_back_running()
        await self._wait_for_reports()
        flushing.cancel()  # keeps the acks that it is sending
        await asyncio.wait({flushing})
        timeout_s = max(_REPORT_S, until - self._run.clock.monotonic())
        await _first_of(self._outbox.flush_the_rest(timeout_s), self._stopped_now())

    async def _wait_for_running(self, grace_s: float) -> None:
        tasks = [held.running for held in self.jobs.running if held.running is not None]
        if tasks:
            await _first_of(self._run.stop_now.wait(), asyncio.wait(tasks), timeout_s=grace_s)

    async def _give_back_running(self) -> None:
        left = [held for held in self.jobs.running if held.state is HeldState.RUNNING]
        if not left:
            return
        _log.warning("queue %s: jobs that did not finish in time are given back: %d", self.queue, len(left))
        given_back = handed_over(left)  # heartbeats continue until the server has the jobs
        stopping = [held.running for held in left if held.running is not None]
        for held in left:
            held.stop(StopReason.GIVEN_BACK)
        await asyncio.wait(stopping, timeout=CANCEL_S)
        await self._outbox.release(given_back)

    async def _wait_for_reports(self) -> None:
        ended = [held.running for held in self.jobs.running if held.state is HeldState.REPORTING]
        reporting = [*self.jobs.late_reports, *(task for task in ended if task is not None)]
        if reporting:
            await asyncio.wait(reporting, timeout=_REPORT_S)

    async def _stopped_now(self) -> None:
        await self._run.stop_now.wait()
        await asyncio.sleep(_REPORT_S)


async def _first_of(*waits: Coroutine[Any, Any, Any], timeout_s: float | None = None) -> None:
    """Returns when the first of these is done, or after the timeout; cancels the others."""
    tasks = {asyncio.create_task(wait) for wait in waits}
    try:
        await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
