"""A worker's health, for probes and metrics.

The worker's event loop writes marks; any thread may read them. While a task blocks the loop, the marks grow old, which shows the problem.
Reading must never wait for the loop. Weakness: code that holds the interpreter's lock stops the reading thread too; a probe's own time
limit notices that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from pinlater.domain.clock import Clock
from pinlater.supervision.resident_memory import resident_bytes
from pinlater.worker._consumer.worker_run import WorkerRun
from pinlater.worker._process import metrics

_MARK_S = 0.5


class HealthReport(msgspec.Struct, frozen=True):
    """Reasons why the worker is `unhealthy` or `unready`, none if it isn't, and the page of `metrics`."""

    unhealthy: list[str]
    unready: list[str]
    metrics: str


class WorkerHealth:
    """The health of one worker run. All its metrics get `labels`."""

    def __init__(self, run: WorkerRun, clock: Clock, labels: Mapping[str, str] | None = None) -> None:
        self._run = run
        self._clock = clock
        self._labels = labels
        self._stuck_s = run.settings.stuck_ms / 1000
        self._started_s = self._marked_s = clock.monotonic()
        self._started_at_s = clock.now_ms() / 1000
        self._abandoned_functions = 0
        self._memory_bytes = resident_bytes()

    async def mark_until_cancelled(self) -> None:
        """Runs on the worker's loop: writes marks, and recycles the worker when a limit is reached."""
        while True:
            self._marked_s = self._clock.monotonic()
            self._abandoned_functions = self._run.abandoned_functions
            self._memory_bytes = resident_bytes()
            age_s = self._marked_s - self._started_s
            if due := self._run.recycling.due(self._run.counts.claimed, age_s, self._memory_bytes):
                self._run.recycle(due)
            await asyncio.sleep(_MARK_S)

    def report(self) -> HealthReport:
        """The health now. Callable from any thread."""
        unhealthy = self._unhealthy()
        return HealthReport(unhealthy, [*unhealthy, *self._unready()], metrics.page_of(self._state(), self._labels))

    def _blocked_s(self) -> float:
        return max(0.0, self._clock.monotonic() - self._marked_s - _MARK_S)

    def _unhealthy(self) -> list[str]:
        found = []
        blocked_s = self._blocked_s()
        if blocked_s >= self._stuck_s:
            found.append(f"the event loop has been blocked for {blocked_s:.0f} s")
        now = self._clock.monotonic()
        for consumer in self._run.consumers:
            since = consumer.claimer.blocked_since_s
            if since is not None and now - since >= self._stuck_s:
                found.append(f"queue {consumer.queue}: functions that don't end hold all slots")
        return found

    def _unready(self) -> list[str]:
        if self._run.stop.is_set():
            return ["stopping"]
        unanswered = [consumer.queue for consumer in self._run.consumers if not consumer.claimer.server_answers]
        blocked = [consumer.queue for consumer in self._run.consumers if consumer.claimer.blocked_since_s is not None]
        return [
            *(f"queue {queue}: no answer from the server" for queue in unanswered),
            *(f"queue {queue}: waits for functions that don't end" for queue in blocked),
        ]

    def _state(self) -> metrics.WorkerSnapshot:
        run = self._run
        return metrics.WorkerSnapshot(
            run.counts,
            run.settings.concurrency,
            self._abandoned_functions,
            run.heartbeater.errors,
            run.heartbeater.failing and run.counts.running > 0,  # without a claim there is nothing to lose
            self._blocked_s(),
            self._memory_bytes,
            self._started_at_s,
        )
