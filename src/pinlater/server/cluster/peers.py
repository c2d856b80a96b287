"""Where the other servers of these shards listen, and the secrets by which servers know each other: what the stores say.

Every shard has a secret of its own, since none of them is special; a server proves itself to another with that of a shard where it saw it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pinlater.domain.errors import PinLaterError
from pinlater.server.sharding.shard_lanes import ShardLanes
from pinlater.server.storage.values import Member

logger = logging.getLogger(__name__)

Address = tuple[str, int]
_NAME_S = 2.0


class Peer(NamedTuple):
    """Another server: where it listens, and the secret of a shard that both use."""

    at: Address
    secret: bytes


class Peers:
    """As of the last look. `address`: where this server listens, `host:port`; `family`: of its socket."""

    def __init__(self, address: str, family: int = socket.AF_INET) -> None:
        self._address = address
        self._family = family
        self._found: dict[str, Address] = {}  # addresses as announced, and what the names in them stand for
        self._announced: dict[ShardLanes, tuple[int, bytes]] = {}  # by shard: the slot that was announced, the secret
        self.by_address: Mapping[str, Peer] = {}  # by the address that was announced

    @property
    def secrets(self) -> list[bytes]:
        """The secrets of all shards: any of them may prove a server."""
        return [secret for _, secret in self._announced.values()]

    async def look(self, members: Mapping[ShardLanes, Sequence[Member]]) -> None:
        """Announces this server on shards where it isn't yet, and learns of the others. Asks a shard that fails again next time."""
        self._announced = {shard: known for shard, known in self._announced.items() if shard in members}
        new = {
            shard: shard.coordinator for shard in members if shard.coordinator is not None and not self._is_known(shard)
        }
        secrets = await asyncio.gather(
            *(store.announce(self._address) for store in new.values()), return_exceptions=True
        )
        for shard, secret in zip(new, secrets, strict=True):
            if isinstance(secret, str):
                self._announced[shard] = (shard.store.slot, secret.encode())
            elif not isinstance(secret, PinLaterError):
                raise secret
        known_by = {
            member.address: secret_of_shard
            for shard, (_, secret_of_shard) in self._announced.items()
            for member in members[shard]
            if member.address not in {"", self._address}
        }
        await asyncio.gather(*(self._find(address) for address in known_by if address not in self._found))
        self._found = {address: found for address, found in self._found.items() if address in known_by}
        self.by_address = {address: Peer(found, known_by[address]) for address, found in self._found.items()}

    async def _find(self, address: str) -> None:
        """What a name stands for, asked for once: nothing that is sent may wait for that. Asked again next time if it has no answer."""
        host, _, port = address.rpartition(":")
        if not (host and port.isdecimal() and int(port) < 65_536):
            return
        try:
            async with asyncio.timeout(_NAME_S):
                answers = await asyncio.get_running_loop().getaddrinfo(
                    host, int(port), family=self._family, type=socket.SOCK_STREAM
                )
        except (OSError, TimeoutError, UnicodeError) as error:
            logger.info("a server of these shards can't be reached", extra={"address": address, "reason": str(error)})
            return
        self._found[address] = (str(answers[0][4][0]), int(port))

    def _is_known(self, shard: ShardLanes) -> bool:
        known = self._announced.get(shard)
        return known is not None and known[0] == shard.store.slot
