"""Notices that this process stood still: it was stopped (SIGSTOP, a frozen container), or something blocked its event loop.

What lies in its sockets then comes from clients that have mostly gone, and whose enqueues another server may have answered so long ago
that their request keys are forgotten. So everyone who is about to carry out something new says first that the loop runs; the first to
say so after a standstill learns of it, and the connections from before are closed before anything of theirs is read.

Costs one comparison of a clock that is read anyway. Weakness: a machine that was suspended as a whole has a clock that stood too.
"""

from __future__ import annotations

from collections.abc import Callable


class Standstill:
    """`noticed` is called with the seconds of a standstill of more than `limit_s`, at once, by whoever finds it first."""

    def __init__(self, monotonic: Callable[[], float], limit_s: float) -> None:
        self.monotonic = monotonic
        self.limit_s = limit_s
        self.noticed: Callable[[float], None] = lambda _: None
        self._ran_at_s = monotonic()

    def begin(self) -> None:
        """From now on the loop is to run; what was before counts for nothing."""
        self._ran_at_s = self.monotonic()

    def runs(self, now_s: float) -> bool:
        """The loop runs at `now_s`. True where it had stood still: what came from before must not be carried out."""
        stood_s = now_s - self._ran_at_s
        self._ran_at_s = now_s
        if stood_s <= self.limit_s:
            return False
        self.noticed(stood_s)
        return True
