"""A connection of the console: uvicorn's, with a time limit for every wait for the client, and a bound on how many are open.

uvicorn bounds how long a connection may be idle between two requests. Here the head of a request, the rest of a body after its
answer, and the reading of an answer have time limits too; `reading` has that of a body. If too many connections are open, the address
with the most gives way: its connection that has waited for its client longest is closed for the new one. So slow or silent clients keep
no other client out, nor do the requests of one address those of another.

Weakness: a client that is too slow is cut off without an answer. Behind a proxy all clients have one address.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, NamedTuple

from uvicorn.protocols.http.h11_impl import H11Protocol

from pinlater.domain.caller_address import address_of
from pinlater.wire.wrong_port import CONSOLE_PORT, is_cut_short, thrift_answer

log = logging.getLogger(__name__)


class ConnectionLimits(NamedTuple):
    """`head_s`: the time limit for the head of a request from its first byte, or from the start of the connection. `unread_s`: the time
    limit for a whole answer, once the kernel accepts no more of it."""

    connections_max: int = 1_000
    head_s: float = 10.0
    unread_s: float = 60.0
    idle_s: int = 75


class OpenConnections:
    """The connections by the address of their client; those of an address begin with the one whose client was silent longest."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._by_address: dict[str, dict[BoundedConnection, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_address.values()))

    def admit(self, connection: BoundedConnection) -> bool:
        """Returns whether the new connection may stay, perhaps in place of another one."""
        if len(self) >= self.limits.connections_max:
            replaced = self._replaced_by(connection)
            if replaced is None:
                return False
            self.remove(replaced)
            replaced.abort()
        self._by_address.setdefault(connection.address, {})[connection] = None
        return True

    def _replaced_by(self, connection: BoundedConnection) -> BoundedConnection | None:
        """Returns the connection that has waited for its client longest, of the address with the most connections. If all of these are
        being answered, the oldest one gives way to a client with fewer.
        """
        most = max(self._by_address.values(), key=len)
        waiting = next((one for one in most if one.waits_for_client), None)
        if waiting is not None or len(self._by_address.get(connection.address, ())) + 1 >= len(most):
            return waiting
        return next(iter(most))

    def heard(self, connection: BoundedConnection) -> None:
        """Notes that a request arrived."""
        open_there = self._by_address.get(connection.address, {})
        if connection in open_there:
            del open_there[connection]
            open_there[connection] = None

    def remove(self, connection: BoundedConnection) -> None:
        """The connection is over."""
        open_there = self._by_address.get(connection.address, {})
        open_there.pop(connection, None)
        if not open_there:
            self._by_address.pop(connection.address, None)


class BoundedConnection(H11Protocol):
    """One connection. `uvicorns`: the arguments that uvicorn gives to a protocol."""

    def __init__(self, connections: OpenConnections, **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self._connections = connections
        self._limits = connections.limits
        self._client_due: asyncio.TimerHandle | None = None
        self._answer_due: asyncio.TimerHandle | None = None
        self._first: bytes | None = b""  # the first bytes, until they show whether they begin an HTTP request
        self._discarding = (
            False  # the rest of a Thrift call: closing over it would reset the connection, and lose the answer
        )
        self.address = ""  # of its client

    @property
    def waits_for_client(self) -> bool:
        """Whether the client must act: send a request or the rest of one, or read its answer."""
        return not self._answers or self.flow.write_paused or self.cycle.more_body

    @property
    def _answers(self) -> bool:
        """Whether a request is being read or answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def abort(self) -> None:
        """Ends the connection at once."""
        self.transport.abort()

    # --- called by asyncio ------------------------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = address_of(self.client)
        transport.set_write_buffer_limits(high=0)  # so `pause_writing` follows unless the kernel accepts all
        if self._connections.admit(self):
            self._watch_client()
        else:
            self.abort()

    def data_received(self, data: bytes) -> None:
        if self._discarding:
            return
        if self._first is not None:
            data = self._first + data
            if is_cut_short(data):
                self._first = data
                return
            self._first = None
            answer = thrift_answer(data, CONSOLE_PORT)
            if answer is not None:
                log.warning("a Thrift client has connected to the port of the console")
                self._discarding = True
                self.transport.write(answer)
                if self.transport.can_write_eof():
                    self.transport.write_eof()
                else:
                    self.transport.close()
                return
        answered = not self._answers
        super().data_received(data)
        if answered and self._answers:
            self._connections.heard(self)
        self._watch_client()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.remove(self)
        self._stop_client_timer()
        self._stop_answer_timer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._answer_due = self.loop.call_later(self._limits.unread_s, self.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_answer_timer()

    # --- called by uvicorn ------------------------------------------------------------------------------------------------
    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch_client()

    def _watch_client(self) -> None:
        """Starts the time limit of a head, or of the rest of a body, unless it is already running. More bytes do not start it again."""
        idle = self.timeout_keep_alive_task is not None
        if self._answers or idle or self.transport.is_closing():
            self._stop_client_timer()
        elif self._client_due is None:
            self._client_due = self.loop.call_later(self._limits.head_s, self.abort)

    def _stop_client_timer(self) -> None:
        if self._client_due is not None:
            self._client_due.cancel()
            self._client_due = None

    def _stop_answer_timer(self) -> None:
        if self._answer_due is not None:
            self._answer_due.cancel()
            self._answer_due = None
