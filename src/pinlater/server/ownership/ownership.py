"""Who owns the slices of the shards: looked up once a second, and changed where servers come and go.

The owners are kept in each shard, so that nothing else has to run. The server with the lowest slot changes them; if it fails to, the next
one does, a second later each. Two servers that change them at once don't overwrite each other: a shard takes a change only from a
server that has read what is stored.

A server that has given no sign of life for three seconds owns nothing any more. If it was only slow, its requests go on: ownership is
for speed, and the store's transactions decide who has a job.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from pinlater.domain.errors import PinLaterError
from pinlater.server.ownership.plan import ShardView, plan
from pinlater.server.sharding.shards import ShardLanes, Shards
from pinlater.server.storage.values import NO_OWNER, NO_OWNERS, Member, Owners

logger = logging.getLogger(__name__)

# Three signs of life are missing.
SILENT_MS_MAX = 3_000
_A_TURN_S = 1.0


class Ownership:
    """As of the last look. `address`: as this server announced it to the shards; `changed(shard)` is called after each change."""

    def __init__(self, shards: Shards, address: str, changed: Callable[[ShardLanes], None] = lambda _: None) -> None:
        self._shards = shards
        self._clock = shards.clock
        self.address = address
        self._changed = changed
        self._leaving = False
        self._looking = asyncio.Lock()  # what a look reads is newer than what the one before it learned
        self._views: dict[str, ShardView] = {}  # by shard; of one out of reach as it was seen last
        self._owners: dict[str, Owners] = {}
        self._wrong_since: dict[str, float] = {}  # shards whose owners are not as planned
        self.moves = 0

    def owners(self, shard: str) -> Sequence[str]:
        """The owners of a shard's slices, by slice."""
        return self._owners.get(shard, NO_OWNERS).by_slice

    async def look(self, members: Mapping[ShardLanes, Sequence[Member]]) -> None:
        """Reads the owners of each of these shards, and changes them if it is this server's turn. `members`: by shard that answered."""
        async with self._looking:
            planned = await self._plan(members)
            now_s = self._clock.monotonic()
            wrong = [shard for shard in members if tuple(planned[shard.name]) != self.owners(shard.name)]
            self._wrong_since = {shard.name: self._wrong_since.get(shard.name, now_s) for shard in wrong}
            due = [shard for shard in wrong if self._is_due(shard, members[shard], now_s)]
            await asyncio.gather(*(self._change(shard, planned[shard.name]) for shard in due))

    async def leave(self, members: Mapping[ShardLanes, Sequence[Member]]) -> None:
        """Hands over all that this server owns, and takes no more. On a shard that fails, the others notice that it is gone."""
        self._leaving = True
        stores = [shard.shared for shard in members if shard.shared is not None]
        await asyncio.gather(*(store.announce(NO_OWNER) for store in stores), return_exceptions=True)
        async with self._looking:
            planned = await self._plan(members)
            await asyncio.gather(*(self._change(shard, planned[shard.name]) for shard in members))

    async def _plan(self, members: Mapping[ShardLanes, Sequence[Member]]) -> Mapping[str, Sequence[str]]:
        """Who should own what: of all shards in the map, those out of reach as they were seen last."""
        await self._read(members)
        seen = {
            shard.name: ShardView(self.owners(shard.name), {member.address for member in self._able(found)})
            for shard, found in members.items()
        }
        names = {shard.name for shard in self._shards} | seen.keys()
        self._views = {name: view for name, view in {**self._views, **seen}.items() if name in names}
        self._owners = {name: owners for name, owners in self._owners.items() if name in names}
        return plan(self._views)

    async def _read(self, shards: Iterable[ShardLanes]) -> None:
        stores = {shard: shard.shared for shard in shards if shard.shared is not None}
        answers = await asyncio.gather(*(store.owners() for store in stores.values()), return_exceptions=True)
        for shard, answer in zip(stores, answers, strict=True):
            if isinstance(answer, Owners):
                self._learn(shard, answer)
            elif not isinstance(answer, PinLaterError):
                raise answer

    def _able(self, found: Sequence[Member]) -> list[Member]:
        """Those that may own slices, by slot. This server knows of itself that it lives."""
        return [
            member
            for member in sorted(found, key=lambda member: member.slot)
            if member.address != NO_OWNER
            and (not self._leaving if member.address == self.address else member.silent_ms < SILENT_MS_MAX)
        ]

    def _is_due(self, shard: ShardLanes, found: Sequence[Member], now_s: float) -> bool:
        addresses = [member.address for member in self._able(found)]
        if self.address not in addresses:
            return False
        return now_s - self._wrong_since[shard.name] >= _A_TURN_S * addresses.index(self.address)

    async def _change(self, shard: ShardLanes, planned: Sequence[str]) -> None:
        known = self._owners.get(shard.name, NO_OWNERS)
        new = Owners(known.version + 1, tuple(planned))
        if new.by_slice == known.by_slice or shard.shared is None:
            return
        try:
            if await shard.shared.change_owners(known, new):
                self._learn(shard, new)
        except PinLaterError as error:
            logger.info("owners could not be changed", extra={"shard": shard.name, "reason": error.message})

    def _learn(self, shard: ShardLanes, owners: Owners) -> None:
        before = self._owners.get(shard.name, NO_OWNERS)
        self._owners[shard.name] = owners
        moved = Counter((old, new) for old, new in zip(before.by_slice, owners.by_slice, strict=True) if old != new)
        if not moved:
            return
        self.moves += sum(moved.values())
        for (old, new), slices in sorted(moved.items()):
            logger.info(
                "slices have another owner",
                extra={"shard": shard.name, "slices": slices, "before": old or "none", "owner": new or "none"},
            )
        self._changed(shard)
