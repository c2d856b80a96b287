"""The nodes of a cluster in ZooKeeper: as many as it has servers and shards, and none for a queue.

    ROOT/cluster         which shards the cluster has: the fingerprint of each one's secret, by name
    ROOT/members/SERVER ephemeral; a server that lives, by its address
    ROOT/leader          ephemeral; the server that changes owners
    ROOT/owners/SHARD    the owners of the shard's slices

Weakness: a node of a shard that has left the map stays until the shard's name comes again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError
from msgspec import DecodeError, json

from pinlater.domain.slices import SLICES
from pinlater.server.storage.values import NO_OWNERS, Owners

T = TypeVar("T")

CALL_TIMEOUT_S = 3.0
"""A call without an answer after this time has failed. Calls without a connection get no answer."""


class SeenNodes(NamedTuple):
    """What a server knows of its cluster."""

    current: bool
    """This server is one of the members, and the ensemble answers."""
    members: frozenset[str]
    leader: str
    owners: Mapping[str, Owners]
    trouble: str = ""
    """Why it is not current, if that is worth a warning."""


NOTHING_SEEN = SeenNodes(False, frozenset(), "", {})


class NotOurs(Exception):
    """Raised if the nodes, or the place among the members, belong to another cluster or server. The text says which."""


class ClusterNodes:
    """The nodes, read and written over one client by one thread. Raises `KazooException`, also if another server was faster, and the
    client's time-out.

    `instance`: tells this process apart from others that announce the same address. `changed()` is called by another thread when a node
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
        self._is_open = False

    def open_root(self) -> None:
        """Makes the path if it isn't there. Raises `NoAuthError` if this server may not create or read it."""
        if not self._is_open:
            self._ask(self._client.ensure_path_async(self._root))
            self._ask(self._client.get_children_async(self._root))
            self._is_open = True

    def look(self, shards: Mapping[str, str]) -> SeenNodes:
        """Registers this server unless it is registered, and reads all nodes. Raises `NotOurs`, and then this server is not a member.

        `shards`: the fingerprint of each shard's secret, by name.
        """
        self._enter(shards)
        holder = self._hold(f"members/{self._address}")
        if holder != self._own:
            raise NotOurs(f"another server, or one that has just ended, is registered with the address {self._address}")
        leader = _decode(self._hold("leader"), tuple[str, str], "leader")[0]
        if leader == self._address:
            self._ask(self._client.sync_async(self._root))
        members = self._children("members")
        return SeenNodes(True, members, leader, {name: self._owners(name) for name in self._children("owners")})

    def assign(self, shard: str, known: Owners, new: Owners) -> bool:
        """Stores the owners of a shard if the stored ones are still the known ones. Returns whether it stored them."""
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
        """Owners that can't be read count as none: the leader stores new ones."""
        data, stat = self._ask(self._client.get_async(self._path(f"owners/{shard}"), self._changed))
        try:
            by_slice = json.decode(data, type=tuple[str, ...])
        except DecodeError:
            by_slice = ()
        return Owners(stat.version + 1, by_slice if len(by_slice) == SLICES else NO_OWNERS.by_slice)

    def _enter(self, shards: Mapping[str, str]) -> None:
        """Makes sure that the nodes are those of a cluster with any of these shards. Replaces a cluster without servers."""
        path = self._path("cluster")
        try:
            data, stat = self._ask(self._client.get_async(path))
        except NoNodeError:
            self._ask(self._client.create_async(path, json.encode(shards), makepath=True))
            data, stat = self._ask(self._client.get_async(path))
        known = _decode(data, dict[str, str], "cluster")
        for name in ("members", "owners"):
            self._ask(self._client.ensure_path_async(self._path(name)))
        ours = not known.items().isdisjoint(shards.items())
        members = frozenset[str]() if ours else self._children("members")
        if members:
            if self._address in members:
                self._leave(f"members/{self._address}")
            raise NotOurs("the path in ZooKeeper is that of servers with other shards")
        wanted = {**known, **shards} if ours else dict(shards)
        if wanted != known:
            self._ask(self._client.set_async(path, json.encode(wanted), stat.version))

    def _hold(self, name: str) -> bytes:
        """Creates a node that ends with this session, unless another server has one. Returns the content of the node."""
        path = self._path(name)
        while True:
            try:
                data, stat = self._ask(self._client.get_async(path, self._changed))
            except NoNodeError:
                self._ask(self._client.create_async(path, self._own, ephemeral=True))
                continue  # only what was read is watched
            if stat.ephemeralOwner == self._client.client_id[0] or data != self._own:
                return bytes(data)
            self._leave(name)  # of an earlier session of this process

    def _leave(self, name: str) -> None:
        self._ask(self._client.delete_async(self._path(name)))

    def _children(self, name: str) -> frozenset[str]:
        return frozenset(self._ask(self._client.get_children_async(self._path(name), self._changed)))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _ask(self, answer: Any) -> Any:
        return answer.get(timeout=CALL_TIMEOUT_S)


def _decode(data: bytes, type_: type[T], name: str) -> T:
    try:
        return json.decode(data, type=type_)
    except DecodeError as error:
        raise NotOurs(f"the path in ZooKeeper is of another program: its node {name} has other data") from error
