"""One queue's consumer: claims jobs, executes them and reports how they ended, until the worker stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pinlater.client.values import ClaimedJob
from pinlater.worker._children.pool import ChildPool
from pinlater.worker._consumer.claimer import Claimer
from pinlater.worker._consumer.held_job import HeldJob, HeldJobs, handed_over
from pinlater.worker._consumer.pacing import Pacing, PollingPace
from pinlater.worker._consumer.places import Places
from pinlater.worker._consumer.shutdown import Shutdown
from pinlater.worker._consumer.worker_run import WorkerRun
from pinlater.worker._outbox.outbox import Outbox
from pinlater.worker.tasks import Task


class Consumer:
    """Runs one queue's jobs. `run` ends after the grace time at most, and a few seconds for reports."""

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
        self.outbox = Outbox(run.client, queue, run.settings, run.counts, run.clock, run.leases.drop)
        children = ChildPool(
            start_ms=run.settings.child_start_ms,
            jobs_max=run.settings.child_jobs_max,
            memory_bytes_max=run.settings.child_memory_bytes_max,
            setups=run.options.child_setups,
            servers=run.options.servers_of_children,
        )
        self._places = Places(queue, self.outbox.checkpoint, run.options.middleware, children, run.clock)
        self.jobs = HeldJobs(run, queue, tasks, default, self.outbox, self._places)
        pace = PollingPace(queue, run.settings, run.stop, run.outage) if pacing is None else pacing(self.jobs)
        self.claimer = Claimer(run, self.jobs, self._accept, pace)
        self._shutdown = Shutdown(run, self.jobs)
        self.start_next, self.claim = self.jobs.start_next, self.claimer.begin
        run.slots.share(queue).holder = self

    async def run(self) -> None:
        """Claims and executes jobs until the worker stops. Raises only if the worker itself has a defect.

        Cancelling it cancels the jobs and reports nothing more: their claims time out.
        """
        self._places.threads.ended = self.jobs.changed.set  # perhaps an abandoned one
        try:
            async with asyncio.TaskGroup() as group:
                flushing = group.create_task(self.outbox.flush_until_cancelled())
                await self._shutdown.end_claiming(group.create_task(self.claimer.claim_until_stopped()))
                await self._shutdown.finish(flushing)
        finally:
            for held in [*self.jobs.drop_waiting(), *self.jobs.running]:
                held.cancel()
            self._places.close()

    def _accept(self, jobs: Sequence[ClaimedJob], server_now_ms: int) -> None:
        """These claimed jobs wait for slots, but for those that the heartbeat thread gave back before they were read."""
        claimed = [HeldJob(self.jobs, job, server_now_ms) for job in jobs]
        original = self.outbox.original_server
        given_back = self._run.renew([held for held in claimed if held.job.token or original])
        self._run.counts.claimed += len(claimed)
        self._run.counts.released += len(given_back)
        kept = [held for held in claimed if held not in given_back] if given_back else claimed
        self.jobs.waiting.extend(kept)
        self._run.slots.add_waiting(self.jobs.share, len(kept))
        self._run.jobs_came()

    def give_back_newest(self, jobs: int) -> None:
        """Gives back the jobs that were claimed last, for other workers."""
        self.outbox.release_soon(handed_over(self.jobs.pop_newest(jobs)))
