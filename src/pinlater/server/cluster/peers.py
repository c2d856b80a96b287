"""Which other servers share these shards, and the secrets by which servers authenticate each other, according to the stores.

Every shard has its own secret, since no shard is special; a server proves itself to another with the secret of a shard on which it saw
that server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from pinlater.domain.errors import PinLaterError
from pinlater.server.sharding.shard_lanes import ShardLanes
from pinlater.server.storage.commands import Announce
from pinlater.server.storage.values import Member

logger = logging.getLogger(__name__)


class Peers:
    """The other servers as of the last look. `address`: where this server listens, `host:port`, as it announces it."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._announced: dict[ShardLanes, tuple[int, bytes]] = {}  # by shard: the slot that was announced, the secret
        self._same_address: dict[tuple[ShardLanes, int], int] = {}  # slots with this server's address: first seen at
        self._said = False
        self.secret_of: Mapping[str, bytes] = {}
        """The other servers, by the address that they announced: the secret of a shard that both use."""

    @property
    def secrets(self) -> list[bytes]:
        """The secrets of all shards: a server may prove itself with any of them."""
        return [*self.secrets_by_shard.values()]

    @property
    def secrets_by_shard(self) -> Mapping[str, bytes]:
        """The secret of each shard, by its name."""
        return {shard.name: secret for shard, (_, secret) in self._announced.items()}

    async def look(self, members: Mapping[ShardLanes, Sequence[Member]]) -> None:
        """Announces this server on shards where it isn't yet, and learns of the others. Asks a shard that failed again next time."""
        self._announced = {shard: known for shard, known in self._announced.items() if shard in members}
        new = {shard: shard.store for shard in members if shard.shared is not None and not self._is_known(shard)}
        secrets = await asyncio.gather(
            *(store.submit(Announce(self._address)) for store in new.values()), return_exceptions=True
        )
        for shard, secret in zip(new, secrets, strict=True):
            if isinstance(secret, str):
                self._announced[shard] = (shard.unguarded.slot, secret.encode())
            elif not isinstance(secret, PinLaterError):
                raise secret
        self.secret_of = {
            member.address: secret_of_shard
            for shard, (_, secret_of_shard) in self._announced.items()
            for member in members.get(shard, ())  # another look may have announced this server on more shards meanwhile
            if member.address not in {"", self._address}
        }
        self._say_if_not_alone(members)

    def _say_if_not_alone(self, members: Mapping[ShardLanes, Sequence[Member]]) -> None:
        """Logs, once, that another server announces the same address: the others reach only one of the two. A server that was killed
        keeps its row until its lease ends, but is no longer seen."""
        found = {
            (shard, member.slot): member.seen_at_ms
            for shard, (slot, _) in self._announced.items()
            for member in members.get(shard, ())
            if member.address == self._address and member.slot != slot
        }
        self._same_address = {each: self._same_address.get(each, seen_at_ms) for each, seen_at_ms in found.items()}
        if not self._said and any(found[each] > first for each, first in self._same_address.items()):
            self._said = True
            logger.warning(
                "another server announces the same address, so the others can reach only one of the two: give each its own "
                "advertised_address or peer_port",
                extra={"address": self._address},
            )

    def _is_known(self, shard: ShardLanes) -> bool:
        known = self._announced.get(shard)
        return known is not None and known[0] == shard.unguarded.slot
