"""Dequeues that wait for a job, queue by queue, and what wakes them.

One waiter is woken per job that it could take, never the herd. A wake that can't be used (the waiter was cancelled in that very
moment) goes on to the next one. `version` grows with each wake, so that whoever found nothing can see that something came meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable


class WaitingRoom:
    """The waiters of one queue, first come first served, and one timer for the next job that becomes due."""

    def __init__(self, queue: str, now_ms: Callable[[], int]) -> None:
        self.queue = queue
        self.version = 0
        self.newest_on: str | None = None  # the shard that got the newest jobs, until somebody has gone there
        self._now_ms = now_ms
        self._waiters: OrderedDict[asyncio.Future[bool], int] = OrderedDict()
        self._due_at_ms: int | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiters)

    async def wait(self, limit: int, seconds: float, next_due_ms: int | None = None) -> bool:
        """True once woken, False when the time is up. `limit`: how many jobs this waiter would take.

        `next_due_ms`: when the next job becomes due, as far as the waiter knows.
        """
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        self._waiters[waiter] = limit
        if next_due_ms is not None:
            self.due_at(next_due_ms)
        timer = loop.call_later(seconds, _set, waiter, False)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.result():
                self.wake(limit)
            raise
        finally:
            timer.cancel()
            self._waiters.pop(waiter, None)
            if not self._waiters:
                self._stop_timer()

    def wake(self, jobs: int) -> None:
        """`jobs` became ready now: wakes as many waiters as can take them."""
        self.version += 1
        while jobs > 0 and self._waiters:
            waiter, limit = self._waiters.popitem(last=False)
            if not waiter.done():
                waiter.set_result(True)
                jobs -= limit

    def wake_all(self) -> None:
        """Something else changed (resumed, deleted, draining): everyone looks again."""
        self.version += 1
        while self._waiters:
            waiter, _ = self._waiters.popitem(last=False)
            _set(waiter, True)

    def due_at(self, due_at_ms: int) -> None:
        """A job becomes due then: somebody is woken at that time, if anybody waits."""
        if not self._waiters or (self._due_at_ms is not None and self._due_at_ms <= due_at_ms):
            return
        self._stop_timer()
        self._due_at_ms = due_at_ms
        delay = min(3600.0, max(0, due_at_ms - self._now_ms()) / 1000)
        self._timer = asyncio.get_running_loop().call_later(delay, self._became_due)

    def _became_due(self) -> None:
        self._stop_timer()
        self.wake(1)

    def _stop_timer(self) -> None:
        self._due_at_ms = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _set(waiter: asyncio.Future[bool], value: bool) -> None:
    if not waiter.done():
        waiter.set_result(value)
