"""Where a unique key may be besides its home.

A key's home follows from the shards that take enqueues, so a change of the map moves some keys' homes, while the rows that were made
before stay where they are. Until those have gone, an enqueue with a key asks the other shards that hold old keys of the queue first.
Since when the map is as it is, is kept on the shards themselves: a server that starts must not forget it.

Weakness: while servers still go by different maps (they look at the shard file every ten seconds) two of them may take one key on two
shards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pinlater.domain.clock import Clock
from pinlater.domain.errors import PinLaterError
from pinlater.domain.ids import made_at_ms
from pinlater.server.sharding.shard_lanes import ShardLanes

# So long after a change of the map other servers may still go by the old one, and clocks differ.
_MARGIN_MS = 60_000
_LEARN_AGAIN_MS = 60_000


class Held(NamedTuple):
    """The queues that have unique keys on a shard, each with the oldest id that one of them names, and when the shard said so."""

    oldest_ids: Mapping[str, int]
    learned_ms: int


class Epoch:
    """Unique enqueues that went by one map."""

    def __init__(self) -> None:
        self.under_way = 0
        self.over = asyncio.Event()
        self.over.set()


class UniquePlaces:
    """What is known of old unique keys. Before enough is known every other shard may hold some."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_ms: int | None = None
        self._held: dict[str, Held] = {}
        self._epoch = Epoch()
        self._former: list[Epoch] = []
        self.settled = False

    # --- asking -----------------------------------------------------------------------------------------------------------

    def to_ask(self, queue: str, home: ShardLanes, shards: Iterable[ShardLanes]) -> Sequence[ShardLanes]:
        """The shards to ask for a key of this queue before it is taken at its home."""
        if self.settled:
            return ()
        return [shard for shard in shards if shard is not home and self._may_hold(shard.name, queue)]

    def _may_hold(self, shard: str, queue: str) -> bool:
        """Also if the shard was asked too early: others might have put keys there since."""
        held = self._held.get(shard)
        if held is None or self._since_ms is None or held.learned_ms < self._since_ms + _MARGIN_MS:
            return True
        oldest_id = held.oldest_ids.get(queue)
        return oldest_id is not None and made_at_ms(oldest_id) <= self._since_ms + _MARGIN_MS

    # --- learning ---------------------------------------------------------------------------------------------------------

    def map_changed(self) -> None:
        """Nothing is known any more; enqueues that still go by the old map are waited for."""
        self.settled = False
        self._since_ms = None
        self._held = {}
        if self._epoch.under_way:
            self._former.append(self._epoch)
        self._epoch = Epoch()

    async def learn(self, shards: Sequence[ShardLanes]) -> None:
        """Asks the shards in reach what they hold; those that fail stay unknown. To be called every few seconds: it asks when it is time.

        One shard alone is told the map all the same, for when others come.
        """
        if self.settled:
            return
        epoch = self._epoch
        shard_map = "\n".join(sorted(shard.name for shard in shards if shard.takes_enqueues))
        wanted = [shard for shard in shards if shard.healthy and self._is_time(shard.name)]
        if len(shards) == 1 and shards[0].trusted:
            wanted = []
        answers = await asyncio.gather(*(self._ask(shard, shard_map) for shard in wanted), return_exceptions=True)
        if self._epoch is not epoch:
            return  # the map changed meanwhile
        for shard, answer in zip(wanted, answers, strict=True):
            if isinstance(answer, BaseException):
                if not isinstance(answer, PinLaterError):
                    raise answer
                continue
            since_ms, self._held[shard.name] = answer
            self._since_ms = since_ms if self._since_ms is None else max(self._since_ms, since_ms)
        self.settled = len(shards) == 1 or not any(self._holds_old_keys(shard.name) for shard in shards)

    def _is_time(self, shard: str) -> bool:
        held = self._held.get(shard)
        if held is None or self._since_ms is None:
            return True
        now_ms = self._clock.now_ms()
        if held.learned_ms < self._since_ms + _MARGIN_MS:
            return now_ms >= self._since_ms + _MARGIN_MS
        return now_ms >= held.learned_ms + _LEARN_AGAIN_MS

    def _holds_old_keys(self, shard: str) -> bool:
        held = self._held.get(shard)
        return held is None or any(self._may_hold(shard, queue) for queue in (*held.oldest_ids, ""))

    async def _ask(self, shard: ShardLanes, shard_map: str) -> tuple[int, Held]:
        now_ms = self._clock.now_ms()
        since_ms = await shard.store.note_map(shard_map, now_ms)
        rows = await shard.store.list_unique_queues()
        return since_ms, Held({row.queue: row.oldest_id for row in rows}, now_ms)

    # --- enqueues under way -----------------------------------------------------------------------------------------------

    async def begin(self) -> Epoch:
        """Before a unique enqueue chooses its shards: those by a former map are through then. To be ended with `end`."""
        while self._former:
            former = self._former[0]
            await former.over.wait()
            if self._former and self._former[0] is former:
                del self._former[0]
        epoch = self._epoch
        epoch.under_way += 1
        epoch.over.clear()
        return epoch

    def end(self, epoch: Epoch) -> None:
        """It is through."""
        epoch.under_way -= 1
        if not epoch.under_way:
            epoch.over.set()
