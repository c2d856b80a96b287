"""What makes the sync client a client, without its methods: it makes the first try of a call in the caller's own thread, over a blocking
connection; long polls, and what follows a failure, on an event loop in a thread of its own, where callers wait for them.

A call costs a quarter of what it would cost by way of that thread. A forked child inherits memory but no threads: it gets a loop and
connections of its own with its first call, and must never touch those of its parent.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar
from weakref import WeakSet, finalize

from pinlater.client._client_call import ClientCall, short
from pinlater.client._direct import AllTaken, Dial, Direct
from pinlater.client._engine import Engine, is_suspicious
from pinlater.client._options import ClientBase
from pinlater.client._servers import ServerSource
from pinlater.client._tries import Caller, CallTries, LongPolls
from pinlater.client.errors import ClientClosed, DeadlineExceeded, PinLaterError

T = TypeVar("T")


class SyncClientBase(ClientBase):
    """Executes calls from any thread, long polls on an event loop in a thread of its own. Opens itself with the first call."""

    def _prepare(self) -> None:
        self._background = self._new_background()
        self._enqueue_background = (
            None if self._enqueue_servers is None else self._new_background(self._enqueue_servers)
        )

    def _new_background(self, enqueue_servers: ServerSource | None = None) -> Background:
        return Background(partial(self._new_engine, enqueue_servers), self._dial)

    def _backgrounds(self) -> Iterable[Background]:
        return filter(None, (self._background, self._enqueue_background))

    def open(self) -> Self:
        """Makes the client ready, also once more after `close`. Connects only with the first call."""
        for background in self._backgrounds():
            background.open()
        return self

    def close(self) -> None:
        """Closes every connection and ends the client's threads; calls under way fail. May be called twice."""
        for background in self._backgrounds():
            background.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, call: ClientCall[T]) -> T:
        return self.carry_out(call)

    def carry_out(self, call: ClientCall[T], meanwhile: Callable[[], None] | None = None) -> T:
        """Executes a call and waits for it. `meanwhile` is called at most once, while the server executes the call; it must not raise."""
        try:
            return self._running(call).run(call, meanwhile)
        except PinLaterError as error:
            raise short(error) from error.__cause__

    def submit(self, call: ClientCall[T]) -> Future[T]:
        """Executes a call without waiting for it."""
        return self._running(call).submit(call)

    def _running(self, call: ClientCall[Any]) -> _Running:
        """Returns the engine that executes the call."""
        background = self._background
        if self._enqueue_background is not None and call.is_enqueue:
            background = self._enqueue_background
        return background.running or background.start()


class Background:
    """The connections, the loop, its thread and the engine that lives there. Without a `dial` all calls are made on the loop."""

    def __init__(self, new_engine: Callable[[], Engine], dial: Dial | None) -> None:
        self._new_engine = new_engine
        self._dial = dial
        self._lock = threading.RLock()  # a signal's handler may make calls of its own
        self.running: _Running | None = None  # since the first call
        self._dropped: finalize[[], Background] | None = None
        self._closed = False
        _ALIVE.add(self)

    def open(self) -> None:
        """Ready for calls, also after `close`."""
        with self._lock:
            self._closed = False

    def start(self) -> _Running:
        """Returns the engine that executes calls. Raises `ClientClosed`."""
        with self._lock:
            if self._closed:
                raise ClientClosed("The client is closed; open() it, or make another one")
            if self.running is None:
                self.running = running = _Running(self._new_engine(), self._dial)
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
    """An engine with its loop in a thread, and the connections of calls that need neither."""

    def __init__(self, engine: Engine, dial: Dial | None) -> None:
        self.engine = engine
        self.loop = asyncio.new_event_loop()
        self._direct = None if dial is None else Direct(engine, dial)
        self._caller = Caller(engine.token, LongPolls())
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
        """Executes one call; if it is interrupted (Ctrl-C), it gives the call up. `meanwhile` may be called during the call.

        The first try is made here, in the caller's thread.
        """
        direct, engine = self._direct, self.engine
        if direct is None or call.wait_ms:
            return _wait(self.submit(call))
        began = time.monotonic()
        deadline = give_up_at = began + engine.timeout_s
        if engine.has_choice:
            give_up_at = engine.try_deadline(call, deadline) or deadline
        failed: PinLaterError | None = None
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
                    # Or this frame and the error would hold each other, and with them the jobs of the call.
                    failed = None
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
            tries = CallTries(self.engine, call, self._caller, deadline or self.engine.deadline_of(call), failed)
            return asyncio.run_coroutine_threadsafe(tries.run(), self.loop)

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
