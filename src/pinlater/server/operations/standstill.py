"""Notices that this process stood still: it was stopped (SIGSTOP, a frozen container), or something blocked its event loop.

What lies in its sockets then comes from clients that have mostly gone, and whose enqueues another server may have answered so long ago
that their request keys are forgotten. A timer says every second that the loop runs. Code that is about to carry out a request asks first;
whichever of the two comes first after a standstill finds it, and the connections from before are closed before anything of theirs is
carried out.

Weakness: a machine that was suspended as a whole has a clock that stood too.
"""

from __future__ import annotations

from collections.abc import Callable


class Standstill:
    """Each of `listeners` is called with the seconds of a standstill of more than `limit_s`, at once, where it is found first.

    `monotonic` and `until_s` are for the hot paths, which compare by themselves before they call `found`: later than `until_s` it stood
    still, unless the timer says first that it runs.
    """

    def __init__(self, monotonic: Callable[[], float], limit_s: float) -> None:
        self.monotonic = monotonic
        self.limit_s = limit_s
        self.listeners: list[Callable[[float], None]] = []
        self._runs_at(monotonic())

    def begin(self) -> None:
        """From now on the loop is to run; what was before counts for nothing."""
        self._runs_at(self.monotonic())

    def too_old(self, began_s: float) -> bool:
        """Whether a message that another process of this machine began to send then came later than the limit: one of them stood still."""
        return self.monotonic() - began_s > self.limit_s

    def runs(self, now_s: float) -> None:
        """The loop runs at `now_s`: by a timer, several times in the time of the limit."""
        if now_s > self.until_s:
            self.found(now_s)
        self._runs_at(now_s)

    def still_runs(self) -> bool:
        """False where it has stood still until now: then the listeners know it."""
        now_s = self.monotonic()
        if now_s <= self.until_s:
            return True
        self.found(now_s)
        return False

    def found(self, now_s: float) -> None:
        """It had stood still until `now_s`: what came from before must not be carried out."""
        stood_s = now_s - self._ran_at_s
        self._runs_at(now_s)
        for listener in self.listeners:
            listener(stood_s)

    def _runs_at(self, now_s: float) -> None:
        self._ran_at_s = now_s
        self.until_s = now_s + self.limit_s
