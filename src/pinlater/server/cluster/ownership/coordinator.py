"""What decides among the servers of a cluster: which of them live, whose turn it is to change owners, and who owns what."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar, Protocol

from pinlater.server.sharding.shard_lanes import ShardLanes
from pinlater.server.storage.values import Member, Owners


class Coordinator(Protocol):
    """One for the cluster, as one of its servers sees it. What it says may be old: ownership is for speed only."""

    name: ClassVar[str]
    """As the setting `cluster.coordinator` has it."""

    @property
    def trouble(self) -> str:
        """Returns why it can't decide anything now, and since when; '' if it can."""
        return ""

    @property
    def tells_of_servers(self) -> bool:
        """Whether it tells at once of each server that comes or goes, so that the shards are not asked for that."""
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
        `wrong_s`: for how long its owners have not been as planned.
        """

    def sees_all(self, missing: Collection[str], members: Mapping[ShardLanes, Sequence[Member]]) -> bool:
        """Returns whether a plan without these shards, which did not answer, can't be taken back by a server that uses them."""

    def know_shards(self, secrets: Mapping[str, bytes]) -> None:
        """Tells which shards the cluster has. `secrets`: the secret that each keeps for its servers, by name."""
        return

    async def close(self) -> None:
        """Ends the membership of this server."""
        return

    async def assign(self, shard: ShardLanes, known: Owners, new: Owners) -> bool:
        """Stores the new owners if the stored ones are those that are known. Returns whether they were. Raises `PinLaterError`."""
