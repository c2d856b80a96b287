"""The time limit of one attempt: stops its function, and bounds how long its claim is renewed.

The limit of a process task begins anew when its child process begins the function, so that the start of the process does not count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pinlater.worker._consumer.held_jobs import HeldJob, StopReason
from pinlater.worker._consumer.job_stopper import CANCEL_S
from pinlater.worker._consumer.worker_run import WorkerRun


class TimeLimit:
    """Belongs to one attempt of a held job. `limit_ms` None is no limit. The executor cancels the job's timer at its end."""

    def __init__(
        self, run: WorkerRun, held: HeldJob, limit_ms: int | None, stop: Callable[[HeldJob, StopReason], None]
    ) -> None:
        self._run = run
        self._held = held
        self._limit_ms = limit_ms
        self._stop = stop

    def begin(self) -> bool:
        """Starts the limit, anew if it runs. False if the heartbeater gave the job back before it started."""
        if not self._renew_claim_for(self._limit_ms):
            return False
        if self._limit_ms is not None:
            self._cancel_timer()
            later = asyncio.get_running_loop().call_later
            self._held.timer = later(self._limit_ms / 1000, self._stop, self._held, StopReason.TIME_LIMIT)
        return True

    def suspend(self, start_ms: int) -> None:
        """Until `begin`, which follows within `start_ms` unless the attempt ends."""
        self._cancel_timer()
        self._renew_claim_for(None if self._limit_ms is None else start_ms)

    def _renew_claim_for(self, length_ms: int | None) -> bool:
        """And for the time that a cancellation takes."""
        if self._held.lease is None:
            return True
        until_s = None if length_ms is None else self._run.clock.monotonic() + length_ms / 1000 + CANCEL_S + 1
        return self._run.leases.begin(self._held.lease, until_s)

    def _cancel_timer(self) -> None:
        if self._held.timer is not None:
            self._held.timer.cancel()
