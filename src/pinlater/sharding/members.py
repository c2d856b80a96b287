"""Which servers use the shards, as the shards know it: that divides rate limits, and shows who is alive.

Each shard has a row for each of its servers. One that can't be reached by some server lacks that one's row, so the shard with the most
rows counts. A server that was killed is counted until its lease has lapsed; until then the others keep its share of a limit free.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pinlater.sharding.shard_lanes import ShardLanes
from pinlater.sharding.shards import Shards
from pinlater.storage.interface import Member


class Members:
    """As of the last look."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self.known: Sequence[Member] = ()
        self.by_shard: dict[ShardLanes, Sequence[Member]] = {}  # of those that answered

    @property
    def servers(self) -> int:
        """How many there are, this one included."""
        return max(1, len(self.known))

    async def look(self) -> bool:
        """Asks the shards in reach; whether the number has changed. Raises what a shard raised where none answered."""
        before = self.servers
        shards = [shard for shard in self._shards.in_reach() if shard.shard.capabilities.shared]
        answers = await asyncio.gather(*(shard.shard.members() for shard in shards), return_exceptions=True)
        self.by_shard = {
            shard: answer
            for shard, answer in zip(shards, answers, strict=True)
            if not isinstance(answer, BaseException)
        }
        found = list(self.by_shard.values())
        failures = [answer for answer in answers if isinstance(answer, BaseException)]
        if found:
            self.known = max(found, key=len)
        elif failures:
            raise failures[0]
        return self.servers != before
