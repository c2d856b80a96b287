"""Tells another thread for how long an event loop has been blocked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable


class LoopWatchdog:
    """Schedules a callback on the loop, and the next one after it ran. `lock` guards what the caller decides by the answer.

    Must be made on the loop's thread.
    A loop that is no longer blocked runs the callback before it handles anything that arrived meanwhile: the callback is queued already.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, lock: threading.Lock, now: Callable[[], float]) -> None:
        self._loop = loop
        self._lock = lock
        self._now = now
        self._waiting_since: float | None = None
        self.thread_id = threading.get_ident()

    def blocked_s(self) -> float:
        """How long the callback has been waiting; 0 if it ran, and then schedules the next one."""
        with self._lock:
            if self._waiting_since is not None:
                return self._now() - self._waiting_since
            self._waiting_since = self._now()
        try:
            self._loop.call_soon_threadsafe(self._called)
        except RuntimeError:  # closed
            self._waiting_since = None
        return 0.0

    def _called(self) -> None:
        with self._lock:
            self._waiting_since = None

    @property
    def is_closed(self) -> bool:
        """Whether the loop has ended for good; a callback that waited then never runs."""
        return self._loop.is_closed()

    @property
    def still_waiting(self) -> bool:
        """Whether the callback has not run yet. The caller holds the lock, so it can't run meanwhile."""
        return self._waiting_since is not None
