"""How a sync client makes its calls: in the caller's own thread, over a blocking connection; long polls, and what follows a failure,
on an event loop in a thread of its own, where callers wait for them.

A call costs a quarter of what it would cost by way of that thread. A forked child inherits memory but no threads: it gets a loop and
connections of its own with its first call, and must never touch those of its parent.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar
from weakref import WeakSet, finalize

from pinlater.client._client_call import ClientCall
from pinlater.client._direct import AllTaken, Dial, Direct
from pinlater.client._engine import Engine, is_suspicious
from pinlater.client._owners import KnownOwners
from pinlater.client.errors import ClientClosed, DeadlineExceeded, PinLaterError

T = TypeVar("T")


class Background:
    """The connections, the loop, its thread and the engine that lives there. Without a `dial` all calls are made on the loop."""

    def __init__(self, new_engine: Callable[[], Engine], dial: Dial | None, monotonic: Callable[[], float]) -> None:
        self._new_engine = new_engine
        self._dial = dial
        self._monotonic = monotonic
        self._lock = threading.RLock()  # a signal's handler may make calls of its own
        self.running: _Running | None = None  # since the first call
        self._dropped: finalize[[], Background] | None = None
        self._closed = False
        _ALIVE.add(self)

    @property
    def owners(self) -> KnownOwners | None:
        """What the engine knows of the owners of queues; None before the first call."""
        running = self.running
        return None if running is None else running.engine.owners

    def open(self) -> None:
        """Ready for calls, also after `close`."""
        with self._lock:
            self._closed = False

    def start(self) -> _Running:
        """What carries out calls. Raises `ClientClosed`."""
        with self._lock:
            if self._closed:
                raise ClientClosed("The client is closed; open() it, or make another one")
            if self.running is None:
                self.running = running = _Running(self._new_engine(), self._dial, self._monotonic)
                # The thread and the connections of a client that is dropped without `close` end with it.
                self._dropped = finalize(self, running.begin_to_stop)
                self._dropped.atexit = False
            return self.running

    def close(self) -> None:
        """Ends calls under way with ConnectionLost, then the thread."""
        with self._lock:
            running, self.running = self.running, None
            self._closed = True
            self._leave_be()
        if running is not None:
            running.stop()

    def rest(self) -> None:
        """Ends the thread. The next call begins another, unless the client is closed."""
        closed = self._closed
        self.close()
        self._closed = closed

    def _leave_be(self) -> None:
        if self._dropped is not None:
            self._dropped.detach()
            self._dropped = None

    def forget(self) -> None:
        """In a forked child: leaves all to the parent. Kept alive, because collecting it would close what the parent uses."""
        if self.running is not None:
            _LEFT_TO_PARENT.append(self.running)
        self._leave_be()
        self.running = None
        self._lock = threading.RLock()


class _Running:
    """A thread that runs a loop with an engine on it, and the connections of calls that need neither."""

    def __init__(self, engine: Engine, dial: Dial | None, monotonic: Callable[[], float]) -> None:
        self.loop = asyncio.new_event_loop()
        self.engine = engine
        self._direct = (
            None if dial is None else Direct(engine.servers, engine.name, dial, monotonic, engine.token, engine.owners)
        )
        if self._direct is not None:
            engine.renewed = self._direct.renew
        self._lock = threading.RLock()
        self._stopping = False
        self._why_stopping = "The client is closed"
        self._thread = threading.Thread(target=self._turn, name="pinlater-client", daemon=True)
        try:
            self._thread.start()
        except (
            RuntimeError
        ):  # Python 3.12 starts none while the program ends: calls in the caller's own thread are left
            self._stopping = True
            self._why_stopping = "The program ends: import pinlater's names before you register functions with atexit"
            self.loop.close()

    def _turn(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.run_until_complete(self.engine.close())
        left = asyncio.all_tasks(self.loop)
        if left:
            self.loop.run_until_complete(asyncio.wait(left))
        # A connection that was given up last closes in the next turn.
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()

    def run(self, call: ClientCall[T], meanwhile: Callable[[], None] | None) -> T:
        """Carries out one call; interrupted (Ctrl-C), it gives the call up. `meanwhile` may be called while it is under way."""
        direct, engine = self._direct, self.engine
        if direct is None or call.wait_ms:
            return _wait(self.submit(call))
        began = time.monotonic()
        failed: PinLaterError | None = None
        deadline, give_up_at = engine.deadlines(call)
        try:
            answer = direct.once(call, give_up_at, meanwhile)
        except AllTaken:
            pass
        except PinLaterError as error:
            failed = error
            if isinstance(error, DeadlineExceeded) and time.monotonic() >= deadline:
                self._renew(direct)
                failed = engine.too_late(call)
            if self._stopping or engine.gives_up(call, failed):
                try:
                    raise failed from (error.__cause__ if failed is error else None)
                finally:
                    failed = (
                        None  # or this frame and the error would hold each other, and with them the jobs of the call
                    )
        except BaseException:
            if is_suspicious(time.monotonic() - began):
                self._renew(direct)
            raise
        else:
            if engine.owners is not None and engine.wants_to_follow():
                self._tell(engine.follow)
            if engine.keys_honoured is None and engine.wants_to_learn(call):
                self._tell(engine.learn)
            return answer
        return _wait(self.submit(call, deadline, failed))

    def _renew(self, direct: Direct) -> None:
        direct.renew()  # at once, so that the next call uses a new connection
        self._tell(self.engine.renew)

    def submit(
        self, call: ClientCall[T], deadline: float | None = None, failed: PinLaterError | None = None
    ) -> Future[T]:
        """Begins a call. Raises `ClientClosed`."""
        with self._lock:  # a call that came to the loop after its stop would never be answered
            if self._stopping:
                raise ClientClosed(self._why_stopping)
            return asyncio.run_coroutine_threadsafe(self.engine.run(call, deadline, failed), self.loop)

    def _tell(self, what: Callable[[], None]) -> None:
        with self._lock:
            if not self._stopping:
                self.loop.call_soon_threadsafe(what)

    def begin_to_stop(self) -> None:
        with self._lock:
            if not self._stopping:
                self._stopping = True
                self.loop.call_soon_threadsafe(self.loop.stop)
        if self._direct is not None:
            self._direct.close()

    def stop(self) -> None:
        self.begin_to_stop()
        if self._thread.ident is not None:
            self._thread.join()


def _wait(future: Future[T]) -> T:
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


_ALIVE: WeakSet[Background] = WeakSet()
_LEFT_TO_PARENT: list[_Running] = []


def _forget_all() -> None:
    for background in list(_ALIVE):
        background.forget()


def _rest_all() -> None:
    """Functions of `atexit` that were registered before this one run after it, and may make calls."""
    for background in list(_ALIVE):
        background.rest()


os.register_at_fork(after_in_child=_forget_all)
atexit.register(_rest_all)
