"""A shard that fails as a test wants it to: with errors, by hanging before or after it has done what it was asked, by being gone.

Wraps a real one, and says that other servers share it, so that it has a health and time limits.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from pinlater.domain.clock import SystemClock
from pinlater.domain.errors import PinLaterError, ShardConnectionFailed
from pinlater.server.storage.commands import (
    Announce,
    Answer,
    AskShardTime,
    AskState,
    ChangeOwners,
    Command,
    ListChangedQueues,
    ListMembers,
    ListOwners,
)
from pinlater.server.storage.interface import Shard
from pinlater.server.storage.values import NO_OWNERS, Member, ShardTime
from pinlater.wire.generated.structs import ShardSize

Kind: TypeAlias = type[Command[Any]] | str
"""A kind of command, or the name of another method of a shard."""


class CallFault:
    """What happens to calls: an error, or none; at once, or when `released`; and whether the call is carried out before that."""

    def __init__(self, error: Exception | None, *, hangs: bool, done_first: bool, times: int) -> None:
        self.error = error
        self.done_first = done_first
        self.left = times
        self.met = asyncio.Event()
        self.met_times = 0
        self._released = asyncio.Event()
        if not hangs:
            self._released.set()

    def release(self) -> None:
        """Calls go on, those that hang too."""
        self.left = 0
        self._released.set()

    async def befall(self) -> None:
        """Hangs, deaf to cancelling, as a driver may be in C code; then raises the error, if there is one."""
        self.left -= 1
        self.met_times += 1
        self.met.set()
        cancelled: asyncio.CancelledError | None = None
        while not self._released.is_set():
            try:
                await self._released.wait()
            except asyncio.CancelledError as error:
                cancelled = error
        if self.error is not None:
            raise self.error
        if cancelled is not None:
            raise cancelled


_ALONE: dict[Kind, Any] = {
    Announce: "",
    ListOwners: NO_OWNERS,
    ChangeOwners: True,
    ListChangedQueues: (),
    AskState: None,
}
"""What a store that several servers can use answers while one does."""


class FaultyShard:
    """Carries out commands as the shard within does, and those of a `SharedShard`. `calls` counts them, and pings; `dead` is the reason for
    which each fails."""

    changes = 0

    def __init__(self, within: Shard) -> None:
        self.within = within
        self.name = within.name
        self.capabilities = within.capabilities._replace(shared=True, in_order=False)
        self.calls = Counter[Kind]()
        self.dead: str | None = None
        self.closed = 0
        self.members: Sequence[Member] = ()
        self._faults: dict[Kind, list[CallFault]] = {}
        self._planned: list[CallFault] = []
        self._stop: CallFault | None = None

    def fails(
        self, *kinds: Kind, error: Exception | None = None, done_first: bool = False, times: int | None = None
    ) -> CallFault:
        """The next call of each kind fails, or the next `times` of all together; with `done_first` after it was carried out."""
        fault = ShardConnectionFailed("the connection is gone") if error is None else error
        return self._plan(kinds, CallFault(fault, hangs=False, done_first=done_first, times=times or len(kinds)))

    def hangs(self, *kinds: Kind, error: PinLaterError | None = None, done_first: bool = False) -> CallFault:
        """All calls of these kinds hang until released; then they go on, or fail with `error`."""
        return self._plan(kinds, CallFault(error, hangs=True, done_first=done_first, times=10**9))

    def stops(self) -> CallFault:
        """As a server that was sent SIGSTOP: everything hangs."""
        self._stop = CallFault(None, hangs=True, done_first=False, times=10**9)
        self._planned.append(self._stop)
        return self._stop

    def release(self) -> None:
        """Calls that hang go on, and further ones meet no fault. A shard that is `dead` stays so."""
        for fault in self._planned:
            fault.release()
        self.forget_faults()

    def recover(self) -> None:
        """Ends all faults."""
        self.dead = None
        self.release()

    def forget_faults(self) -> None:
        """Further calls meet no fault. Those that hang stay so."""
        self._planned.clear()
        self._faults.clear()
        self._stop = None

    def _plan(self, kinds: tuple[Kind, ...], fault: CallFault) -> CallFault:
        self._planned.append(fault)
        for kind in kinds:
            self._faults.setdefault(kind, []).append(fault)
        return fault

    def submit(self, command: Command[Answer]) -> Coroutine[Any, Any, Answer]:
        return self._call(type(command), lambda: self.carry_out(command))

    async def carry_out(self, command: Command[Any]) -> Any:
        """Carries out a command without faults."""
        if isinstance(command, AskShardTime):
            return ShardTime(SystemClock().now_ms(), of_servers=False)
        if isinstance(command, ListMembers):
            return self.members
        if type(command) in _ALONE:
            return _ALONE[type(command)]
        return await self.within.submit(command)

    async def open(self, now_ms: int) -> None:
        await self._call("open", lambda: self.within.open(now_ms))

    async def ping(self, now_ms: int | None = None) -> None:
        await self._call("ping", lambda: self.within.ping(now_ms))

    async def size(self) -> ShardSize:
        size: ShardSize = await self._call("size", self.within.size)
        return size

    async def close(self) -> None:
        self.closed += 1
        await self.within.close()

    @property
    def slot(self) -> int:
        return self.within.slot

    @property
    def highest_id(self) -> int:
        return self.within.highest_id

    def on_came_first(self, tell: Callable[[str, int], bool]) -> None:
        self.within.on_came_first(tell)

    def figures(self) -> Mapping[str, float]:
        return self.within.figures()

    def register_as(self, address: str) -> None:
        del address

    def follow(self, others: Callable[[], Hashable | None]) -> None:
        del others

    async def _call(self, kind: Kind, carry_out: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        self.calls[kind] += 1
        if self.dead is not None:
            raise ShardConnectionFailed(self.dead)
        faults = [*self._faults.get(kind, ()), *([self._stop] if self._stop is not None else ())]
        fault = next((fault for fault in faults if fault.left > 0), None)
        if fault is None:
            return await carry_out()
        if fault.done_first:
            answer = await carry_out()
            await fault.befall()
            return answer
        await fault.befall()
        return await carry_out()

    def as_shard(self) -> Shard:
        """Itself, as the type that it stands for."""
        return cast(Shard, self)
