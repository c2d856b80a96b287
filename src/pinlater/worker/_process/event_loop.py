"""The worker's event loop: uvloop if it is installed (the extra `server` installs it), else Python's own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
_CANCEL_S = 1.0


class DaemonThreads(ThreadPoolExecutor):
    """The executor of `asyncio.to_thread`, with as many threads as Python's own, but the process ends without waiting for them.

    An abandoned task may have started a function there that never returns; the interpreter would wait for Python's own threads.
    """

    def __init__(self) -> None:
        super().__init__()
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._free = threading.Semaphore(0)
        self._made = 0
        self._making = threading.Lock()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        self._work.put(partial(_complete, future, partial(fn, *args, **kwargs)))
        with self._making:
            if not self._free.acquire(blocking=False) and self._made < self._max_workers:
                self._made += 1
                threading.Thread(target=self._serve, name=f"pinlater-to-thread-{self._made}", daemon=True).start()
        return future

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            del work
            self._free.release()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Idle threads end now, the others when their functions return. Does not wait."""
        for _ in range(self._made):
            self._work.put(None)


def _complete(future: Future[T], function: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(function())
    except BaseException as error:  # noqa: BLE001 - raised by the future
        future.set_exception(error)


def run(main: Coroutine[Any, Any, None]) -> None:
    """Like `asyncio.run`, but neither tasks that ignore cancellation nor threads keep the process from ending."""
    loop = _new_loop()
    asyncio.set_event_loop(loop)
    threads = DaemonThreads()
    loop.set_default_executor(threads)
    try:
        loop.run_until_complete(main)
    finally:
        try:
            remaining = asyncio.all_tasks(loop)
            for task in remaining:
                task.cancel()
            if remaining:
                loop.run_until_complete(asyncio.wait(remaining, timeout=_CANCEL_S))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            loop.close()
            threads.shutdown()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
