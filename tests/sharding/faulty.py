"""A shard that fails as a test wants it to: with errors, by hanging before or after it has done what it was asked, by being gone.

Wraps a real one, and says that other servers share it, so that it has a health and time limits.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from itertools import chain
from typing import Any, cast

from pinlater.domain.clock import SystemClock
from pinlater.domain.errors import PinLaterError, ShardConnectionFailed
from pinlater.server.storage.interface import Shard, SharedShard
from pinlater.server.storage.values import NO_OWNERS, Member, Owners, ShardTime


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


class _Alone:
    """What a store that several servers can use answers while one does."""

    async def shard_time(self) -> ShardTime:
        return ShardTime(SystemClock().now_ms(), of_servers=False)

    def register_as(self, address: str) -> None:
        del address

    async def announce(self, address: str) -> str:
        return ""

    async def members(self) -> Sequence[Member]:
        return ()

    async def owners(self) -> Owners:
        return NO_OWNERS

    async def change_owners(self, known: Owners, owners: Owners) -> bool:
        del known, owners
        return True

    async def changed_queues(self) -> Sequence[str]:
        return ()

    changes = 0

    def follow(self, others: Callable[[], Hashable | None]) -> None:
        del others

    async def state(self) -> None:
        return None


class FaultyShard:
    """Has the methods of the shard within, and those of `SharedStore`. `calls` counts them, `dead` is the reason for which each fails."""

    def __init__(self, within: Shard) -> None:
        self.within = within
        self.name = within.name
        self.capabilities = within.capabilities._replace(shared=True, in_order=False)
        self.calls = Counter[str]()
        self.dead: str | None = None
        self.closed = 0
        self._faults: dict[str, list[CallFault]] = {}

    def fails(
        self, *methods: str, error: Exception | None = None, done_first: bool = False, times: int | None = None
    ) -> CallFault:
        """The next call of each method fails, or the next `times` of all together; with `done_first` after it was carried out."""
        fault = ShardConnectionFailed("the connection is gone") if error is None else error
        return self._plan(methods, CallFault(fault, hangs=False, done_first=done_first, times=times or len(methods)))

    def hangs(self, *methods: str, error: PinLaterError | None = None, done_first: bool = False) -> CallFault:
        """All calls of these methods hang until released; then they go on, or fail with `error`."""
        return self._plan(methods, CallFault(error, hangs=True, done_first=done_first, times=10**9))

    def stops(self) -> CallFault:
        """As a server that was sent SIGSTOP: everything hangs."""
        names = [name for name, _ in inspect.getmembers(SharedShard, inspect.iscoroutinefunction)]
        return self.hangs(*[name for name in names if name != "close"])

    def release(self) -> None:
        """Releases all calls that hang. Calls neither hang nor fail from now on."""
        for fault in chain.from_iterable(self._faults.values()):
            fault.release()

    def _plan(self, methods: tuple[str, ...], fault: CallFault) -> CallFault:
        for method in methods:
            self._faults.setdefault(method, []).append(fault)
        return fault

    def __getattr__(self, name: str) -> Any:
        found = getattr(_Alone() if hasattr(_Alone, name) else self.within, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await self._call(name, found, *args, **kwargs)

        return call

    async def _call(self, name: str, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.calls[name] += 1
        if name == "close":
            self.closed += 1
            return await method(*args, **kwargs)
        if self.dead is not None:
            raise ShardConnectionFailed(self.dead)
        fault = next((fault for fault in self._faults.get(name, ()) if fault.left > 0), None)
        if fault is None:
            return await method(*args, **kwargs)
        if fault.done_first:
            answer = await method(*args, **kwargs)
            await fault.befall()
            return answer
        await fault.befall()
        return await method(*args, **kwargs)

    def as_shard(self) -> Shard:
        """Itself, as the type that it stands for."""
        return cast(Shard, self)
