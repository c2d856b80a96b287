"""Schedules the maintenance of a shard's partitions: each minute, and less often while nothing changes or after a failure."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Hashable

from pinlater.domain.errors import Unavailable

logger = logging.getLogger(__name__)

_EVERY_MS = 60_000
_UNCHANGED_MS = 600_000  # this much later while the shard does not change
_AFTER_FAILURE_MS = 600_000


class PartitionSchedule:
    """`keep` makes and drops partitions of the shard `name`, `make_ahead` makes some."""

    def __init__(
        self,
        name: str,
        keep: Callable[[int], Awaitable[object]],
        make_ahead: Callable[[int], Awaitable[object]],
    ) -> None:
        self._name = name
        self._keep = keep
        self._make_ahead = make_ahead
        self._next_ms = 0
        self._kept_in: Hashable | None = None  # the state of the shard at the last maintenance

    async def keep_if_due(self, now_ms: int, state: Hashable | None) -> None:
        """`state` stays equal while the shard does not change, or is None if that is not known."""
        unchanged = state is not None and state == self._kept_in
        if now_ms >= self._next_ms + (_UNCHANGED_MS if unchanged else 0):
            self._kept_in = state
            await self.keep(now_ms)

    async def begin(self, now_ms: int) -> None:
        """Begins when the shard is opened, with the time of a server that may not have agreed on a time with the others: so it drops
        nothing, and schedules nothing. The first sweep does both.
        """
        await self._succeeds(self._make_ahead(now_ms))

    async def keep(self, now_ms: int) -> None:
        """Maintains the partitions now. Only frees space, so a failure is logged, and the next run tries again."""
        self._next_ms = now_ms + _EVERY_MS
        if not await self._succeeds(self._keep(now_ms)):
            self._next_ms = now_ms + _AFTER_FAILURE_MS

    async def _succeeds(self, change: Awaitable[object]) -> bool:
        try:
            await change
        except Unavailable as error:
            logger.warning("partitions could not be changed", extra={"shard": self._name, "reason": error.message})
            return False
        return True
