"""What decides among the servers of a cluster: which of them are alive, whose turn it is to change owners, and who owns what."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar, Protocol

from pinlater.server.sharding.shard_lanes import ShardLanes
from pinlater.server.storage.values import Member, Owners


class Coordinator(Protocol):
    """The cluster's coordinator, as one of its servers sees it. Its information may be old: ownership only affects speed."""

    name: ClassVar[str]
    """Its name in the setting `cluster.coordinator`."""

    @property
    def trouble(self) -> str:
        """Returns why it can't decide anything now, and since when; '' if it can."""
        return ""

    @property
    def tells_of_servers(self) -> bool:
        """Whether it reports each server that comes or goes at once, so that the shards need not be asked."""
        return False

    async def owners(self, members: Mapping[ShardLanes, Sequence[Member]]) -> Mapping[ShardLanes, Owners]:
        """Reads the owners of the slices, by shard. Leaves out shards for which nothing can be read now.

        `members`: the servers of each shard, as the shard knows them.
        """

    def lives(self, member: Member) -> bool:
        """Returns whether that other server may own slices of a shard in which it has a row."""

    def leads(self, shard: ShardLanes, able: Sequence[Member], wrong_s: float) -> bool:
        """Returns whether this server may change the owners of the shard now.

        `able`: the servers that may own slices of it, by slot, this server among them.
        `wrong_s`: for how many seconds its owners have differed from the plan.
        """

    def sees_all(self, missing: Collection[str], members: Mapping[ShardLanes, Sequence[Member]]) -> bool:
        """Returns whether a plan without these shards, which did not answer, is safe from being reverted by a server that uses them."""

    def know_shards(self, secrets: Mapping[str, bytes]) -> None:
        """Tells the coordinator which shards the cluster has. `secrets`: the secret that each shard keeps for its servers, by name."""
        return

    async def close(self) -> None:
        """Ends the membership of this server."""
        return

    async def assign(self, shard: ShardLanes, known: Owners, new: Owners) -> bool:
        """Stores the new owners if the stored ones are still the known ones. Returns whether it stored them. Raises `PinLaterError`."""
