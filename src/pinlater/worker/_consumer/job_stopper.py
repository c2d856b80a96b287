"""Stops a running job from outside: its time limit, which also bounds how long its claim is renewed, a lost claim, or the worker's stop.

A coroutine is cancelled and a child process killed; a thread goes on. A function that ignores this is abandoned after a second: its
slot goes to the next job, and it counts as abandoned until it ends.

The limit of a process task begins anew when its child process begins the function, so that the start of the process does not count.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from pinlater.client.values import AckResult
from pinlater.worker._attempts.endings import Kind
from pinlater.worker._consumer.held_jobs import HeldJob, HeldJobs, StopReason
from pinlater.worker._consumer.worker_run import WorkerRun
from pinlater.worker.context import why_lost
from pinlater.worker.logs import fields_of

_log = logging.getLogger("pinlater.worker")
# How long a cancelled function may take to end before it is abandoned.
CANCEL_S = 1.0


class JobStopper:
    """Belongs to one queue. `abandon` frees the slot of an abandoned job; `report_time_limit` reports one that ran too long."""

    def __init__(
        self,
        run: WorkerRun,
        jobs: HeldJobs,
        *,
        ended: Callable[[HeldJob, Kind], None],
        abandon: Callable[[HeldJob], None],
        report_time_limit: Callable[[HeldJob], Coroutine[Any, Any, None]],
    ) -> None:
        self._jobs = jobs
        self._run = run
        self._ended = ended
        self._abandon_slot = abandon
        self._report_time_limit = report_time_limit
        self.reporting: set[asyncio.Task[None]] = set()  # reports of abandoned jobs

    def begin_limit(self, held: HeldJob, limit_ms: int | None) -> bool:
        """Starts the job's time limit, anew if it runs; None is no limit. The executor cancels its timer at the job's end.

        False if the heartbeater gave the job back before it started.
        """
        if not self._renew_claim_for(held, limit_ms):
            return False
        if limit_ms is not None:
            if held.timer is not None:
                held.timer.cancel()
            later = asyncio.get_running_loop().call_later
            held.timer = later(limit_ms / 1000, self.stop, held, StopReason.TIME_LIMIT)
        return True

    def suspend_limit(self, held: HeldJob, limit_ms: int | None, start_ms: int) -> None:
        """Until `begin_limit`, which follows within `start_ms` unless the attempt ends."""
        if held.timer is not None:
            held.timer.cancel()
        self._renew_claim_for(held, None if limit_ms is None else start_ms)

    def _renew_claim_for(self, held: HeldJob, length_ms: int | None) -> bool:
        """And for the time that a cancellation takes."""
        if held.lease is None:
            return True
        until_s = None if length_ms is None else self._run.clock.monotonic() + length_ms / 1000 + CANCEL_S + 1
        return self._run.leases.begin(held.lease, until_s)

    def lose(self, held: HeldJob, result: AckResult) -> None:
        """The claim has ended: this worker must neither run nor report the job any more."""
        if held in self._jobs.waiting:
            self._jobs.drop(held)
        elif held not in self._jobs.running or held.stopped is not None or held.reporting:
            return
        _log.warning("job %s: claim lost: %s", result.descriptor, why_lost(result), extra=fields_of(held.job))
        self._run.counts.lost += 1
        held.lease = None
        self.stop(held, StopReason.LOST)

    def given_back(self, held: HeldJob) -> None:
        """The heartbeater gave the job back because the event loop was blocked. A job with a task finds out as it starts."""
        if held in self._jobs.waiting:
            self._jobs.drop(held)
            self._run.end_lease(held)
            self._run.counts.released += 1
            self._run.offer_claims()

    def stop(self, held: HeldJob, why: StopReason) -> None:
        """Cancels the job's task. Does nothing if its function has ended or was stopped before."""
        if held.stopped is not None or held.reporting or held.task is None or held.task.done():
            return
        held.stopped = why
        if why is not StopReason.TIME_LIMIT:
            self._ended(held, Kind.LOST if why is StopReason.LOST else Kind.GIVEN_BACK)
        held.task.cancel()
        asyncio.get_running_loop().call_later(CANCEL_S, self._abandon, held)

    def _abandon(self, held: HeldJob) -> None:
        if held not in self._jobs.running:
            return
        held.abandoned = True
        _log.error(
            "job %s: its function does not end although it was cancelled (%s)", held.job.descriptor, held.stopped,
            extra=fields_of(held.job),
        )  # fmt: skip
        self._abandon_slot(held)
        if held.stopped is StopReason.TIME_LIMIT:
            reporting = asyncio.create_task(self._report_time_limit(held))
            self.reporting.add(reporting)
            reporting.add_done_callback(self.reporting.discard)
