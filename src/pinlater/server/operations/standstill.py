"""Notices that this process stood still: it was stopped (SIGSTOP, a frozen container), or something blocked its event loop.

Its sockets then contain input from clients that have mostly gone, and whose enqueues another server may have answered so long ago that
their request keys are forgotten. A timer reports every second that the loop runs. Code that is about to execute a request checks first;
whichever of the two runs first after a standstill finds it, and the connections from before are closed before any of their input is
executed.

Weakness: if a machine was suspended as a whole, its clock stood still too.
"""

from __future__ import annotations

from collections.abc import Callable


class Standstill:
    """Each of `listeners` is called with the seconds of a standstill of more than `limit_s`, at once, where it is found first.

    `monotonic` and `until_s` are for the hot paths, which compare them before they call `found`: if it is later than `until_s`, the
    process stood still, unless the timer first reports that it runs.
    """

    def __init__(self, monotonic: Callable[[], float], limit_s: float) -> None:
        self.monotonic = monotonic
        self.limit_s = limit_s
        self.listeners: list[Callable[[float], None]] = []
        self._runs_at(monotonic())

    def begin(self) -> None:
        """From now on the loop must run; earlier standstills do not count."""
        self._runs_at(self.monotonic())

    def too_old(self, began_s: float) -> bool:
        """Returns whether a message that another process of this machine began to send then arrived later than the limit: one of them
        stood still."""
        return self.monotonic() - began_s > self.limit_s

    def runs(self, now_s: float) -> None:
        """Notes that the loop runs at `now_s`: called by a timer, several times within the limit."""
        if now_s > self.until_s:
            self.found(now_s)
        self._runs_at(now_s)

    def still_runs(self) -> bool:
        """False if it has stood still until now: then the listeners have been called."""
        now_s = self.monotonic()
        if now_s <= self.until_s:
            return True
        self.found(now_s)
        return False

    def found(self, now_s: float) -> None:
        """It had stood still until `now_s`: what came from before must not be executed."""
        stood_s = now_s - self._ran_at_s
        self._runs_at(now_s)
        for listener in self.listeners:
            listener(stood_s)

    def _runs_at(self, now_s: float) -> None:
        self._ran_at_s = now_s
        self.until_s = now_s + self.limit_s
