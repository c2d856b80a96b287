"""Which servers use the shards, according to the shards: their number divides rate limits.

Each shard has a row for each of its servers. A shard that some server can't reach lacks that server's row, so the shard with the most
rows counts. A server that was killed is counted until its lease has lapsed; until then the others keep its share of a limit free.

A server with another map of shards does harm without knowing: it finds no job on a shard that it doesn't have, and stores unique keys on
other shards. So a server that sees another one on some shards, but for minutes not on others, logs that.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence

from pinlater.server.sharding.shard_lanes import ShardLanes
from pinlater.server.sharding.shards import Shards
from pinlater.server.storage.commands import ListMembers
from pinlater.server.storage.values import Member

logger = logging.getLogger(__name__)

# Longer than a lease, and than a server takes to learn of a new map.
_UNLIKE_S = 120.0


class ClusterMembers:
    """The servers of the shards, as of the last look."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self._unlike: dict[tuple[str, str], float] = {}  # missing on a shard since; infinity once logged
        self.known: Sequence[Member] = ()
        self.by_shard: dict[ShardLanes, Sequence[Member]] = {}  # of those that answered

    @property
    def servers(self) -> int:
        """The number of servers, this one included."""
        return max(1, len(self.known))

    @property
    def differ(self) -> bool:
        """Whether some servers use some of the shards only, and the log has yet to say so."""
        return any(since < math.inf for since in self._unlike.values())

    async def look(self) -> bool:
        """Asks the reachable shards. Returns whether the number has changed. Raises what a shard raised if none answered."""
        before = self.servers
        stores = {shard: shard.store for shard in self._shards.in_reach() if shard.shared is not None}
        answers = await asyncio.gather(
            *(store.submit(ListMembers()) for store in stores.values()), return_exceptions=True
        )
        self.by_shard = {
            shard: answer
            for shard, answer in zip(stores, answers, strict=True)
            if not isinstance(answer, BaseException)
        }
        found = list(self.by_shard.values())
        failures = [answer for answer in answers if isinstance(answer, BaseException)]
        if found:
            self.known = max(found, key=len)
        elif failures:
            raise failures[0]
        self._compare()
        return self.servers != before

    def _compare(self) -> None:
        """Logs, once, which servers use some of the shards and not others."""
        now = self._shards.clock.monotonic()
        names = {
            shard.name: {member.name for member in found} for shard, found in self.by_shard.items() if not shard.leaving
        }
        servers = set[str]().union(*names.values())
        missing = [(server, shard) for shard, there in names.items() for server in servers - there]
        self._unlike = {each: self._unlike.get(each, now) for each in missing}
        for (server, shard), since in self._unlike.items():
            if now - since >= _UNLIKE_S:
                self._unlike[server, shard] = math.inf
                logger.warning(
                    "a server of these shards does not use all of them: has it the same map, and can it reach them?",
                    extra={"server": server, "shard": shard},
                )
