"""Threads for plain functions: one for each running function, reused for the next.

A thread can't be stopped from outside. If the worker gives up a job (time limit, lost claim), the job's thread continues until its function
returns, and counts as abandoned. Threads don't keep the process from ending.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar, cast

T = TypeVar("T")
_Work = Callable[[], None]


class Threads:
    """Belongs to one event loop. `ended` is called when a function has ended; `busy` counts those that run."""

    def __init__(self, name: str) -> None:
        self.ended: Callable[[], None] = lambda: None
        self.busy = 0
        self._name = name
        self._numbers = itertools.count(1)
        self._idle: list[SimpleQueue[_Work | None]] = []
        self._closed = False

    async def run(self, function: Callable[[], T]) -> T:
        """The function's result. Cancelling this leaves the function running."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()
        inbox = self._idle.pop() if self._idle else self._start()

        def done(result: T | None, error: BaseException | None) -> None:
            self.busy -= 1
            if self._closed:
                inbox.put(None)
            else:
                self._idle.append(inbox)
            if not future.done() and error is not None:
                future.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))
            elif not future.done():
                future.set_result(cast("T", result))
            self.ended()

        def work() -> None:
            nonlocal done
            result, error = None, None
            try:
                result = context.run(function)
            except BaseException as raised:  # noqa: BLE001 - else the thread would end and its job would never
                error = raised
            try:
                loop.call_soon_threadsafe(done, result, error)
            except RuntimeError:
                inbox.put(None)  # the loop is closed
            finally:
                # An error's traceback holds this frame. If it held the error, both would stay until a garbage collection, and with them the
                # job's body.
                del done, result, error

        self.busy += 1
        inbox.put(work)
        return await future

    def _start(self) -> SimpleQueue[_Work | None]:
        inbox: SimpleQueue[_Work | None] = SimpleQueue()
        name = f"{self._name}-{next(self._numbers)}"
        threading.Thread(target=_serve, args=(inbox,), name=name, daemon=True).start()
        return inbox

    def close(self) -> None:
        """Ends idle threads. The others end with their functions."""
        self._closed = True
        while self._idle:
            self._idle.pop().put(None)


def _serve(inbox: SimpleQueue[_Work | None]) -> None:
    while (work := inbox.get()) is not None:
        work()
        del work  # frees the job before the next one comes
