"""Whether an event loop turns, asked from another thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable


class Pulse:
    """Asks the loop for a sign of life, and for the next one once that has come. `lock` guards what is decided by it elsewhere.

    A loop that comes round gives its sign before anything that arrived while it stood still: signs are in line already.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, lock: threading.Lock, now: Callable[[], float]) -> None:
        self._loop = loop
        self._lock = lock
        self._now = now
        self._asked_at: float | None = None

    def stands_still_s(self) -> float:
        """For how long the sign asked for hasn't come; 0 where it has, and the next one is asked for."""
        with self._lock:
            if self._asked_at is not None:
                return self._now() - self._asked_at
            self._asked_at = self._now()
        try:
            self._loop.call_soon_threadsafe(self._sign)
        except RuntimeError:  # closed
            self._asked_at = None
        return 0.0

    def _sign(self) -> None:
        with self._lock:
            self._asked_at = None

    @property
    def missed(self) -> bool:
        """Whether the sign asked for still hasn't come. Call it with the lock held: it can't come then."""
        return self._asked_at is not None
