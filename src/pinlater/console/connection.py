"""A connection of the console: uvicorn's, with an end to every wait for the client, and a bound on how many are open.

uvicorn bounds how long a connection may be idle between two requests. Here the head of a request, the rest of a body after its
answer, and the reading of an answer have time limits too; `reading` has that of a body. If too many connections are open, the one that
has waited for its client longest is closed for the new one. So slow or silent clients keep no other client out.

Weakness: a client that is too slow is cut off without an answer.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, NamedTuple

from uvicorn.protocols.http.h11_impl import H11Protocol

from pinlater.wire.wrong_port import CONSOLE_PORT, thrift_answer

log = logging.getLogger(__name__)


class ConnectionLimits(NamedTuple):
    """`head_s`: for the head of a request from its first byte, or from the start of the connection. `unread_s`: for the whole of an
    answer, once the kernel takes no more of it."""

    connections_max: int = 1_000
    head_s: float = 10.0
    unread_s: float = 60.0
    idle_s: int = 75


class OpenConnections:
    """The connections, the one whose client was silent longest first."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._open: dict[BoundedConnection, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: BoundedConnection) -> bool:
        """Whether the new connection may stay, perhaps in place of another one."""
        if len(self._open) >= self.limits.connections_max:
            oldest = next((one for one in self._open if one.waits_for_client), None)
            if oldest is None:
                return False
            self.remove(oldest)
            oldest.abort()
        self._open[connection] = None
        return True

    def heard(self, connection: BoundedConnection) -> None:
        """A request came."""
        if connection in self._open:
            del self._open[connection]
            self._open[connection] = None

    def remove(self, connection: BoundedConnection) -> None:
        """The connection is over."""
        self._open.pop(connection, None)


class BoundedConnection(H11Protocol):
    """One connection. `uvicorns`: what uvicorn gives to a protocol."""

    def __init__(self, connections: OpenConnections, **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self._connections = connections
        self._limits = connections.limits
        self._client_due: asyncio.TimerHandle | None = None
        self._answer_due: asyncio.TimerHandle | None = None
        self._fresh = True  # nothing was read yet

    @property
    def waits_for_client(self) -> bool:
        """Whether the client is next: to send a request or the rest of one, or to read its answer."""
        return not self._answers or self.flow.write_paused or self.cycle.more_body

    @property
    def _answers(self) -> bool:
        """Whether a request is being read or answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def abort(self) -> None:
        """Ends it at once."""
        self.transport.abort()

    # --- what asyncio calls -----------------------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # `pause_writing` follows whenever the kernel has not taken all
        if self._connections.admit(self):
            self._watch_client()
        else:
            self.abort()

    def data_received(self, data: bytes) -> None:
        fresh, self._fresh = self._fresh, False
        answer = thrift_answer(data, CONSOLE_PORT) if fresh else None
        if answer is not None:
            log.warning("a Thrift client has connected to the port of the console")
            self.transport.write(answer)
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

    # --- what uvicorn calls -----------------------------------------------------------------------------------------------
    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch_client()

    def _watch_client(self) -> None:
        """Starts the time limit of a head, or of the rest of a body, unless it runs already. More bytes do not start it again."""
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
