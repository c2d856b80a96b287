"""Dequeues that wait for a job, by queue, and what wakes them.

Each new job wakes one waiter, never all of them. If that waiter ends without the job, the wake goes to the next one, here or at another
server. `version` increases with each wake, so that a call that found nothing sees that jobs arrived in the meantime.

A claim that waits for a slow shard waits here, too (`watch`): other shards may get jobs before that shard answers.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Any


class JobsCame(Exception):
    """Jobs arrived while a shard was slow to answer. They may be on any shard."""


class Waiters:
    """The waiters of one queue, first come first served, and one timer for the next job that becomes due."""

    def __init__(
        self, queue: str, now_ms: Callable[[], int], tell_others: Callable[[int], None] = lambda _jobs: None
    ) -> None:
        """`tell_others`: reports jobs for which nothing waits here to the other servers."""
        self.queue = queue
        self._tell_others = tell_others
        self.version = 0
        # Jobs may have bypassed the owner of the queue: the next claim does not rely on what the store remembers.
        self.search = False
        self._now_ms = now_ms
        self._waiters: OrderedDict[asyncio.Future[Any], int] = OrderedDict()
        self._watching: set[asyncio.Future[Any]] = set()  # the waiters that wait for the answer of a slow shard
        self._due_at_ms: int | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiters)

    def take_search(self) -> bool:
        """Whether the claim that begins now is the one to search."""
        search, self.search = self.search, False
        return search

    async def wait(
        self,
        limit: int,
        seconds: float,
        next_due_ms: int | None = None,
        begins: Callable[[asyncio.Future[bool]], None] = lambda _: None,
    ) -> bool:
        """True once woken, False on time-out. `limit`: how many jobs this waiter would take.

        `next_due_ms`: when the next job becomes due, as far as the waiter knows. `begins` gets the future that ends the wait.
        """
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        self._waiters[waiter] = limit
        if next_due_ms is not None:
            self.due_at(next_due_ms)
        timer = loop.call_later(seconds, _time_is_up, waiter)
        begins(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.result():
                self.pass_on(limit)
            raise
        finally:
            timer.cancel()
            self._leave(waiter)

    def watch(self, answer: asyncio.Future[Any], limit: int) -> None:
        """Fails `answer` with `JobsCame` as soon as there are jobs for a waiter of this limit, unless it has arrived by then."""
        if answer.done():
            return
        self._waiters[answer] = limit
        self._watching.add(answer)
        answer.add_done_callback(self._leave)

    def wake(self, jobs: int) -> int:
        """Wakes as many waiters as can take `jobs` jobs that became ready. Returns how many jobs are left."""
        self.version += 1
        while jobs > 0 and self._waiters:
            waiter, limit = self._waiters.popitem(last=False)
            if not waiter.done():
                self._set(waiter)
                jobs -= limit
        return max(0, jobs)

    def pass_on(self, jobs: int = 1) -> None:
        """Does the same as `wake`, for jobs whose waiter ends without them; reports the remaining jobs to the other servers."""
        left = self.wake(jobs)
        if left:
            self._tell_others(left)

    def wake_all(self) -> None:
        """Wakes all waiters, to look again: the queue was resumed or deleted, or the server drains."""
        self.version += 1
        while self._waiters:
            waiter, _ = self._waiters.popitem(last=False)
            if not waiter.done():
                self._set(waiter)

    def due_at(self, due_at_ms: int) -> None:
        """Wakes a waiter, if there is one, at the time at which a job becomes due."""
        if not self._waiters or (self._due_at_ms is not None and self._due_at_ms <= due_at_ms):
            return
        self._stop_timer()
        self._due_at_ms = due_at_ms
        delay = min(3600.0, max(0, due_at_ms - self._now_ms()) / 1000)
        self._timer = asyncio.get_running_loop().call_later(delay, self._became_due)

    def _set(self, waiter: asyncio.Future[Any]) -> None:
        if waiter in self._watching:
            waiter.set_exception(JobsCame())
        else:
            waiter.set_result(True)

    def _leave(self, waiter: asyncio.Future[Any]) -> None:
        self._watching.discard(waiter)
        self._waiters.pop(waiter, None)
        if not self._waiters:
            self._stop_timer()

    def _became_due(self) -> None:
        self._stop_timer()
        self.wake(1)

    def _stop_timer(self) -> None:
        self._due_at_ms = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _time_is_up(waiter: asyncio.Future[bool]) -> None:
    if not waiter.done():
        waiter.set_result(False)
