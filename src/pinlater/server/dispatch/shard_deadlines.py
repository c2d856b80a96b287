"""How long a dequeue waits for one shard of several. Its caller continues without it; the lane sees that no caller waits for the answer.

Thousands of claims a second are awaited and hardly one of them for long, so the claims of a shard that wait equally long share a timer
instead of having one each.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from pinlater.server.dispatch.waiters import Waiters
from pinlater.server.sharding.guarded import slow_to_answer

About = TypeVar("About")
_HALF_A_MS = 0.0005  # the loop rounds time to milliseconds, and sums of floats are inexact


class ShardDeadlines:
    """Fails answers of one shard that do not arrive in time: after `stall_s`, or sooner if their callers have or may get other jobs."""

    def __init__(self, shard: str, slow_s: float, stall_s: float) -> None:
        self._shard = shard
        self._slow: Overdue[tuple[Waiters, int] | None] = Overdue(slow_s, self._when_slow)
        self._rest: Overdue[None] = Overdue(stall_s - slow_s, self._fail)
        self._stall: Overdue[None] = Overdue(stall_s, self._fail)

    def begin(self, answer: asyncio.Future[Any], waiters: Waiters | None, limit: int, *, anything: bool) -> None:
        """Starts the deadline of `answer`. A dequeue among `waiters` gives up after `slow_s`: at once if other shards gave it
        `anything`, else as soon as the waiters are woken (`JobsCame`)."""
        if waiters is None:
            self._stall.add(answer, None)
        else:
            self._slow.add(answer, None if anything else (waiters, limit))

    def _when_slow(self, answer: asyncio.Future[Any], watching: tuple[Waiters, int] | None) -> None:
        if watching is None:
            self._fail(answer, None)
        else:
            waiters, limit = watching
            waiters.watch(answer, limit)
            self._rest.add(answer, None)

    def _fail(self, answer: asyncio.Future[Any], _: None) -> None:
        answer.set_exception(slow_to_answer(self._shard))


class Overdue(Generic[About]):
    """Calls `then` for each answer that is still awaited `seconds` after it was added. One timer for all answers, none while nothing is
    awaited."""

    def __init__(self, seconds: float, then: Callable[[asyncio.Future[Any], About], None]) -> None:
        self._seconds = seconds
        self._then = then
        self._waiting: deque[tuple[float, asyncio.Future[Any], About]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, answer: asyncio.Future[Any], about: About) -> None:
        """Starts the deadline of `answer`."""
        waiting = self._waiting
        while waiting:  # so that answers aren't kept until the timer fires
            _, oldest, _ = waiting[0]
            if not oldest.done():
                break
            waiting.popleft()
        loop = answer.get_loop()
        waiting.append((loop.time() + self._seconds, answer, about))
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        waiting, now = self._waiting, loop.time()
        while waiting:
            due, answer, about = waiting[0]
            if not answer.done():
                if due - now > _HALF_A_MS:
                    self._timer = loop.call_at(due, self._look, loop)
                    return
                self._then(answer, about)
            waiting.popleft()
