"""How long a dequeue waits for one shard of several. Its caller goes on without it; the lane sees that nobody waits for the answer."""

from __future__ import annotations

import asyncio
from typing import Any

from pinlater.dispatch.waiting import WaitingRoom
from pinlater.sharding.guarded import slow_to_answer


class Patience:
    """Fails an answer that does not come within `stall_s`. Who waits for jobs goes without it sooner, see `watches`."""

    __slots__ = ("_limit", "_room", "_shard", "_slow_s", "_stall_s", "_timer")

    def __init__(self, shard: str, slow_s: float, stall_s: float) -> None:
        self._shard = shard
        self._slow_s = slow_s
        self._stall_s = stall_s
        self._room: WaitingRoom | None = None
        self._limit = 0
        self._timer: asyncio.TimerHandle | None = None

    def watches(self, room: WaitingRoom, limit: int, *, anything: bool) -> None:
        """After `slow_s` the answer fails: at once where there is `anything` to go with, else as `Woken` with the next jobs."""
        if anything:
            self._stall_s = self._slow_s
        else:
            self._room, self._limit = room, limit

    def begin(self, answer: asyncio.Future[Any]) -> None:
        """`answer` is waited for from now on."""
        if self._room is None:
            self._timer = answer.get_loop().call_later(self._stall_s, self._fail, answer)
        else:
            self._timer = answer.get_loop().call_later(self._slow_s, self._watch, answer, self._room)

    def end(self) -> None:
        """It has come, or nobody wants it any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _watch(self, answer: asyncio.Future[Any], room: WaitingRoom) -> None:
        room.watch(answer, self._limit)
        self._timer = answer.get_loop().call_later(self._stall_s - self._slow_s, self._fail, answer)

    def _fail(self, answer: asyncio.Future[Any]) -> None:
        if not answer.done():
            answer.set_exception(slow_to_answer(self._shard))
