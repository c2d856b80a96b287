"""Where the other servers of these shards listen for wakes, and the secrets that sign them: what the stores say.

Every shard has a secret of its own, since none of them is special; a server signs for another with that of a shard where it saw it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from pinlater.domain.errors import PinLaterError
from pinlater.sharding.shard_lanes import ShardLanes
from pinlater.storage.interface import Member

Address = tuple[str, int]


class Neighbours:
    """As of the last look. `address`: where this server listens, `host:port`."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._announced: dict[ShardLanes, tuple[int, bytes]] = {}  # by shard: the slot that was announced, the secret
        self.peers: Mapping[Address, bytes] = {}

    @property
    def secrets(self) -> list[bytes]:
        """Any of them may have signed what comes."""
        return [secret for _, secret in self._announced.values()]

    async def look(self, members: Mapping[ShardLanes, Sequence[Member]]) -> None:
        """Announces this server on shards where it isn't yet, and learns of the others. One that fails is asked again next time."""
        self._announced = {shard: known for shard, known in self._announced.items() if shard in members}
        new = [shard for shard in members if not self._is_known(shard)]
        secrets = await asyncio.gather(*(shard.shard.announce(self._address) for shard in new), return_exceptions=True)
        for shard, secret in zip(new, secrets, strict=True):
            if isinstance(secret, str):
                self._announced[shard] = (shard.shard.slot, secret.encode())
            elif not isinstance(secret, PinLaterError):
                raise secret
        peers: dict[Address, bytes] = {}
        for shard, (_, secret_of_shard) in self._announced.items():
            for address in {member.address for member in members[shard]} - {"", self._address}:
                parsed = _parsed(address)
                if parsed is not None:
                    peers[parsed] = secret_of_shard
        self.peers = peers

    def _is_known(self, shard: ShardLanes) -> bool:
        known = self._announced.get(shard)
        return known is not None and known[0] == shard.shard.slot


def _parsed(address: str) -> Address | None:
    host, _, port = address.rpartition(":")
    return (host, int(port)) if host and port.isdecimal() and int(port) < 65_536 else None
