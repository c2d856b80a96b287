"""One thread for what waits for the disk. A SimpleQueue there and `call_soon_threadsafe` back: the cheapest hand-over there is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

Work = Callable[[], float]
Done = Callable[[float | None, BaseException | None], None]


class CommitThread:
    """Runs one piece of work at a time and tells the loop: `done(result, None)` or `done(None, error)`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: SimpleQueue[tuple[Work, Done] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="sqlite-commit", daemon=True)
        self._thread.start()

    def run(self, work: Work, done: Done) -> None:
        self._queue.put((work, done))

    def stop(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            work, done = item
            result: float | None = None
            error: BaseException | None = None
            try:
                result = work()
            except BaseException as raised:  # noqa: BLE001 the loop decides what it means
                error = raised
            if self._loop.is_closed():
                return
            self._loop.call_soon_threadsafe(done, result, error)
