"""The loop's own measure: late timers, CPU time of a turn, and what the pages show of both."""

from __future__ import annotations

import asyncio
import time

from pinlater.domain.clock import thread_cpu_s
from pinlater.server.telemetry.loop_lag import BOUNDS_MS, WINDOW_S, Lateness, LoopLag
from pinlater.server.telemetry.metrics import Metrics

DEADLINE_S = 30.0


class Times:
    """A monotonic clock and a thread's CPU time that a test turns."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.cpu_s = 5.0

        self._looked = asyncio.Event()

    def lag(self) -> LoopLag:
        return LoopLag(20, self._monotonic, lambda: self.cpu_s)

    def _monotonic(self) -> float:
        self._looked.set()
        return self.now_s

    async def turn(self, wall_s: float, cpu_s: float) -> None:
        """The timer fires that long after it was set."""
        self.now_s += wall_s
        self.cpu_s += cpu_s
        self._looked.clear()
        await self._looked.wait()


async def test_a_turn_counts_with_its_delay_and_with_the_cpu_time_that_was_used() -> None:
    times = Times()
    lag = times.lag()
    lag.start()
    await times.turn(0.02, 0.001)
    assert (lag.lag.over()["10"], lag.turn_cpu.over()["10"]) == (0, 0)
    await times.turn(0.02 + 0.3, 0.01)  # the machine was busy with others
    assert (lag.lag.over()["250"], lag.turn_cpu.over()["10"]) == (1, 0)
    await times.turn(0.02 + 0.06, 0.06)
    assert (lag.lag.over()["50"], lag.turn_cpu.over()["50"], lag.turn_cpu.over()["100"]) == (2, 1, 0)
    assert round(lag.turn_cpu.longest_s(), 6) == 0.06
    await times.turn(0.02, 0.5)  # CPU time of many short turns is no long turn
    assert lag.turn_cpu.over()["100"] == 0
    lag.stop()
    lag.stop()


async def test_the_longest_is_forgotten_after_two_minutes_and_the_counts_stay() -> None:
    times = Times()
    lag = times.lag()
    lag.start()
    await times.turn(0.5, 0.5)
    await times.turn(WINDOW_S, 0.0)
    assert lag.turn_cpu.longest_s() > 0.4
    await times.turn(WINDOW_S + 0.02, 0.0)
    assert lag.turn_cpu.longest_s() == 0.0
    assert lag.turn_cpu.over()["250"] == 1
    lag.stop()


def test_every_bound_below_is_counted() -> None:
    lateness = Lateness()
    lateness.record(0.3)
    assert lateness.over() == {str(bound): float(bound <= 250) for bound in BOUNDS_MS}


async def test_a_callback_that_computes_for_long_is_seen() -> None:
    metrics = Metrics()
    lag = LoopLag(5, time.monotonic, thread_cpu_s)
    lag.show(metrics)
    lag.start()
    until_cpu_s = time.thread_time() + 0.08
    while time.thread_time() < until_cpu_s:
        pass
    async with asyncio.timeout(DEADLINE_S):
        while not lag.turn_cpu.over()["50"]:
            await asyncio.sleep(0.001)
    lag.stop()
    shown = {reading.gauge.prometheus: reading.values for reading in metrics.read_gauges()}
    assert shown["pinlater_loop_turn_cpu_seconds_max"][""] > 0.05
    assert shown["pinlater_loop_turn_cpu_over"]["50"] == 1
    assert shown["pinlater_loop_lag_over"]["50"] >= 1
