"""The answering side: takes calls from other servers of the same shards, and joins them with this server's own.

Only servers that know a shard's secret are accepted. `incoming_connection.py` is the connection of one of them.
"""

from __future__ import annotations

import asyncio
import math
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence, Set
from typing import Any

from pinlater.domain.workers import ServerWorkers
from pinlater.server.cluster.forwarding.incoming_connection import IncomingConnection
from pinlater.server.cluster.forwarding.messages import CallKind, Told, Wake
from pinlater.server.cluster.forwarding.peer_tls import listening_factory
from pinlater.server.cluster.forwarding.traffic import TrafficByServer
from pinlater.server.cluster.forwarding.unconfirmed_claims import (
    AnsweredClaims,
    ClaimsOfLostConnections,
    Lost,
)
from pinlater.server.link.answering import Listener
from pinlater.tls.certificate import CertificateSource

HANDSHAKE_S = 5.0
HANDSHAKE_CROWDED_S = 1.0  # while half of the places for unproven connections are taken
# The most unproven connections at once; one more disconnects another.
UNPROVEN_MAX = 64
# The most disconnected servers for which the time when they were last heard is kept.
_ENDED_MAX = 200
# How long a stopping server lets the others close their connections.
_GOODBYE_S = 0.5

# Executes the items of a part, or none if its time is over; returns a future of an answer for each, with errors as values.
CarryOut = Callable[[CallKind, str, Sequence[Any], int, int], "asyncio.Future[Sequence[Any]]"]


async def _knows_no_workers(_: int) -> ServerWorkers:
    return ServerWorkers((), (), "", 0, 0, 0)


class PeerListener(Listener[IncomingConnection]):
    """Listens for other servers. `known_secrets()`: a server may prove itself with any of them. `undelivered(claims)`: gets claims whose
    answer did not arrive.

    `still_runs()`: False if this process stood still, and must not execute what is in its sockets. `look(address)` is called
    when a server has connected, and when it has changed who owns what. `told()`: what this server reports about itself.
    `monotonic`: in seconds. `limit_s`: how long a server may leave all its answers unread. `certificate`: None takes connections without
    TLS only; with it only connections with TLS are taken.
    """

    def __init__(
        self,
        carry_out: CarryOut,
        undelivered: Callable[[AnsweredClaims], None],
        known_secrets: Callable[[], list[bytes]],
        still_runs: Callable[[], bool] = lambda: True,
        look: Callable[[str], None] = lambda _: None,
        told: Callable[[], Told] = lambda: Told((), {}, 0),
        monotonic: Callable[[], float] = time.monotonic,
        limit_s: float = 10.0,
        certificate: CertificateSource | None = None,
    ) -> None:
        super().__init__(still_runs)
        self._certificate = certificate
        self.limit_s = limit_s
        self.carry_out = carry_out
        self.look = look
        self.told = told
        self.workers: Callable[[int], Awaitable[ServerWorkers]] = _knows_no_workers
        """What this server knows about workers, with at most that number of workers."""
        self.take_wakes: Callable[[Sequence[Wake]], None] = lambda _: None
        """Takes what another server reports about jobs that can be claimed."""
        self.monotonic = monotonic
        self.undelivered = undelivered
        self.known_secrets = known_secrets
        self._ended: dict[str, float] = {}  # when servers were last heard over connections that have ended, by address
        self._waits = 0
        self.lost = ClaimsOfLostConnections(monotonic, undelivered)
        self.taken = TrafficByServer()

    async def open(self, host: str, port: int = 0) -> int:
        """Starts to listen. Returns the port. Raises OSError."""
        loop = asyncio.get_running_loop()
        new = listening_factory(self._certificate, lambda binding: IncomingConnection(self, binding))
        server = await loop.create_server(new, host, port)
        self._servers.append(server)
        return int(min(server.sockets, key=lambda each: each.family).getsockname()[1])  # IPv4's comes first

    @property
    def family(self) -> int:
        """IPv4's or IPv6's number: other servers need addresses of the same family. IPv4 if it listens on both."""
        families = {each.family for server in self._servers for each in server.sockets}
        return socket.AF_INET6 if families & {socket.AF_INET, socket.AF_INET6} == {socket.AF_INET6} else socket.AF_INET

    def _new(self) -> IncomingConnection:
        return IncomingConnection(self)

    def heard_s(self, address: str) -> float:
        """Returns when the server that announced this address was last heard; -inf if it isn't connected."""
        heard = [each.heard_s for each in self.connections if each.proven and each.address == address]
        return max(heard, default=-math.inf)

    def heard(self, within_s: float) -> Set[str]:
        """Returns the servers that sent something over their connections within the last moments, by the addresses that they announced."""
        since_s = self.monotonic() - within_s
        return {each.address for each in self.connections if each.proven and each.heard_s >= since_s}

    def was_heard_s(self, address: str) -> float:
        """Returns when it was last heard, also over a connection that has ended. For people only."""
        return max(self.heard_s(address), self._ended.get(address, -math.inf))

    def settle(self, lost: Sequence[Lost]) -> None:
        """Notes which answers a server that has connected again received over its former connections."""
        taken = {each.nonce: each.taken for each in lost}
        for connection in list(self._connections):
            if connection.proven and connection.nonce in taken:  # this server has not noticed its end
                connection.end(taken[connection.nonce])
        for each in lost:
            self.lost.settle(each)

    def add(self, connection: IncomingConnection) -> float:
        """A new connection, which has not proven itself. For how many seconds a connection may remain unproven.

        If there are too many, the host with the most of them loses its oldest: no host can keep a server on another host out.
        """
        self._connections[connection] = None
        unproven = [each for each in self._connections if not each.proven]
        if len(unproven) > UNPROVEN_MAX:
            by_host = Counter(each.peer for each in unproven)
            oldest = next(each for each in unproven if by_host[each.peer] == max(by_host.values()))
            oldest.abort()
            self.discard(oldest)
        return HANDSHAKE_S if len(unproven) < UNPROVEN_MAX // 2 else HANDSHAKE_CROWDED_S

    def discard(self, connection: IncomingConnection) -> None:
        super().discard(connection)
        if connection.proven and connection.address:
            self._ended.pop(connection.address, None)
            self._ended[connection.address] = connection.heard_s
            while len(self._ended) > _ENDED_MAX:
                self._ended.pop(next(iter(self._ended)))

    @property
    def waits(self) -> int:
        """Which queues the dequeues of this server wait for."""
        return self._waits

    def tell_waits(self, bits: int) -> None:
        """Tells all servers which queues the dequeues of this one wait for; a server that connects later is told then."""
        self._waits = bits
        for connection in self.connections:
            connection.tell_waits()

    def tell(self) -> None:
        """Sends the facts about this server to all others at once; they also ask for them several times a second."""
        for connection in self.connections:
            connection.tell_running()

    def say_goodbye(self) -> None:
        """Tells the other servers that this one stops. The calls that they have sent are answered."""
        for connection in self.connections:
            connection.say_goodbye()

    async def drain(self, grace_s: float) -> None:
        """Stops listening, and waits up to this time until all calls of other servers are answered and the answers are sent."""
        self._stop_listening()
        leave_by_s = self.monotonic() + _GOODBYE_S

        def is_over() -> bool:
            proven = [connection for connection in self._connections if connection.proven]
            owes_answers = any(connection.owes_answers for connection in proven)
            return not owes_answers and (not proven or self.monotonic() >= leave_by_s)

        await self._until(is_over, grace_s)
