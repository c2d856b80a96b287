"""The shards as coordinator: each stores its owners, so that no other service is needed.

The server with the lowest slot changes the owners of a shard; if it fails to, the next one does, a second later each. Two servers that
change them at once don't overwrite each other: a shard takes a change only from a server that has read what is stored.

All servers make the same plan if all see the same state. If one of them can't reach a shard, they see different shards. Then they only
replace owners that are gone, and balance nothing until each server uses each shard again: a server that does not see all of them would
move slices that the others move back. A shard that no server has reached for a minute does not count. Servers that nevertheless revert
each other's changes wait longer each time (`change_backoff`).

Servers hear each other several times a second over their connections. A server that was not heard for a while, and whose heartbeat in the
shard is old, no longer owns anything. A server that does not hear all others sends heartbeats to the shards every second, so that a
server that is alive but unreachable keeps its slices.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

from pinlater.domain.errors import PinLaterError
from pinlater.domain.servers import STORE_COORDINATOR
from pinlater.server.cluster.ownership.change_backoff import ChangeBackoff
from pinlater.server.cluster.ownership.coordinator import Coordinator
from pinlater.server.sharding.shards import ShardLanes, Shards
from pinlater.server.storage.commands import ChangeOwners, ListOwners
from pinlater.server.storage.values import NO_OWNER, Member, Owners

# How long a server may say nothing over its connections, and how old its last heartbeat may be then.
UNHEARD_S_MAX = 1.5
SILENT_MS_MAX = 2_500
_A_TURN_S = 1.0
# A shard that no server has reached for this long is left out when the others are distributed.
_BALANCE_WITHOUT_S = 60.0


class StoreCoordinator(Coordinator):
    """Coordinates by the store. Answers as of the last look. `address`: the address that this server announced to the shards.
    `hears(address)`: whether a server was heard recently; `serves(address, shard)`: whether it can work on a shard.
    """

    name = STORE_COORDINATOR

    def __init__(
        self, shards: Shards, address: str, hears: Callable[[str], bool], serves: Callable[[str, str], bool]
    ) -> None:
        self._shards = shards
        self._address = address
        self._hears = hears
        self._serves = serves
        self._monotonic = shards.clock.monotonic
        self._missed_since: dict[str, float] = {}  # servers that are not heard
        self._missing_since: Mapping[str, float] = {}  # shards that no server can reach
        self._backoff = ChangeBackoff(shards.clock.monotonic)

    async def owners(self, members: Mapping[ShardLanes, Sequence[Member]]) -> Mapping[ShardLanes, Owners]:
        self._note_missed(members)
        self._backoff.keep({shard.name for shard in self._shards if shard.shared is not None})
        stores = {shard: shard.store for shard in members if shard.shared is not None}
        answers = await asyncio.gather(
            *(store.submit(ListOwners()) for store in stores.values()), return_exceptions=True
        )
        found: dict[ShardLanes, Owners] = {}
        for shard, answer in zip(stores, answers, strict=True):
            if isinstance(answer, Owners):
                found[shard] = answer
                self._backoff.seen(shard.name, answer.version)
            elif not isinstance(answer, PinLaterError):
                raise answer
        return found

    def _note_missed(self, members: Mapping[ShardLanes, Sequence[Member]]) -> None:
        now_s = self._monotonic()
        missed = {member.address for found in members.values() for member in found if not self._hears(member.address)}
        self._missed_since = {address: self._missed_since.get(address, now_s) for address in missed}

    def lives(self, member: Member) -> bool:
        """Returns whether the server is heard, was missed only briefly, or sends heartbeats."""
        missed_since = self._missed_since.get(member.address)
        if missed_since is None or member.silent_ms < SILENT_MS_MAX:
            return True
        return self._monotonic() - missed_since < UNHEARD_S_MAX

    def leads(self, shard: ShardLanes, able: Sequence[Member], wrong_s: float) -> bool:
        turn = [member.address for member in able].index(self._address)
        return not self._backoff.must_wait(shard.name) and wrong_s >= _A_TURN_S * turn

    def sees_all(self, missing: Collection[str], members: Mapping[ShardLanes, Sequence[Member]]) -> bool:
        """Returns whether the missing shards may be ignored, because no server has used them for a while."""
        now_s = self._monotonic()
        others = {member.address for found in members.values() for member in found} - {self._address, NO_OWNER}
        since = {
            name: self._missing_since.get(name, now_s)
            for name in missing
            if not any(self._serves(address, name) for address in others)
        }
        self._missing_since = since
        return all(now_s - since.get(name, now_s) >= _BALANCE_WITHOUT_S for name in missing)

    async def assign(self, shard: ShardLanes, known: Owners, new: Owners) -> bool:
        changed = await shard.store.submit(ChangeOwners(known, new))
        if changed:
            self._backoff.changed(shard.name, new.version)
        return changed
