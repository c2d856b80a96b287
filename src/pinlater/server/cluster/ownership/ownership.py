"""The owners of the slices of the shards: looked up now and then, and changed where servers come and go.

The owners are kept in each shard, so that nothing else has to run. The server with the lowest slot changes them; if it fails to, the next
one does, a second later each. Two servers that change them at once don't overwrite each other: a shard takes a change only from a
server that has read what is stored.

If one server works much more than the others, the server with the lowest slot of the first shard exchanges some of its slices for quieter
ones of others (`exchange`), at most once a minute. After two minutes without a move it gathers slices: plans of one change after the other
leave shards with more owners than a plan from nothing gives them.

All servers plan the same where all see the same. If one of them can't reach a shard, they see different shards. Then they only replace
owners that are gone, and balance nothing until each server uses each shard again: a server that does not see all would move slices that
the others move back. A shard that no server has reached for a minute does not count. Servers that take back each other's changes all the
same wait longer each time (`change_backoff`).

Servers hear each other several times a second over their connections. A server that was not heard for a while, and whose heartbeat in
the shard is old, owns nothing any more. A server that does not hear all others sends heartbeats to the shards every second, so that one
that only can't be reached keeps what it owns. If a server was only slow, its requests go on: ownership is for speed, and the store's
transactions decide who has a job.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise

from pinlater.domain.errors import PinLaterError
from pinlater.server.cluster.ownership.change_backoff import ChangeBackoff
from pinlater.server.cluster.ownership.exchange import even_out
from pinlater.server.cluster.ownership.plan import ShardView, gathered, plan
from pinlater.server.cluster.ownership.work import WINDOW_S, Work
from pinlater.server.sharding.shards import ShardLanes, Shards
from pinlater.server.storage.commands import Announce, ChangeOwners, ListOwners
from pinlater.server.storage.values import NO_OWNER, NO_OWNERS, Member, Owners

logger = logging.getLogger(__name__)

# So long a server may say nothing over its connections, and so old its last heartbeat may be then.
UNHEARD_S_MAX = 1.5
SILENT_MS_MAX = 2_500
_A_TURN_S = 1.0
# A shard that no server has reached for so long is left out when the others are shared out.
_BALANCE_WITHOUT_S = 60.0
# Slices are gathered once none has moved for so long.
_GATHER_AFTER_S = 120.0
_LEAVE_TRIES = 3


class Ownership:
    """As of the last look. `address`: as this server announced it to the shards. `heard_s(address)`: when a server was heard last, by the
    clock of `shards`; `serves(address, shard)`: whether it can work on a shard. `changed()` is called when this server has changed
    owners. `work()`: of all servers in the last minute, if all are heard."""

    def __init__(
        self,
        shards: Shards,
        address: str,
        heard_s: Callable[[str], float] = lambda _: -math.inf,
        serves: Callable[[str, str], bool] = lambda _address, _shard: True,
        changed: Callable[[], None] = lambda: None,
        work: Callable[[], Sequence[Work] | None] = lambda: None,
    ) -> None:
        self._shards = shards
        self._clock = shards.clock
        self.address = address
        self._heard_s = heard_s
        self._serves = serves
        self._missed_since: dict[str, float] = {}  # servers that are not heard
        self._changed = changed
        self._work = work
        self._moved_s = shards.clock.monotonic()
        self._leaving = False
        self._looking = asyncio.Lock()  # what a look reads is newer than what the one before it learned
        self._owners: dict[str, Owners] = {}  # by shard; of one unreachable as they were seen last
        self._whole = True  # each server uses the same shards, as far as this one sees
        self._backoff = ChangeBackoff(shards.clock.monotonic)
        self._planned: Mapping[str, Sequence[str]] = {}  # by shard
        self._missing_since: Mapping[str, float] = {}  # shards that no server can reach
        self._wrong_since: dict[str, float] = {}  # shards whose owners are not as planned
        self.moves = 0

    def owners(self, shard: str) -> Sequence[str]:
        """The owners of a shard's slices, by slice."""
        return self._owners.get(shard, NO_OWNERS).by_slice

    def is_calm(self, members: Mapping[ShardLanes, Sequence[Member]]) -> bool:
        """Whether nothing is to be changed, as far as this server knows, each server uses each shard, and all others are heard."""
        others = {member.address for found in members.values() for member in found} - {self.address, NO_OWNER}
        return self._whole and not self._wrong_since and all(self.hears(address) for address in others)

    def owned(self) -> Mapping[str, float]:
        """How many slices of each shard this server owns."""
        return {shard: float(owners.by_slice.count(self.address)) for shard, owners in self._owners.items()}

    def version(self, shard: str) -> int:
        """The version of a shard's owners; 0 where none is known."""
        return self._owners.get(shard, NO_OWNERS).version

    def misplaced(self, shard: str) -> Sequence[int]:
        """The slices of a shard whose owner is not the planned one."""
        owners = self.owners(shard)
        planned = self._planned.get(shard, owners)
        return [index for index, owner in enumerate(owners) if owner != planned[index]]

    def hears(self, address: str) -> bool:
        """Whether that server said something over a connection within the last moments."""
        return self._clock.monotonic() - self._heard_s(address) <= UNHEARD_S_MAX

    async def look(self, members: Mapping[ShardLanes, Sequence[Member]]) -> None:
        """Reads the owners of each of these shards, and changes them if it is this server's turn. `members`: by shard that answered."""
        async with self._looking:
            self._note_missed(members)
            planned = self._planned = await self._plan(members)
            now_s = self._clock.monotonic()
            wrong = [
                shard
                for shard in members
                if shard.name in planned and tuple(planned[shard.name]) != self.owners(shard.name)
            ]
            self._wrong_since = {shard.name: self._wrong_since.get(shard.name, now_s) for shard in wrong}
            due = [shard for shard in wrong if self._is_due(shard, members[shard], now_s)]
            await asyncio.gather(*(self._change(shard, planned[shard.name]) for shard in due))
            if not wrong and self._whole:
                await self._improve(members)

    async def _improve(self, members: Mapping[ShardLanes, Sequence[Member]]) -> None:
        """Exchanges slices where a shard has more owners than it needs, or where one server works more than the others.

        One server does that. It evens out work once all slices have had the same owner for so long that the work of the last minute was
        theirs, and gathers slices after a longer calm: a rolling update of the servers is over then.
        """
        calm_s = self._clock.monotonic() - self._moved_s
        if not members or calm_s < WINDOW_S:
            return
        first = min(members, key=lambda shard: shard.name)
        if [member.address for member in self._able(first, members[first])][:1] != [self.address]:
            return
        owners = {shard.name: self.owners(shard.name) for shard in members}
        if calm_s >= _GATHER_AFTER_S and await self._exchange(
            members, gathered(owners), "shards have more owners than they need"
        ):
            return
        work = self._work()
        if work is not None:
            await self._exchange(members, even_out(owners, work), "a server works more than the others")

    async def _exchange(self, shards: Iterable[ShardLanes], owners: Mapping[str, Sequence[str]], reason: str) -> bool:
        """Changes the owners of each shard that has others; whether there was one."""
        changed = [shard for shard in shards if tuple(owners[shard.name]) != self.owners(shard.name)]
        if changed:
            logger.info(f"{reason}: slices are exchanged")
            await asyncio.gather(*(self._change(shard, owners[shard.name]) for shard in changed))
        return bool(changed)

    async def leave(self, members: Mapping[ShardLanes, Sequence[Member]]) -> None:
        """Hands over all that this server owns, and takes no more. On a shard that fails, the others notice that it is gone."""
        self._leaving = True
        began_s, slices = self._clock.monotonic(), sum(self.owned().values())
        self._shards.register_as(NO_OWNER)
        stores = [shard.store for shard in members if shard.shared is not None]
        await asyncio.gather(*(store.submit(Announce(NO_OWNER)) for store in stores), return_exceptions=True)
        # A look under way is not waited for: it may hang on a shard. If it changes owners first, this tries again.
        for _ in range(_LEAVE_TRIES):
            planned = await self._plan(members)
            handed_over = await asyncio.gather(
                *(self._change(shard, planned[shard.name]) for shard in members if shard.name in planned)
            )
            if all(handed_over):
                took_ms = round((self._clock.monotonic() - began_s) * 1000, 1)
                logger.info("gave its slices away", extra={"slices": round(slices), "took_ms": took_ms})
                return

    async def _plan(self, members: Mapping[ShardLanes, Sequence[Member]]) -> Mapping[str, Sequence[str]]:
        """The owners that there should be, of the shards that say which there are now."""
        answered = await self._read(members)
        views = {
            shard.name: ShardView(
                self.owners(shard.name), {member.address for member in self._able(shard, members[shard])}
            )
            for shard in answered
        }
        shared = {shard.name for shard in self._shards if shard.shared is not None}
        self._whole = self._all_miss(shared - views.keys(), members) and all(
            view.servers == other.servers for view, other in pairwise(views.values())
        )
        self._owners = {name: owners for name, owners in self._owners.items() if name in shared | views.keys()}
        self._backoff.keep(shared)
        return plan(views, balance=self._whole)

    def _all_miss(self, missing: Collection[str], members: Mapping[ShardLanes, Sequence[Member]]) -> bool:
        """Whether no server has used these shards for a while: then the others are shared out as if there were no more."""
        now_s = self._clock.monotonic()
        others = {member.address for found in members.values() for member in found} - {self.address, NO_OWNER}
        since = {
            name: self._missing_since.get(name, now_s)
            for name in missing
            if not any(self._serves(address, name) for address in others)
        }
        self._missing_since = since
        return all(now_s - since.get(name, now_s) >= _BALANCE_WITHOUT_S for name in missing)

    async def _read(self, shards: Iterable[ShardLanes]) -> list[ShardLanes]:
        """Reads the owners; of those that answered."""
        stores = {shard: shard.store for shard in shards if shard.shared is not None}
        answers = await asyncio.gather(
            *(store.submit(ListOwners()) for store in stores.values()), return_exceptions=True
        )
        answered: list[ShardLanes] = []
        for shard, answer in zip(stores, answers, strict=True):
            if isinstance(answer, Owners):
                self._learn(shard, answer)
                answered.append(shard)
            elif not isinstance(answer, PinLaterError):
                raise answer
        return answered

    def _note_missed(self, members: Mapping[ShardLanes, Sequence[Member]]) -> None:
        now_s = self._clock.monotonic()
        missed = {member.address for found in members.values() for member in found if not self.hears(member.address)}
        self._missed_since = {address: self._missed_since.get(address, now_s) for address in missed}

    def _able(self, shard: ShardLanes, found: Sequence[Member]) -> list[Member]:
        """The servers that may own slices of the shard, by slot."""
        return [
            member
            for member in sorted(found, key=lambda member: member.slot)
            if self._lives(member) and self._serves(member.address, shard.name)
        ]

    def _lives(self, member: Member) -> bool:
        """This server knows of itself that it lives. Another one is heard, or has been missed for a moment only, or sends heartbeats."""
        if member.address in {self.address, NO_OWNER}:
            return member.address != NO_OWNER and not self._leaving
        missed_since = self._missed_since.get(member.address)
        if missed_since is None or member.silent_ms < SILENT_MS_MAX:
            return True
        return self._clock.monotonic() - missed_since < UNHEARD_S_MAX

    def _is_due(self, shard: ShardLanes, found: Sequence[Member], now_s: float) -> bool:
        addresses = [member.address for member in self._able(shard, found)]
        if self.address not in addresses or self._backoff.must_wait(shard.name):
            return False
        return now_s - self._wrong_since[shard.name] >= _A_TURN_S * addresses.index(self.address)

    async def _change(self, shard: ShardLanes, planned: Sequence[str]) -> bool:
        """Whether the owners are as planned now."""
        known = self._owners.get(shard.name, NO_OWNERS)
        new = Owners(known.version + 1, tuple(planned))
        if new.by_slice == known.by_slice or shard.shared is None:
            return True
        try:
            changed = await shard.store.submit(ChangeOwners(known, new))
        except PinLaterError as error:
            logger.info("owners could not be changed", extra={"shard": shard.name, "reason": error.message})
            return False
        if changed:
            self._backoff.changed(shard.name, new.version)
            self._learn(shard, new)
            self._changed()
        return changed

    def _learn(self, shard: ShardLanes, owners: Owners) -> None:
        known = shard.name in self._owners
        before = self._owners.get(shard.name, NO_OWNERS)
        self._owners[shard.name] = owners
        self._backoff.seen(shard.name, owners.version)
        moved = Counter((old, new) for old, new in zip(before.by_slice, owners.by_slice, strict=True) if old != new)
        if not moved:
            return
        self._moved_s = self._clock.monotonic()
        if known:  # what a server reads first has not moved
            self.moves += sum(moved.values())
        for (old, new), slices in sorted(moved.items()):
            logger.info(
                "slices have another owner",
                extra={"shard": shard.name, "slices": slices, "before": old or "none", "owner": new or "none"},
            )
