"""An event loop in a thread, for the sync client: callers of any thread hand it calls and block until they are done.

A forked child inherits memory but no threads: it gets a loop and connections of its own with its first call, and must never touch
those of its parent. Weakness: a call costs two changes of thread, some tens of microseconds.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar
from weakref import WeakSet

from pinlater.client._calls import Call
from pinlater.client._engine import Engine
from pinlater.client.errors import ClientClosed

T = TypeVar("T")


class Background:
    """The loop, its thread and the engine that lives there."""

    def __init__(self, new_engine: Callable[[], Engine]) -> None:
        self._new_engine = new_engine
        self._lock = threading.Lock()
        self._running: _Running | None = None
        self._closed = False
        _ALIVE.add(self)

    def open(self) -> None:
        """Ready for calls, also after `close`."""
        with self._lock:
            self._closed = False

    def run(self, call: Call[T]) -> T:
        """Carries out one call; interrupted (Ctrl-C), it gives the call up."""
        future = self.submit(call)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def submit(self, call: Call[T]) -> Future[T]:
        """Begins a call. Raises `ClientClosed`."""
        running = self._running or self._start()
        carried_out = running.engine.run(call)
        try:
            return asyncio.run_coroutine_threadsafe(carried_out, running.loop)
        except RuntimeError as error:  # closed by another thread just now
            carried_out.close()
            raise ClientClosed("The client is closed") from error

    def _start(self) -> _Running:
        with self._lock:
            if self._closed:
                raise ClientClosed("The client is closed; open() it, or make another one")
            if self._running is None:
                self._running = _Running(self._new_engine)
            return self._running

    def close(self) -> None:
        """Ends calls under way with ConnectionLost, then the thread."""
        with self._lock:
            running, self._running = self._running, None
            self._closed = True
        if running is not None:
            running.stop()

    def forget(self) -> None:
        """In a forked child: leaves all to the parent. Kept alive, because collecting it would close what the parent uses."""
        if self._running is not None:
            _LEFT_TO_PARENT.append(self._running)
        self._running = None
        self._lock = threading.Lock()


class _Running:
    """A thread that runs a loop with an engine on it."""

    def __init__(self, new_engine: Callable[[], Engine]) -> None:
        self.loop = asyncio.new_event_loop()
        self.engine = new_engine()
        self._thread = threading.Thread(target=self._turn, name="pinlater-client", daemon=True)
        self._thread.start()

    def _turn(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.run_until_complete(self.engine.close())
        left = asyncio.all_tasks(self.loop)
        if left:
            self.loop.run_until_complete(asyncio.wait(left))
        self.loop.close()

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()


_ALIVE: WeakSet[Background] = WeakSet()
_LEFT_TO_PARENT: list[_Running] = []


def _forget_all() -> None:
    for background in list(_ALIVE):
        background.forget()


def _close_all() -> None:
    for background in list(_ALIVE):
        background.close()


os.register_at_fork(after_in_child=_forget_all)
atexit.register(_close_all)
