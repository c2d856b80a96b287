"""One look a second tells all sweeps whether there is anything to do, so that an idle shard is asked next to nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from pinlater.domain.descriptor import I64_MAX

KEPT_S = 0.95
NEVER_MS = I64_MAX

Snapshot = TypeVar("Snapshot")


class Snapshots(Generic[Snapshot]):
    """The latest snapshot, shared by all sweeps. `look` asks the shard; `own` counts this server's changes; `monotonic` in seconds."""

    def __init__(
        self, look: Callable[[], Awaitable[Snapshot]], own: Callable[[], int], monotonic: Callable[[], float]
    ) -> None:
        self._look = look
        self._own = own
        self._monotonic = monotonic
        self._latest: tuple[Snapshot, float, int] | None = None
        self._looking = asyncio.Lock()

    async def latest(self) -> Snapshot:
        """As of at most a second ago, and after all changes that this server made."""
        async with self._looking:
            now, own = self._monotonic(), self._own()
            if self._latest is None or self._latest[2] != own or now - self._latest[1] >= KEPT_S:
                self._latest = (await self._look(), now, own)
            return self._latest[0]

    def forget(self) -> None:
        """The shard was closed: the next one that wants a snapshot asks it, and is refused."""
        self._latest = None
