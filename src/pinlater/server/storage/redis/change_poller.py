"""Finds the queues that other servers have changed since the last look."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from pinlater.server.storage.redis.keys import QUEUE_BYTES
from pinlater.server.storage.redis.queue_cache import RedisQueueCache


class RedisChangePoller:
    """Collects the changes that the reads of the sweeps report: `seen` is the number of the newest one."""

    def __init__(self, queue_cache: RedisQueueCache, refresh: Callable[[], Awaitable[None]], writers: int) -> None:
        """`writers`: of each server."""
        self._queue_cache = queue_cache
        self._refresh = refresh
        self._writers = writers
        self._changed: set[bytes] = set()  # queue and writer of changes that have not been reported yet
        self.seen = b""

    def note(self, changed: Iterable[bytes], seen: bytes) -> None:
        """Notes the result of a read."""
        self._changed.update(changed)
        self.seen = seen

    async def changed(self, own_slot: int) -> set[str]:
        """Returns the names of the queues, once; none for a queue that was deleted meanwhile."""
        if any(place[:QUEUE_BYTES] not in self._queue_cache.names for place in self._changed):
            await self._refresh()
        places, self._changed = self._changed, set()
        names = set()
        for place in places:
            name = self._queue_cache.names.get(place[:QUEUE_BYTES])
            if name is not None and int.from_bytes(place[QUEUE_BYTES:], "big") // self._writers != own_slot:
                names.add(name)
        return names
