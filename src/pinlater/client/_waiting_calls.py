"""Says that calls are being tried again, once for all calls of a client: after a second, and not more often than once a minute.

Belongs to one event loop. Must never change what a call does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from pinlater.client.errors import PinLaterError

_SAID_AFTER_S = 1.0
_SAID_EVERY_S = 60.0
_log = logging.getLogger("pinlater.client")


class WaitingCall(NamedTuple):
    """A call that is being tried again, why, and for how much longer."""

    call: str
    reason: str
    left_s: float


# Told of a call that has waited for a second; of None once calls are answered again.
SayWaiting = Callable[[WaitingCall | None], None]


def log_waiting(waiting: WaitingCall | None) -> None:
    """The default: lines of the logger `pinlater.client`."""
    if waiting is None:
        _log.info("calls are answered again")
        return
    _log.warning("%s: %s; trying again for %.0f s", waiting.call, waiting.reason, waiting.left_s)


class _Waiting:
    """A call under way that may come to wait."""

    __slots__ = ("_calls", "_shown", "deadline", "reason")

    def __init__(self, calls: WaitingCalls, shown: str, deadline: float) -> None:
        self._calls = calls
        self._shown = shown
        self.deadline = deadline
        self.reason = ""

    def failed(self, error: PinLaterError) -> None:
        """A try has failed, and another one follows."""
        first, self.reason = not self.reason, error.message
        if first:
            self._calls.add(self)

    def value(self, now_s: float) -> WaitingCall:
        return WaitingCall(self._shown, self.reason, max(0.0, self.deadline - now_s))


class WaitingCalls:
    """The calls of one client that are being tried again."""

    def __init__(self, say: SayWaiting) -> None:
        self._say = say
        self._waiting: dict[_Waiting, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._said_at_s: float | None = None
        self._is_said = False

    @contextmanager
    def one(self, shown: str, deadline: float) -> Iterator[_Waiting]:
        """While a call is under way."""
        waiting = _Waiting(self, shown, deadline)
        answered = False
        try:
            yield waiting
            answered = True
        finally:
            if waiting.reason:
                self._remove(waiting, answered=answered)

    def add(self, waiting: _Waiting) -> None:
        """This call waits from now on."""
        self._waiting[waiting] = None
        if self._timer is None and not self._is_said:
            self._timer = asyncio.get_running_loop().call_later(_SAID_AFTER_S, self._say_oldest)

    def close(self) -> None:
        """Says nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _remove(self, waiting: _Waiting, *, answered: bool) -> None:
        del self._waiting[waiting]
        if self._waiting:
            return
        self.close()
        if self._is_said and answered:
            self._say(None)
            self._said_at_s = None
        self._is_said = False

    def _say_oldest(self) -> None:
        self._timer = None
        self._is_said = True
        now_s = asyncio.get_running_loop().time()
        if self._said_at_s is None or now_s - self._said_at_s >= _SAID_EVERY_S:
            self._said_at_s = now_s
            self._say(next(iter(self._waiting)).value(now_s))
