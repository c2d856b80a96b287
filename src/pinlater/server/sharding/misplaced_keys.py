"""Reads the unique keys of a shard, and keeps those that have another home.

A queue may have millions of keys. So they are read in pages, for a second at a time, and only misplaced ones are kept, up to a bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence, Set

from pinlater.domain.clock import Clock
from pinlater.domain.ids import made_at_ms
from pinlater.domain.rendezvous import rendezvous_home
from pinlater.server.sharding.shard_lanes import ShardLanes
from pinlater.server.storage.commands import ListUniqueKeys, ListUniqueQueues

_PAGE = 1_000
_TURN_S = 1.0
# Of one shard; they are kept in memory. A queue that would have more is asked for each of its keys.
_MISPLACED_MAX = 10_000
# Each shard is weighed for each key, which takes half a microsecond.
_HOMES_A_TURN = 10_000


class KeyScan:
    """One scan of one shard: the keys of jobs that were made until `until_ms`. `spent_s`: how long it has read so far.

    `misplaced`: by queue, its keys there that have another home; None for a queue that has too many of them.
    """

    def __init__(self, shard: ShardLanes, homes: Sequence[str], until_ms: int, clock: Clock) -> None:
        self.shard = shard
        self.until_ms = until_ms
        self.misplaced: dict[str, set[str] | None] = {}
        self.spent_s = 0.0
        self._homes = homes
        self._clock = clock
        self._queues: list[str] | None = None  # those that are not read to their end
        self._after = ""
        self._kept = 0

    async def go_on(self) -> bool:
        """Reads for a second, one page at least. Answers whether it has read all. Raises `PinLaterError`."""
        start_s = self._clock.monotonic()
        if self._queues is None:
            held = await self.shard.store.submit(ListUniqueQueues())
            self._queues = [row.queue for row in held if made_at_ms(row.oldest_id) <= self.until_ms]
        while self._queues:
            await self._read_page(self._queues)
            if self._clock.monotonic() - start_s >= _TURN_S:
                break
        self.spent_s += self._clock.monotonic() - start_s
        return not self._queues

    async def _read_page(self, queues: list[str]) -> None:
        """The next page of the last of the queues."""
        queue = queues[-1]
        page = await self.shard.store.submit(ListUniqueKeys(queue, self.until_ms, _PAGE, self._after))
        if keys := await self._elsewhere(page.keys):
            self._keep(queue, keys)
        if page.after is not None and self.misplaced.get(queue, ()) is not None:
            self._after = page.after
        else:
            queues.pop()
            self._after = ""

    async def _elsewhere(self, keys: Sequence[str]) -> Set[str]:
        """The keys that have another home. In pieces, with a turn of the event loop between two."""
        elsewhere: set[str] = set()
        piece = max(1, _HOMES_A_TURN // max(1, len(self._homes)))
        for start in range(0, len(keys), piece):
            await asyncio.sleep(0)
            elsewhere.update(key for key in keys[start : start + piece] if not self._is_home_of(key))
        return elsewhere

    def _is_home_of(self, key: str) -> bool:
        return bool(self._homes) and rendezvous_home(key, self._homes) == self.shard.name

    def _keep(self, queue: str, keys: Set[str]) -> None:
        """None of the queue, if there are too many with those of the other queues."""
        kept = self.misplaced.get(queue) or set()
        self._kept -= len(kept)
        kept |= keys
        if self._kept + len(kept) > _MISPLACED_MAX:
            self.misplaced[queue] = None
        else:
            self.misplaced[queue] = kept
            self._kept += len(kept)
