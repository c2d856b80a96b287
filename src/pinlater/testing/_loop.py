"""The event loop on which an in-process service lives: in a thread of its own, with a clock that a test moves.

A thread of its own, because a service must answer plain code, which blocks, as well as coroutines on the test's loop. A timer there fires
when the clock has moved far enough, never because real time passes; so a long poll waits until a job comes or the test moves the clock
past its time.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple, Unpack

from pinlater.domain.clock import Clock

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
# How long a piece of the service's own work may take in real time; longer means that it hangs.
_HANGS_S = 30.0
_HALF_A_MS = 0.0005


class TurnedLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is a clock's. Weakness: while a timer is set, it wakes periodically to check that clock in vain."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._time = clock.monotonic
        self.slow_callback_duration = (
            math.inf
        )  # in asyncio's debug mode, moving the clock meanwhile would look like a slow callback

    def time(self) -> float:
        return self._time()

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """A timer fires once its time has come, and the clock's millisecond decides that: a float is not always so exact."""
        return super().call_at(when - _HALF_A_MS, callback, *args, context=context)


class LoopThread:
    """Runs the loop from `start` to `stop`."""

    def __init__(self, clock: Clock) -> None:
        self._loop = TurnedLoop(clock)
        self._thread = threading.Thread(target=self._turn, name="pinlater-in-process", daemon=True)
        self._stopped = False

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def _turn(self) -> None:
        self._loop.run_forever()
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        if left:
            self._loop.run_until_complete(asyncio.wait(left))
        self._loop.close()

    def submit(self, make: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        """Begins a coroutine on the loop. Raises RuntimeError once stopped."""
        if self._stopped:
            raise RuntimeError("the in-process service is closed")
        return asyncio.run_coroutine_threadsafe(make(), self._loop)

    def run(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """A coroutine's result; blocks the calling thread meanwhile."""
        return self.submit(make).result(_HANGS_S)

    def stop(self) -> None:
        """Cancels the coroutines under way and ends the thread. May be called twice."""
        if self._stopped:
            return
        self._stopped = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
