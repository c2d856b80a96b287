"""How long single turns of the event loop take, measured by a timer: while a turn lasts, no client is answered.

A timer that fires late shows that a turn was under way when it was due. The delay (the lag) depends on the machine too: a process that
gets no CPU is late as well. So the CPU time that the loop's thread has used since the previous timer is measured, too: the lesser of the
two is the server's own work in that turn, on a loaded machine as on an idle one.

Weakness: a turn is measured from the time when the timer was due, so up to an interval of it is missing; turns shorter than an interval
may be missed. Several callbacks that the loop runs in one turn count together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pinlater.server.telemetry.metrics import Metrics

BOUNDS_MS = (10, 25, 50, 100, 250, 500, 1_000, 2_500)
WINDOW_S = 60.0


class Lateness:
    """How often a delay exceeded each bound, and the longest of this minute and the last."""

    def __init__(self) -> None:
        self._over = dict.fromkeys(BOUNDS_MS, 0)
        self._longest_s = 0.0
        self._longest_before_s = 0.0

    def record(self, seconds: float) -> None:
        if seconds > self._longest_s:
            self._longest_s = seconds
        milliseconds = seconds * 1000
        for bound in BOUNDS_MS:
            if milliseconds <= bound:
                return
            self._over[bound] += 1

    def next_window(self) -> None:
        """A minute is over."""
        self._longest_before_s, self._longest_s = self._longest_s, 0.0

    def longest_s(self) -> float:
        return max(self._longest_s, self._longest_before_s)

    def over(self) -> dict[str, float]:
        """Returns how often, by the bound in milliseconds."""
        return {str(bound): count for bound, count in self._over.items()}


class LoopLag:
    """Measures the loop that it is started on. `monotonic` and `cpu` give seconds, the latter those that the calling thread has used."""

    def __init__(self, interval_ms: int, monotonic: Callable[[], float], cpu: Callable[[], float]) -> None:
        self._interval_s = interval_ms / 1000
        self._monotonic = monotonic
        self._cpu = cpu
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = self._cpu_s = self._window_ends_s = 0.0
        self.lag = Lateness()
        self.turn_cpu = Lateness()

    def show(self, metrics: Metrics) -> None:
        metrics.gauge(
            "loop-lag-max",
            self.lag.longest_s,
            prometheus="pinlater_loop_lag_seconds_max",
            help="Longest delay of the event loop's timer in this minute and the last, in seconds",
            join="max",
        )
        metrics.labelled_gauge(
            "loop-lag-over-",
            self.lag.over,
            prometheus="pinlater_loop_lag_over",
            label="ms",
            help="How often the event loop's timer was late by more than the label's milliseconds; only grows",
        )
        metrics.gauge(
            "loop-turn-cpu-max",
            self.turn_cpu.longest_s,
            prometheus="pinlater_loop_turn_cpu_seconds_max",
            help="Most CPU time that a turn of the event loop took in this minute and the last, in seconds",
            join="max",
        )
        metrics.labelled_gauge(
            "loop-turn-cpu-over-",
            self.turn_cpu.over,
            prometheus="pinlater_loop_turn_cpu_over",
            label="ms",
            help="How often a turn of the event loop took more CPU time than the label's milliseconds; only grows",
        )

    def start(self) -> None:
        """Measures from now on; needs a running loop."""
        now_s = self._monotonic()
        self._window_ends_s = now_s + WINDOW_S
        self._schedule(now_s, self._cpu())

    def stop(self) -> None:
        """Stops measuring. May be called twice."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self, now_s: float, cpu_s: float) -> None:
        self._due_s = now_s + self._interval_s
        self._cpu_s = cpu_s
        self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._look)

    def _look(self) -> None:
        now_s, cpu_s = self._monotonic(), self._cpu()
        lag_s = now_s - self._due_s
        self.lag.record(lag_s)
        self.turn_cpu.record(min(lag_s, cpu_s - self._cpu_s))
        if now_s >= self._window_ends_s:
            self._window_ends_s = now_s + WINDOW_S
            self.lag.next_window()
            self.turn_cpu.next_window()
        self._schedule(now_s, cpu_s)
