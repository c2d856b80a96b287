"""The worker's event loop: uvloop where it is installed (the extra `server` brings it), else Python's own."""

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
_LAST_S = 1.0


class ThreadsToLeave(ThreadPoolExecutor):
    """What `asyncio.to_thread` runs in: as many threads as Python's own pool has, but nobody waits for them in the end.

    A handler that was given up on may have left a function there that never returns; the interpreter would wait for it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._free = threading.Semaphore(0)
        self._made = 0
        self._making = threading.Lock()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        self._work.put(partial(_carry_out, future, partial(fn, *args, **kwargs)))
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
        """Idle threads end, the others when their functions have returned. Waits for none."""
        for _ in range(self._made):
            self._work.put(None)


def _carry_out(future: Future[T], function: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(function())
    except BaseException as error:  # noqa: BLE001 - for whoever waits
        future.set_exception(error)


def run(main: Coroutine[Any, Any, None]) -> None:
    """As `asyncio.run`, but for tasks that don't end although they are cancelled, and what they left in threads: neither keeps the
    process from ending."""
    loop = _new_loop()
    asyncio.set_event_loop(loop)
    threads = ThreadsToLeave()
    loop.set_default_executor(threads)
    try:
        loop.run_until_complete(main)
    finally:
        try:
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.wait(left, timeout=_LAST_S))
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
