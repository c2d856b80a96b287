"""The only clock. Nothing else in the package may read the time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

wall_ns = time.time_ns
"""Wall time, for what must differ from one call to the next and needs no clock of its own."""

CLOCK_JUMP_MS = 1_000
"""Clocks that differ by less count as equal; a clock that moves by this much against another has jumped."""

CATCH_UP_MS_MAX = 100
"""A server follows the clock of another one that is ahead by at most this much: a larger difference is an error."""

_ROUNDING_MS = 0.002


class Clock(Protocol):
    """Two views of time: `now_ms` for what is stored, `monotonic` (seconds) for measuring and timers."""

    def now_ms(self) -> int: ...

    def monotonic(self) -> float: ...


class SystemClock:
    """Wall time at the start, continued by the monotonic clock, so that a jump of the wall clock moves no claim.

    Weakness: the time of a machine that was suspended, or whose clock is corrected later, stays off by that much until the server
    restarts; `drift_ms` returns by how much, and the maintenance runner logs it.
    """

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self.monotonic = monotonic
        self._offset = wall() - monotonic()

    def now_ms(self) -> int:
        return int((self._offset + self.monotonic()) * 1000)

    def shift(self, ms: int) -> None:
        """Moves this clock by `ms`; allowed only before anything was measured by it."""
        self._offset += ms / 1000

    def catch_up(self, now_ms: int) -> None:
        """Continues from `now_ms`, the time of another server, if this clock is a little behind it.

        Clocks on which servers agreed differ by some milliseconds, and drift. A job that is due for one server is then due for this one.
        This clock is then at the beginning of that millisecond, so never ahead of the other: otherwise two servers that follow each other
        would run away.
        """
        monotonic = self.monotonic()
        behind_ms = now_ms - int((self._offset + monotonic) * 1000)
        if 0 < behind_ms <= CATCH_UP_MS_MAX:
            self._offset = (now_ms + _ROUNDING_MS) / 1000 - monotonic

    def drift_ms(self) -> int:
        """Returns the difference between the wall clock and this clock."""
        return int(self._wall() * 1000) - self.now_ms()


def thread_cpu_s() -> float:
    """Seconds of CPU time that the calling thread has used."""
    return time.thread_time()


class WallClock(SystemClock):
    """The present wall time, even after a change of the clock: for processes that run for months and schedule by calendar time.

    Weakness: it jumps; nothing may measure with its `now_ms`.
    """

    def now_ms(self) -> int:
        return int(self._wall() * 1000)


class ManualClock:
    """A clock that a test turns by hand."""

    def __init__(self, now_ms: int = 1_767_225_600_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._now_ms / 1000

    def advance(self, *, ms: int = 0, seconds: float = 0, hours: float = 0) -> int:
        """Moves the clock forward; returns the new time."""
        self._now_ms += ms + round(seconds * 1000) + round(hours * 3_600_000)
        return self._now_ms
