"""Servers of the same shards know each other, and wake each other's waiting dequeues. Where no wake arrives they look about once a second.

The shards know which servers there are (`sharding.cluster_members`), where these listen (`sharding.peers`) and which of them own what
(`ownership`); wakes go from server to server (`dispatch.wake_datagrams`). This module puts these together.
"""

from __future__ import annotations

from pinlater.server.dispatch.dispatcher import Dispatcher
from pinlater.server.dispatch.wake_datagrams import Wakes
from pinlater.server.ownership.ownership import Ownership
from pinlater.server.sharding.cluster_members import ClusterMembers
from pinlater.server.sharding.peers import Peers
from pinlater.server.sharding.shards import Shards


class Cluster:
    """What one server knows of the other servers of its shards, and the wakes between them."""

    def __init__(self, shards: Shards, dispatcher: Dispatcher) -> None:
        self._shards = shards
        self._dispatcher = dispatcher
        self.members = ClusterMembers(shards)
        self.wakes: Wakes | None = None
        self.ownership: Ownership | None = None
        self._peers: Peers | None = None

    async def listen(self, host: str, port: int, reached_at: str) -> None:
        """Hears and sends wakes from now on. `reached_at`: the address at which the others reach `host`. Raises OSError."""
        wakes = Wakes(self._dispatcher.wakeups.woken_from_elsewhere)
        bound = await wakes.open(host, port)
        address = f"{reached_at}:{bound}"
        self.wakes, self._peers = wakes, Peers(address, wakes.family)
        self.ownership = Ownership(self._shards, address)
        self._dispatcher.wakeups.elsewhere = wakes.tell
        await self._meet()

    async def look(self) -> bool:
        """Who is there now; whether their number has changed."""
        changed = await self.members.look()
        await self._meet()
        return changed

    async def _meet(self) -> None:
        if self.wakes is not None and self._peers is not None:
            await self._peers.look(self.members.by_shard)
            self.wakes.know(self._peers.secrets, self._peers.peers)
        if self.ownership is not None:
            await self.ownership.look(self.members.by_shard)

    async def leave(self) -> None:
        """Hands over what this server owns: it stops."""
        if self.ownership is not None:
            await self.ownership.leave(self.members.by_shard)

    def close(self) -> None:
        """Says and hears no more."""
        if self.wakes is not None:
            self.wakes.close()
