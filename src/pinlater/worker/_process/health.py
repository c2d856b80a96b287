"""Whether a worker is well: what its probes and metrics say.

The event loop leaves its traces here (`turn`), and anybody in any thread may look: while a handler blocks the loop the traces grow
old, and that is the finding. It must never wait for the loop. Weakness: code that holds the interpreter's lock stops the
thread that would answer, too; a probe's own time limit finds that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from pinlater.domain.clock import Clock
from pinlater.worker._consumer.consumer import Team
from pinlater.worker._process import metrics as _metrics
from pinlater.worker._process.recycling import resident_bytes

_TURN_S = 0.5


class Report(msgspec.Struct, frozen=True, tag=True):
    """What probes get to know: nothing in `ill` and `unready` means healthy and ready. `metrics` is Prometheus' text."""

    ill: list[str]
    unready: list[str]
    metrics: str


class Vitals:
    """Those of one worker, from its start on. `labels` go on all its metrics."""

    def __init__(self, team: Team, clock: Clock, labels: Mapping[str, str] | None = None) -> None:
        self._team = team
        self._clock = clock
        self._labels = labels
        self._stuck_s = team.settings.stuck_ms / 1000
        self._started = self._turned = clock.monotonic()
        self._started_at_s = clock.now_ms() / 1000
        self._left_behind = 0
        self._memory_bytes = resident_bytes()

    # --- on the worker's loop ---------------------------------------------------------------------------------------------
    async def turn(self) -> None:
        """Until cancelled: leaves traces, and ends the worker when it has had its time."""
        while True:
            self._turned = self._clock.monotonic()
            self._left_behind = sum(consumer.left_behind for consumer in self._team.consumers)
            self._memory_bytes = resident_bytes()
            due = self._team.recycling.due(self._team.counts.claimed, self._turned - self._started, self._memory_bytes)
            if due:
                self._team.recycle(due)
            await asyncio.sleep(_TURN_S)

    # --- anywhere -----------------------------------------------------------------------------------------------------------
    def report(self) -> Report:
        """How it is now."""
        ill = self._ill()
        return Report(ill, [*ill, *self._unready()], _metrics.text_of(self._state(), self._labels))

    def _blocked_s(self) -> float:
        return max(0.0, self._clock.monotonic() - self._turned - _TURN_S)

    def _ill(self) -> list[str]:
        found = []
        blocked_s = self._blocked_s()
        if blocked_s >= self._stuck_s:
            found.append(f"the event loop has been blocked for {blocked_s:.0f} s")
        now = self._clock.monotonic()
        for consumer in self._team.consumers:
            since = consumer.held_back_since
            if since is not None and now - since >= self._stuck_s:
                found.append(f"queue {consumer.queue}: functions that don't end hold all slots")
        return found

    def _unready(self) -> list[str]:
        if self._team.stop.is_set():
            return ["stopping"]
        away = [consumer.queue for consumer in self._team.consumers if not consumer.answered]
        held = [consumer.queue for consumer in self._team.consumers if consumer.held_back_since is not None]
        return [
            *(f"queue {queue}: no answer from the server" for queue in away),
            *(f"queue {queue}: waits for functions that don't end" for queue in held),
        ]

    def _state(self) -> _metrics.State:
        team = self._team
        return _metrics.State(
            team.counts,
            team.settings.concurrency,
            self._left_behind,
            team.heart.errors,
            team.heart.failing and team.counts.running > 0,  # without a claim there is nothing to lose
            self._blocked_s(),
            self._memory_bytes,
            self._started_at_s,
        )
