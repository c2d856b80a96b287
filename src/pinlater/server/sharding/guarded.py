"""A shard as all code but the lanes sees it: no call lasts longer than its time limit, and each outcome counts for the shard's health.

Calls to a shard out of use fail at once, all but `ping`. A call that exceeds its limit is cancelled, and its caller does not wait for the
cancellation: a store may hang then, too. After a take-over (`redirect`) calls go to the new shard.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from pinlater.domain.errors import OutcomeUnknown, PinLaterError, ShardConnectionFailed
from pinlater.server.sharding.failure_kind import NoAnswerInTime
from pinlater.server.sharding.settings import ShardingSettings
from pinlater.server.storage.commands import Answer, Command, CommandLimit
from pinlater.server.storage.interface import Shard
from pinlater.wire.generated.structs import ShardSize

T = TypeVar("T")


def slow_to_answer(shard: str) -> ShardConnectionFailed:
    """The error of this shard in a call that continues without waiting for it."""
    return ShardConnectionFailed(f"Shard {shard} is slow to answer", retry_after_ms=1000)


def shard_unreachable(name: str) -> ShardConnectionFailed:
    """Returns the error of a call that needs a shard which is out of use."""
    return ShardConnectionFailed(f"Shard {name} is unreachable", retry_after_ms=1000)


class GuardedShard:
    """Implements `storage.interface.Store`. `observe` gets each command's error or None, and whether it took too long."""

    def __init__(
        self,
        shard: Shard,
        settings: ShardingSettings,
        in_use: Callable[[], bool],
        observe: Callable[[PinLaterError | None, bool], None],
    ) -> None:
        self._shard = shard
        self._observe = observe
        self._call_s = settings.call_timeout_ms / 1000
        self._work_s = settings.work_timeout_ms / 1000
        self._in_use = in_use

    def redirect(self, shard: Shard) -> None:
        """Sends all further calls to `shard`, which now has this name."""
        self._shard = shard

    async def submit(self, command: Command[Answer]) -> Answer:
        """Executes a command. Raises if the shard is out of use, or does not answer in time."""
        seconds, late = self._limit(command.time_limit)
        try:
            answer = await within(self._shard.submit(command), seconds, late)
        except PinLaterError as error:
            self._observe(error, error is late)
            raise
        self._observe(None, False)
        return answer

    def _limit(self, limit: CommandLimit) -> tuple[float, PinLaterError]:
        """Returns the time limit in seconds, and the error for exceeding it. Raises if the shard is out of use."""
        if not self._in_use():
            raise shard_unreachable(self._shard.name)
        if limit is CommandLimit.LOOK:
            return self._call_s, _unanswered(self._shard.name, self._call_s)
        seconds = self._work_s if limit is CommandLimit.WORK else self._call_s
        return seconds, too_late(self._shard.name, seconds)

    async def ping(self, now_ms: int | None = None) -> None:
        """Probes the shard, even while it is out of use. The outcome does not affect its health."""
        await ping(self._shard, self._call_s, now_ms)

    async def size(self) -> ShardSize:
        """Its outcome does not count for the shard's health: only operators wait for it."""
        seconds, late = self._limit(CommandLimit.LOOK)
        return await within(self._shard.size(), seconds, late)


async def within(call: Coroutine[Any, Any, T], seconds: float, late: PinLaterError) -> T:
    """Returns the result of `call`. Raises `late` when it takes longer than `seconds`.

    Then it cancels the call, and does not wait for the cancellation: a call that hangs may hang then, too.
    """
    task = asyncio.ensure_future(call)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        _leave(task)
        raise
    if done:
        return task.result()
    _leave(task)
    raise late


async def ping(shard: Shard, seconds: float, now_ms: int | None = None) -> None:
    """Raises `Unavailable` if the shard couldn't serve a write now, or doesn't answer in time."""
    await within(shard.ping(now_ms), seconds, _unanswered(shard.name, seconds))


def _unanswered(name: str, seconds: float) -> NoAnswerInTime:
    """The error of a read that took too long."""
    return NoAnswerInTime(f"Shard {name} did not answer within {seconds:g} s", retry_after_ms=1000)


# Calls that were given up, until they have ended: the loop itself holds tasks only weakly.
_LATE: set[asyncio.Future[Any]] = set()


def _leave(task: asyncio.Future[Any]) -> None:
    task.cancel()
    _LATE.add(task)
    task.add_done_callback(_ended_late)


def _ended_late(task: asyncio.Future[Any]) -> None:
    _LATE.discard(task)
    if not task.cancelled():
        task.exception()  # retrieved, so that asyncio doesn't warn about it


def too_late(name: str, seconds: float) -> OutcomeUnknown:
    """Returns the error of a change that took too long, and may have been executed."""
    return OutcomeUnknown(
        f"Shard {name} did not answer within {seconds:g} s; what was asked of it may have been done or not",
        retry_after_ms=1000,
    )
