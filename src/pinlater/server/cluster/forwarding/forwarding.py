"""Where this server's calls for a queue go: into its own lanes, or to the server that owns the queue's slice.

A call goes to the owner while there is a working connection to it. In all other cases it goes to the shard itself, as if the slice
had no owner: that costs more, and breaks no promise.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from pinlater.domain.slices import SLICES
from pinlater.server.cluster.forwarding.carry_out import own_lane
from pinlater.server.cluster.forwarding.forward_lane import ForwardLane
from pinlater.server.cluster.forwarding.messages import CallKind
from pinlater.server.cluster.forwarding.peer_connection import PeerConnection
from pinlater.server.cluster.forwarding.peer_tls import connecting_side
from pinlater.server.cluster.forwarding.traffic import TrafficByServer
from pinlater.server.cluster.forwarding.unconfirmed_claims import Lost
from pinlater.server.sharding.lane import Lane
from pinlater.server.sharding.lane_queue import LaneQueue
from pinlater.server.sharding.shards import ClaimRequest, ShardLanes, Shards
from pinlater.server.storage.values import Claimed
from pinlater.tls.protocol import TlsProtocol
from pinlater.tls.reasons import why_no_tls_server

logger = logging.getLogger(__name__)

_NAME_S, _CONNECT_S = 2.0, 1.0
_PAUSE_S, _PAUSE_S_MAX = 0.2, 5.0
# How many lost connections the next connection to the same server reports: several may end before one has reported.
_LOST_MAX = 256
_TOLD_MAX = 8
# A server that has said nothing for this long is asked whether it runs, and must answer within the stall time.
_ASK_AFTER_S = 0.2


class ForwardLanes(NamedTuple):
    """The lanes to one shard through one server, in the order of `CallKind`."""

    insert: ForwardLane[Any, Any] | LaneQueue[Any, Any]
    claim: ForwardLane[Any, Any]
    finish: ForwardLane[Any, Any]
    extend: ForwardLane[Any, Any]
    checkpoint: ForwardLane[Any, Any]
    release: ForwardLane[Any, Any]


class Forwarding:
    """The forwarding of one server, which other servers know by `own_address`. `owners(shard)`: the addresses of a shard's owners, by
    slice.

    `look(address)` is called when something has changed about that server, `waits_changed(connection)` when it has said which queues
    its dequeues wait for, and when the connection is lost, `queues_changed()` when it may have changed queues. `local_path(address)`: the
    path of the Unix socket of a server with the same supervisor, or None if this one has no supervisor. All other connections are made
    over addresses of this `family` (`AF_INET`, `AF_INET6`); with `tls` they are made with TLS, and never without. `stores_here`: enqueues
    go directly to the shard, not to the owner of the queue."""

    def __init__(
        self,
        shards: Shards,
        own_address: str,
        owners: Callable[[str], Sequence[str]],
        look: Callable[[str], None] = lambda _: None,
        waits_changed: Callable[[PeerConnection], None] = lambda _: None,
        queues_changed: Callable[[], None] = lambda: None,
        local_path: Callable[[str], str] | None = None,
        *,
        family: int = socket.AF_INET,
        tls: bool = False,
        stores_here: bool = False,
    ) -> None:
        self._tls = connecting_side() if tls else None
        self._stores_here = stores_here
        self._shards = shards
        self._own_address = own_address
        self._owners = owners
        self._look = look
        self._waits_changed = waits_changed
        self._queues_changed = queues_changed
        self._local_path = local_path
        self._stall_s = shards.settings.stall_ms / 1000
        self._limit_s = shards.settings.call_timeout_ms / 1000
        self._family = family
        self._secret_of: Mapping[str, bytes] = {}  # the peers, by announced address
        self._keeping: dict[str, asyncio.Task[None]] = {}  # by address: makes the connection, and remakes it
        self._connections: dict[str, PeerConnection] = {}
        # Connections to servers that are no longer peers, until their calls are answered or too late.
        self._closing: set[PeerConnection] = set()
        self._lanes: dict[tuple[PeerConnection, str], ForwardLanes] = {}
        self._lost: deque[tuple[str, Lost]] = deque(maxlen=_LOST_MAX)  # connections, by address; oldest first
        self._closed = False
        self.sent = TrafficByServer()

    @property
    def connections(self) -> Mapping[str, PeerConnection]:
        """The connections to other servers, by address."""
        return self._connections

    @property
    def items(self) -> int:
        """Returns the number of items that were sent over the present connections."""
        return sum([lane.items for lanes in self._lanes.values() for lane in lanes])

    def heard_s(self, address: str) -> float:
        """Returns when that server was last heard; -inf if there is no connection to it."""
        connection = self._connections.get(address)
        return -math.inf if connection is None else connection.heard_s

    def tell_to_look(self) -> None:
        """Tells all servers that this one has changed who owns what."""
        for connection in self._connections.values():
            connection.tell_to_look()

    # --- routes -------------------------------------------------------------------------------------------------------------

    def know(self, secret_of: Mapping[str, bytes]) -> None:
        """Sets the current peers: the secret of a shard that both use, by announced address. Connects to all peers, which also shows
        which of them are alive.
        """
        self._secret_of = secret_of
        wanted = {address for address in secret_of if address != self._own_address}
        for address in sorted(self._keeping.keys() - wanted):
            self._keeping.pop(address).cancel()
        for address in sorted(wanted - self._keeping.keys()):
            self._keeping[address] = asyncio.ensure_future(self._keep(address))
        self.reroute()

    def reroute(self) -> None:
        """Sets the route of each slice of each shard according to the current owners and connections."""
        if self._closed:
            return
        for shard in self._shards:
            if shard.shared is not None:
                owners = self._owners(shard.name)
                shard.route(
                    [self._way(shard, owner) for owner in owners], [owner == self._own_address for owner in owners]
                )

    def _way(self, shard: ShardLanes, owner: str) -> ForwardLanes | None:
        lanes = self._lanes_to(shard, owner)
        return lanes._replace(insert=shard.insert) if self._stores_here and lanes is not None else lanes

    def _lanes_to(self, shard: ShardLanes, owner: str) -> ForwardLanes | None:
        connection = self._connections.get(owner)
        if connection is None or not connection.usable or shard.name in connection.unreachable:
            return None
        lanes = self._lanes.get((connection, shard.name))
        if lanes is None:
            lanes = self._lanes[connection, shard.name] = self._new_lanes(connection, shard)
        return lanes

    def _new_lanes(self, connection: PeerConnection, shard: ShardLanes) -> ForwardLanes:
        name = shard.name

        def orphaned(request: ClaimRequest, claimed: Claimed) -> None:
            undelivered = self._shards.hooks.undelivered
            if undelivered is not None:
                undelivered(name, request, claimed)

        def own(kind: CallKind) -> Lane[Any, Any] | None:
            here = self._shards.get(name)
            return None if here is None or not here.healthy else own_lane(here, kind)

        def lane(kind: CallKind) -> ForwardLane[Any, Any]:
            gives_back = orphaned if kind is CallKind.CLAIM else None
            return ForwardLane(connection, kind, name, orphaned=gives_back, own=partial(own, kind))

        return ForwardLanes(*map(lane, CallKind))

    # --- connections --------------------------------------------------------------------------------------------------------

    async def _keep(self, address: str) -> None:
        """Keeps a connection to a server, and restores it whenever it is lost."""
        pause_s = _PAUSE_S
        try:
            while True:
                connection = await self._connect(address)
                if connection is not None:
                    self._connections[address] = connection
                    self.reroute()
                    await connection.ended.wait()
                    pause_s = _PAUSE_S
                    self._lost.append((address, connection.as_lost))
                    self._forget(address)
                await asyncio.sleep(pause_s)
                pause_s = min(_PAUSE_S_MAX, 2 * pause_s)
        finally:
            connection = self._connections.get(address)
            if connection is not None:
                self._forget(address)
                self._closing.add(connection)
                connection.close_when_idle()
                self._note_end(connection)

    def _note_end(self, connection: PeerConnection) -> None:
        """Notes the end of a connection. The next one to that server reports how many answers came over it, if it becomes a peer again."""
        if connection in self._closing and connection.ended.is_set():
            self._closing.discard(connection)
            self._lost.append((connection.address, connection.as_lost))

    def _forget(self, address: str) -> None:
        connection = self._connections.pop(address, None)
        self._lanes = {(over, shard): lanes for (over, shard), lanes in self._lanes.items() if over is not connection}
        self.reroute()

    async def _connect(self, address: str) -> PeerConnection | None:
        """A connection that can be used, or None if there is none at the moment."""
        secret = self._secret_of.get(address)
        if secret is None:
            return None
        connection = PeerConnection(
            address,
            self._own_address,
            secret,
            self._shards.clock,
            self._limit_s,
            self._changed,
            self._waits_changed,
            self.sent.of(address),
            [lost for to, lost in self._lost if to == address][-_TOLD_MAX:],
            self._queues_changed,
        )
        layer = None if self._tls is None else TlsProtocol(connection, self._tls)
        try:
            async with asyncio.timeout(_CONNECT_S):
                is_local = await self._open_local(connection)
            at = None if is_local else await self._find(address)
            async with asyncio.timeout(_CONNECT_S):
                if at is not None:
                    await self._open(connection, layer, at)
                await connection.wait_ready()
        except (OSError, TimeoutError) as error:
            _abort(connection, layer)
            logger.debug("no connection to a server", extra={"server": address, "reason": str(error)})
            return None
        except BaseException:  # cancelled: the other server would keep a connection that this one has forgotten
            _abort(connection, layer)
            raise
        return connection

    async def _open_local(self, connection: PeerConnection) -> bool:
        """Returns whether the other server has the same supervisor, and was reached over its Unix socket."""
        if self._local_path is None:
            return False
        try:
            path = self._local_path(connection.address)
            await asyncio.get_running_loop().create_unix_connection(lambda: connection, path)
        except OSError:
            return False
        return True

    async def _find(self, address: str) -> tuple[str, int]:
        """Returns where to connect. The name is resolved for each connection, since it may have moved to another machine. Raises
        `OSError`.
        """
        host, _, port = address.rpartition(":")
        try:
            if not (host and port.isdecimal() and int(port) < 65_536):
                raise OSError("its address is not host:port")
            async with asyncio.timeout(_NAME_S):
                answers = await asyncio.get_running_loop().getaddrinfo(
                    host, int(port), family=self._family, type=socket.SOCK_STREAM
                )
        except (OSError, UnicodeError) as error:
            logger.info("a server of these shards can't be reached", extra={"address": address, "reason": str(error)})
            raise OSError(str(error)) from error
        return str(answers[0][4][0]), int(port)

    async def _open(self, connection: PeerConnection, layer: TlsProtocol | None, at: tuple[str, int]) -> None:
        """Opens a connection over TCP, with TLS if there is a `layer`."""
        outer = layer or connection
        await asyncio.get_running_loop().create_connection(lambda: outer, *at)
        if layer is None:
            return
        try:
            await layer.wait_handshake()
        except OSError as error:
            reason = why_no_tls_server(error, connection.address)
            extra = {"server": connection.address, "reason": reason}
            logger.warning("calls to a server go to the shards instead", extra=extra)
            raise

    def _changed(self, connection: PeerConnection) -> None:
        self._note_end(connection)
        self.reroute()
        self._look(connection.address)

    def serves(self, address: str, shard: str) -> bool:
        """Returns whether that server can work on the shard, unless it has reported otherwise."""
        connection = self._connections.get(address)
        return connection is None or shard not in connection.unreachable

    def look_at_calls(self) -> None:
        """Leaves out each server that doesn't answer until it does. Call it several times a second."""
        for connection in [*self._connections.values(), *self._closing]:
            connection.look(_ASK_AFTER_S, self._stall_s)

    # --- life ---------------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Stops sending: all calls go to this server's own lanes."""
        for shard in self._shards:
            shard.route([None] * SLICES, [True] * SLICES)
        self._closed = True
        tasks = list(self._keeping.values())
        self._keeping.clear()
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task


def _abort(connection: PeerConnection, layer: TlsProtocol | None) -> None:
    """Aborts the connection on the transport over which it was opened."""
    if layer is not None:
        layer.abort()
    connection.abort()
