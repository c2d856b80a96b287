"""One queue's consumer: claims jobs, executes them and reports how they ended, until the worker stops."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from pinlater.worker._children.pool import ChildPool
from pinlater.worker._consumer.claimer import Claimer
from pinlater.worker._consumer.executor import Executor
from pinlater.worker._consumer.held_jobs import HeldJobs, StopReason
from pinlater.worker._consumer.pacing import Pacing, PollingPace
from pinlater.worker._consumer.runner import AttemptRunner
from pinlater.worker._consumer.shutdown import Shutdown
from pinlater.worker._consumer.worker_run import WorkerRun
from pinlater.worker._reports.reporter import Reporter
from pinlater.worker.tasks import Task


class Consumer:
    """Runs one queue's jobs. `run` ends after the grace time at most, and a few seconds for reports."""

    def __init__(
        self,
        run: WorkerRun,
        queue: str,
        tasks: Mapping[str, Task[..., Any]],
        default: Task[..., Any] | None,
        pacing: Pacing | None = None,
        jobs: HeldJobs | None = None,
    ) -> None:
        self._run = run
        self.queue = queue
        self.jobs = jobs or run.new_jobs(queue)
        self.reporter = Reporter(run.client, queue, run.settings, run.counts, run.clock, run.leases.drop)
        children = ChildPool(
            start_ms=run.settings.child_start_ms,
            jobs_max=run.settings.child_jobs_max,
            memory_bytes_max=run.settings.child_memory_bytes_max,
            setups=run.options.child_setups,
            servers=run.options.servers_of_children,
        )
        self.runner = AttemptRunner(queue, self.reporter.checkpoint, run.options.middleware, children, run.clock)
        self._executor = Executor(run, tasks, default, self.jobs, self.runner, self.reporter)
        pacing = pacing or PollingPace(queue, run.settings, run.stop, run.outage)
        self.claimer = Claimer(run, self.jobs, self._executor, self.reporter, pacing, self.runner)
        self._shutdown = Shutdown(run, self.jobs, self._executor.stopper, self.reporter)
        self.start_next, self.claim = self._executor.start_next, self.claimer.begin
        run.slots.share(queue).holder = self

    async def run(self) -> None:
        """Claims and executes jobs until the worker stops. Raises only if the worker itself has a defect.

        Cancelling it cancels the jobs and reports nothing more: their claims time out.
        """
        self.runner.threads.ended = self.jobs.changed.set  # perhaps an abandoned one
        try:
            async with asyncio.TaskGroup() as group:
                flushing = group.create_task(self.reporter.flush_until_cancelled())
                await self._shutdown.end_claiming(group.create_task(self.claimer.claim_until_stopped()))
                await self._shutdown.finish(flushing)
        finally:
            self._cancel_jobs()
            self.runner.close()

    def give_back_newest(self, jobs: int) -> None:
        """Gives back jobs that were claimed last, for other workers."""
        self.reporter.release_soon([held.hand_over_lease() for held in self.jobs.pop_newest(jobs)])

    def _cancel_jobs(self) -> None:
        for held in [*self.jobs.drop_waiting(), *self.jobs.running]:
            held.stopped = held.stopped or StopReason.GIVEN_BACK
            self._run.end_lease(held)
            if held.task is not None:
                held.task.cancel()
