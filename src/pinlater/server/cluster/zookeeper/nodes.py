"""The nodes of a cluster in ZooKeeper: as many as it has servers and shards, and none for a queue.

    ROOT/cluster         which shards the cluster has: the fingerprint of each one's secret, by name
    ROOT/members/SERVER  ephemeral; a server that lives, by its address
    ROOT/leader          ephemeral; the server that changes owners
    ROOT/owners/SHARD    the owners of the shard's slices

Weakness: a node of a shard that has left the map stays until the shard's name comes again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError
from msgspec import json

from pinlater.server.storage.values import Owners

CALL_TIMEOUT_S = 3.0
"""A call that has no answer after so long has failed. Calls without a connection get none."""


class SeenNodes(NamedTuple):
    """What a server knows of its cluster. `current`: the ensemble answers now. `foreign`: the nodes are another cluster's."""

    current: bool
    members: frozenset[str]
    leader: str
    owners: Mapping[str, Owners]
    foreign: bool = False


NOTHING_SEEN = SeenNodes(False, frozenset(), "", {})


class ClusterNodes:
    """The nodes, read and written over one client by one thread. Raises `KazooException`, also where another server was faster, and the
    client's time-out.

    `instance`: what tells this process from others that announce the same address. `changed()` is called by another thread when a node
    that was read has changed.
    """

    def __init__(
        self, client: KazooClient, root: str, address: str, instance: str, changed: Callable[[object], None]
    ) -> None:
        self._client = client
        self._root = root
        self._address = address
        self._own = json.encode([address, instance])
        self._changed = changed

    def read_root(self) -> None:
        """Raises `NoAuthError` if this server may not read the nodes."""
        with suppress(NoNodeError):
            self._ask(self._client.get_children_async(self._root))

    def look(self, shards: Mapping[str, str]) -> SeenNodes:
        """Registers this server if it isn't yet, and reads all nodes. `shards`: the fingerprint of each shard's secret, by name."""
        for name in ("members", "owners"):
            self._ask(self._client.ensure_path_async(self._path(name)))
        members = self._children("members")
        if not self._is_ours(shards, members):
            if self._address in members:
                self._leave(f"members/{self._address}")
            return NOTHING_SEEN._replace(foreign=True)
        if self._hold(f"members/{self._address}") != self._own:
            return NOTHING_SEEN  # of a process that ended, or of another server with this address
        leader, _ = json.decode(self._hold("leader"))
        if leader == self._address:
            self._ask(self._client.sync_async(self._root))
        members = self._children("members")
        return SeenNodes(True, members, leader, {name: self._owners(name) for name in self._children("owners")})

    def assign(self, shard: str, known: Owners, new: Owners) -> bool:
        """Stores the owners of a shard if the known ones are what is stored. Returns whether they were."""
        path, data = self._path(f"owners/{shard}"), json.encode(new.by_slice)
        try:
            if known.version == 0:
                self._ask(self._client.create_async(path, data))
            else:
                self._ask(self._client.set_async(path, data, known.version - 1))
        except (BadVersionError, NodeExistsError, NoNodeError):
            return False
        return True

    def _owners(self, shard: str) -> Owners:
        data, stat = self._ask(self._client.get_async(self._path(f"owners/{shard}"), self._changed))
        return Owners(stat.version + 1, json.decode(data, type=tuple[str, ...]))

    def _is_ours(self, shards: Mapping[str, str], members: frozenset[str]) -> bool:
        """Whether the nodes are those of a cluster with any of these shards. Takes the place of one without servers."""
        path = self._path("cluster")
        try:
            data, stat = self._ask(self._client.get_async(path))
        except NoNodeError:
            self._ask(self._client.create_async(path, json.encode(shards)))
            return True
        known = json.decode(data, type=dict[str, str])
        ours = not known.items().isdisjoint(shards.items())
        if not ours and members:
            return False
        wanted = {**known, **shards} if ours else dict(shards)
        if wanted != known:
            self._ask(self._client.set_async(path, json.encode(wanted), stat.version))
        return True

    def _hold(self, name: str) -> bytes:
        """Makes a node that ends with this session, unless there is one of another server. Returns what it says of its server."""
        path = self._path(name)
        try:
            data, stat = self._ask(self._client.get_async(path, self._changed))
        except NoNodeError:
            stat = None
        if stat is not None and stat.ephemeralOwner != self._client.client_id[0] and data == self._own:
            self._leave(name)  # of an earlier session of this process
            stat = None
        if stat is None:
            data = self._own
            self._ask(self._client.create_async(path, data, ephemeral=True))
        return bytes(data)

    def _leave(self, name: str) -> None:
        self._ask(self._client.delete_async(self._path(name)))

    def _children(self, name: str) -> frozenset[str]:
        return frozenset(self._ask(self._client.get_children_async(self._path(name), self._changed)))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _ask(self, answer: Any) -> Any:
        return answer.get(timeout=CALL_TIMEOUT_S)
