"""The owners of the slices of the shards: read periodically, and changed when servers come or go.

A coordinator decides which servers are alive, whose turn it is to change owners, and who owns what (`coordinator`). By default the shards
do (`store_coordinator`).

If one server works much more than the others, the server whose turn it is on the first shard exchanges some of its slices for quieter
ones of others (`exchange`), at most once a minute. After two minutes without a move it gathers slices: plans for one change after the other
leave shards with more owners than a plan from scratch.

If a server that lost its slices was only slow, its requests continue: ownership only affects speed, and the store's transactions decide
who has a job.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from itertools import pairwise

from pinlater.domain.errors import PinLaterError
from pinlater.domain.servers import STORE_COORDINATOR, ServerRole
from pinlater.server.cluster.ownership.coordinator import Coordinator
from pinlater.server.cluster.ownership.exchange import even_out
from pinlater.server.cluster.ownership.plan import ShardView, gathered, plan
from pinlater.server.cluster.ownership.work import WINDOW_S, Work
from pinlater.server.sharding.shards import ShardLanes, Shards
from pinlater.server.storage.commands import Announce
from pinlater.server.storage.values import NO_OWNER, NO_OWNERS, Member, Owners

logger = logging.getLogger(__name__)

# Slices are gathered once none has moved for this long.
_GATHER_AFTER_S = 120.0
_LEAVE_TRIES = 3
# How long all servers may lack one of the roles before that is worth a warning: servers start one after the other.
_ROLE_MISSING_S = 5.0


class Ownership:
    """The owners as of the last look. `address`: the one that this server announced to the shards. `hears(address)`: whether a server has
    sent something over a connection recently; `serves(address, shard)`: whether it can work on a shard. `changed()` is called when this
    server has changed owners. `work()`: the work of all servers in the last minute, if all of them are heard.
    """

    def __init__(
        self,
        shards: Shards,
        address: str,
        coordinator: Coordinator,
        hears: Callable[[str], bool],
        serves: Callable[[str, str], bool] = lambda _address, _shard: True,
        changed: Callable[[], None] = lambda: None,
        work: Callable[[], Sequence[Work] | None] = lambda: None,
    ) -> None:
        self._shards = shards
        self._clock = shards.clock
        self.address = address
        self._coordinator = coordinator
        self.hears = hears
        self._serves = serves
        self._changed = changed
        self._work = work
        self._moved_s = shards.clock.monotonic()
        self._leaving = False
        self._looking = asyncio.Lock()  # a look reads newer data than the previous one
        self._owners: dict[str, Owners] = {}  # by shard; for an unreachable shard, those that were last seen
        self._has_owners = True  # not all servers are for enqueues
        self._one_role_since_s: float | None = (
            None  # since when all servers have had the same role, other than `all`; infinity once it is logged
        )
        self._outnumbered = False  # by servers with another coordinator
        self._whole = True  # each server uses the same shards, as far as this one knows
        self._planned: Mapping[str, Sequence[str]] = {}  # by shard
        self._wrong_since: dict[str, float] = {}  # shards whose owners differ from the plan
        self.moves = 0

    def owners(self, shard: str) -> Sequence[str]:
        """The owners of a shard's slices, by slice."""
        return self._owners.get(shard, NO_OWNERS).by_slice

    def is_calm(self, members: Mapping[ShardLanes, Sequence[Member]]) -> bool:
        """Returns whether, as far as this server knows, nothing needs to change, each server uses each shard, and all others are heard."""
        others = {member.address for found in members.values() for member in found} - {self.address, NO_OWNER}
        return self._whole and not self._wrong_since and all(self.hears(address) for address in others)

    def owned(self) -> Mapping[str, float]:
        """Returns how many slices of each shard this server owns."""
        return {shard: float(owners.by_slice.count(self.address)) for shard, owners in self._owners.items()}

    def version(self, shard: str) -> int:
        """The version of a shard's owners, or 0 if none is known."""
        return self._owners.get(shard, NO_OWNERS).version

    def misplaced(self, shard: str) -> Sequence[int]:
        """The slices of a shard whose owner is not the planned one."""
        owners = self.owners(shard)
        planned = self._planned.get(shard, owners)
        return [index for index, owner in enumerate(owners) if owner != planned[index]]

    async def look(self, members: Mapping[ShardLanes, Sequence[Member]]) -> None:
        """Reads the owners of each of these shards, and changes them if it is this server's turn. `members`: for each shard that
        answered."""
        async with self._looking:
            self._compare(members)
            planned = self._planned = await self._plan(members)
            now_s = self._clock.monotonic()
            wrong = [
                shard
                for shard in members
                if shard.name in planned and tuple(planned[shard.name]) != self.owners(shard.name)
            ]
            self._wrong_since = {shard.name: self._wrong_since.get(shard.name, now_s) for shard in wrong}
            due = [
                shard for shard in wrong if self._leads(shard, members[shard], now_s - self._wrong_since[shard.name])
            ]
            await asyncio.gather(*(self._change(shard, planned[shard.name]) for shard in due))
            if not wrong and self._whole:
                await self._improve(members)

    async def _improve(self, members: Mapping[ShardLanes, Sequence[Member]]) -> None:
        """Exchanges slices where a shard has more owners than it needs, or where one server works more than the others.

        One server does that. It balances work once all slices have kept their owner for long enough that they account for the work of the
        last minute, and gathers slices after a longer calm: a rolling update of the servers is over then.
        """
        calm_s = self._clock.monotonic() - self._moved_s
        if not members or calm_s < WINDOW_S:
            return
        first = min(members, key=lambda shard: shard.name)
        if not self._leads(first, members[first], 0.0):
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
        """Changes the owners of each shard whose owners differ. Returns whether there was such a shard."""
        changed = [shard for shard in shards if tuple(owners[shard.name]) != self.owners(shard.name)]
        if changed:
            logger.info(f"{reason}: slices are exchanged")
            await asyncio.gather(*(self._change(shard, owners[shard.name]) for shard in changed))
        return bool(changed)

    async def leave(self, members: Mapping[ShardLanes, Sequence[Member]]) -> None:
        """Hands over all that this server owns, and stops taking over slices. If a shard fails, the other servers notice that this one is
        gone."""
        self._leaving = True
        began_s, slices = self._clock.monotonic(), sum(self.owned().values())
        self._shards.register_as(NO_OWNER)
        stores = [shard.store for shard in members if shard.shared is not None]
        await asyncio.gather(*(store.submit(Announce(NO_OWNER)) for store in stores), return_exceptions=True)
        # The code does not wait for a look under way, which may hang on a shard. If it changes owners first, this tries again.
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
        """The planned owners of each shard whose current owners are known."""
        found = await self._coordinator.owners(members)
        for shard, owners in found.items():
            self._learn(shard, owners)
        views = {
            shard.name: ShardView(
                self.owners(shard.name), {member.address for member in self._able(shard, members[shard])}
            )
            for shard in found
        }
        shared = {shard.name for shard in self._shards if shard.shared is not None}
        self._whole = self._coordinator.sees_all(shared - views.keys(), members) and all(
            view.servers == other.servers for view, other in pairwise(views.values())
        )
        self._owners = {name: owners for name, owners in self._owners.items() if name in shared | views.keys()}
        return plan(views, balance=self._whole)

    def _able(self, shard: ShardLanes, found: Sequence[Member]) -> list[Member]:
        """The servers that may own slices of the shard, by slot."""
        return [
            member
            for member in sorted(found, key=lambda member: member.slot)
            if self._lives(member) and self._serves(member.address, shard.name)
        ]

    def _compare(self, members: Mapping[ShardLanes, Sequence[Member]]) -> None:
        """Servers with several coordinators would each share out all slices. So the smaller group owns none; if both are equal, the one
        whose coordinator is not the store owns none. Servers for enqueues own none either, unless all are."""
        found = [member for there in members.values() for member in there if member.address]
        servers = Counter({member.address: member.about.coordinator for member in found}.values())
        roles = {member.about.role for member in found}
        self._has_owners = roles != {ServerRole.ENQUEUE}
        self._warn_of_one_role(roles)
        own = self._coordinator.name
        most = max(servers, key=lambda name: (servers[name], name == STORE_COORDINATOR), default=own)
        if most != own and not self._outnumbered:
            logger.warning(
                "most servers of these shards have another coordinator: this one owns nothing until they have the same",
                extra={"coordinator": own, "others": most},
            )
        self._outnumbered = most != own

    def _warn_of_one_role(self, roles: Set[ServerRole]) -> None:
        if len(roles) != 1 or ServerRole.ALL in roles:
            self._one_role_since_s = None
            return
        now_s = self._clock.monotonic()
        if self._one_role_since_s is None:
            self._one_role_since_s = now_s
        elif now_s - self._one_role_since_s >= _ROLE_MISSING_S:
            self._one_role_since_s = math.inf
            [role] = roles
            logger.warning(
                "all servers of these shards have the same role: they do the work of the other one, too",
                extra={"role": role.value},
            )

    def _lives(self, member: Member) -> bool:
        """This server knows that it is itself alive."""
        if self._outnumbered or member.about.coordinator != self._coordinator.name:
            return False
        if member.about.role is ServerRole.ENQUEUE and self._has_owners:
            return False
        if member.address in {self.address, NO_OWNER}:
            return member.address != NO_OWNER and not self._leaving
        return self._coordinator.lives(member)

    def _leads(self, shard: ShardLanes, found: Sequence[Member], wrong_s: float) -> bool:
        able = self._able(shard, found)
        is_able = any(member.address == self.address for member in able)
        return is_able and self._coordinator.leads(shard, able, wrong_s)

    async def _change(self, shard: ShardLanes, planned: Sequence[str]) -> bool:
        """Returns whether the owners match the plan now."""
        known = self._owners.get(shard.name, NO_OWNERS)
        new = Owners(known.version + 1, tuple(planned))
        if new.by_slice == known.by_slice or shard.shared is None:
            return True
        try:
            changed = await self._coordinator.assign(shard, known, new)
        except PinLaterError as error:
            logger.info("owners could not be changed", extra={"shard": shard.name, "reason": error.message})
            return False
        if changed:
            self._learn(shard, new)
            self._changed()
        return changed

    def _learn(self, shard: ShardLanes, owners: Owners) -> None:
        known = shard.name in self._owners
        before = self._owners.get(shard.name, NO_OWNERS)
        self._owners[shard.name] = owners
        moved = Counter((old, new) for old, new in zip(before.by_slice, owners.by_slice, strict=True) if old != new)
        if not moved:
            return
        self._moved_s = self._clock.monotonic()
        if known:  # the slices that a server reads first have not moved
            self.moves += sum(moved.values())
        for (old, new), slices in sorted(moved.items()):
            logger.info(
                "slices have another owner",
                extra={"shard": shard.name, "slices": slices, "before": old or "none", "owner": new or "none"},
            )
