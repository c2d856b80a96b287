"""How much of a core the event loop's thread uses, over the last seconds."""

from __future__ import annotations

from collections.abc import Callable

_WINDOW_S = 5.0


class LoopLoad:
    """The load of the event loop as of the last look. `monotonic` and `cpu` give seconds, the latter those that the calling thread has
    used.
    """

    def __init__(self, monotonic: Callable[[], float], cpu: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._cpu = cpu
        self._since_s: float | None = None
        self._cpu_s = 0.0
        self.share = 0.0

    def look(self) -> None:
        """Takes a sample. Call it several times a second, on the loop's thread."""
        now_s = self._monotonic()
        if self._since_s is None:
            self._since_s, self._cpu_s = now_s, self._cpu()
        elif now_s - self._since_s >= _WINDOW_S:
            cpu_s = self._cpu()
            self.share = (cpu_s - self._cpu_s) / (now_s - self._since_s)
            self._since_s, self._cpu_s = now_s, cpu_s
