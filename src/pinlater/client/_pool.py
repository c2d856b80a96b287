"""The connections of one client: a few that many calls share, and one of its own for every long poll.

Calls on one connection are answered in order, so a long poll on a shared connection would hold up the calls behind it.
A long poll that is given up takes its connection with it: the server then gives back, unspent, what it would have handed out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from weakref import WeakSet

from pinlater.client._connection import Connect, Link
from pinlater.client._owners import KnownOwners
from pinlater.client._servers import ServerAddress, ServerChoice
from pinlater.client.errors import ClientClosed, ServerUnreachable

_IDLE_WAIT_CONNECTIONS_MAX = 64
# An owner has answered before, so a connection to it is quick or not worth the time.
_OWNER_CONNECT_S = 1.0


class ConnectionPool:
    """Hands out usable connections; makes them as needed, on the next server if one can't be reached."""

    def __init__(
        self,
        servers: ServerChoice,
        *,
        shared_max: int,
        connect: Connect,
        monotonic: Callable[[], float],
    ) -> None:
        self._servers = servers
        self.also: KnownOwners | None = None  # owners of queues may be other servers
        self._new_link = connect
        self._monotonic = monotonic
        self._shared: list[Link | None] = [None] * shared_max
        self._making = [asyncio.Lock() for _ in range(shared_max)]
        self._move_at = [0.0] * shared_max
        self._next = 0
        self._polls = 0
        self._idle: list[Link] = []
        self._made: WeakSet[Link] = WeakSet()  # the event loop keeps a connection alive while it is open
        self._closed = False

    async def shared(self) -> Link:
        """A connection for calls that are answered at once: the next of the shared ones, but for those to a server that has just failed."""
        slot = self._next_slot()
        connection = self._shared[slot]
        if connection is not None and not self._closed and self._may_stay(connection, slot):
            return connection
        async with self._making[slot]:
            connection = self._shared[slot]
            if connection is None or not self._may_stay(connection, slot):
                if connection is not None:
                    connection.retire()
                connection = self._shared[slot] = await self._connect(slot)
                self._move_at[slot] = self._monotonic() + self._servers.stay_s(connection.address, slot)
            return connection

    def _next_slot(self) -> int:
        slots = len(self._shared)
        first = self._next = (self._next + 1) % slots
        for step in range(slots):
            slot = (first + step) % slots
            connection = self._shared[slot]
            if connection is None or not self._servers.is_away(connection.address):
                self._next = slot
                break
        return self._next

    def _may_stay(self, connection: Link, slot: int) -> bool:
        return (
            connection.usable
            and self._monotonic() < self._move_at[slot]
            and self._servers.is_listed(connection.address)
        )

    @asynccontextmanager
    async def alone(self, owner: ServerAddress | None = None) -> AsyncIterator[Link]:
        """A connection for one long poll, to `owner` if it can be reached. Given up, it is closed."""
        self._polls += 1
        connection = None if owner is None else await self._to_owner(owner)
        connection = connection or self._take_idle() or await self._connect(self._polls)
        try:
            yield connection
        except asyncio.CancelledError:
            connection.abort()
            raise
        finally:
            if (
                connection.usable
                and not self._closed
                and self._may_be_used(connection.address)
                and len(self._idle) < _IDLE_WAIT_CONNECTIONS_MAX
            ):
                self._idle.append(connection)
            else:
                connection.abort()

    def _take_idle(self) -> Link | None:
        while self._idle and not self._closed:
            connection = self._idle.pop()
            if connection.usable and self._may_be_used(connection.address):
                return connection
            connection.abort()
        return None

    def _may_be_used(self, address: ServerAddress) -> bool:
        return self._servers.is_listed(address) or (self.also is not None and self.also.has_reached(address))

    async def _to_owner(self, address: ServerAddress) -> Link | None:
        for connection in reversed(self._idle):
            if connection.address == address and connection.usable and not self._closed:
                self._idle.remove(connection)
                return connection
        try:
            async with asyncio.timeout(_OWNER_CONNECT_S):
                return await self.connect_to(address)
        except (ServerUnreachable, TimeoutError):
            if self.also is not None:
                self.also.failed(address)
            return None

    async def connect_to(self, address: ServerAddress) -> Link:
        """A new connection, which `close` closes. Raises ServerUnreachable, ClientClosed."""
        connection = await self._new_link(address)
        self._made.add(connection)
        if self._closed:
            await connection.close()
            raise ClientClosed("The client is closed")
        return connection

    async def _connect(self, start: int) -> Link:
        self._servers.check_round()
        failure: ServerUnreachable | None = None
        for address in self._servers.candidates(start):
            if self._closed:
                break
            try:
                return await self.connect_to(address)
            except ServerUnreachable as error:
                self._servers.failed(address)
                failure = error
        if failure is not None and not self._closed:
            raise self._servers.none_reached(failure) from failure.__cause__
        raise ClientClosed("The client is closed")

    def renew(self) -> None:
        """Makes no new call over any connection that is open now: one of them does not answer, and the others may not either. Calls
        under way go on."""
        for connection in self._shared:
            if connection is not None:
                connection.retire()
        while self._idle:
            self._idle.pop().abort()

    async def close(self) -> None:
        """Closes all connections, retired ones too, and waits until they are closed; calls under way end with ConnectionLost."""
        self._closed = True
        self._idle.clear()
        await asyncio.gather(*(connection.close() for connection in list(self._made)))
