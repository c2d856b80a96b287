"""The listener: accepts connections, keeps them within bounds, closes idle and stuck ones, and drains.

Runs on asyncio's and on uvloop's event loop. Weakness: it trusts the service to answer; a request that never ends keeps its
connection until the drain's grace is over.
"""

from __future__ import annotations

import asyncio
import logging
import select
from collections.abc import Callable, Mapping

from pinlater.domain.byte_budget import ByteBudget
from pinlater.domain.clock import Clock
from pinlater.server.operations.service import Service
from pinlater.server.operations.standstill import Standstill
from pinlater.server.telemetry.metrics import Metrics
from pinlater.server.thrift.answering import Answering
from pinlater.server.thrift.connection import ThriftConnection
from pinlater.server.thrift.gauges import show_quotas, show_thrift
from pinlater.server.thrift.guard import Guard
from pinlater.server.thrift.large_frames import LargeFrames
from pinlater.server.thrift.methods.record import ServedMethod
from pinlater.server.thrift.open_files import raise_file_limit
from pinlater.server.thrift.settings import ThriftSettings
from pinlater.server.thrift.shedding import SHED_SHARE, beyond_their_share, held_bytes_min, is_slow, slow_ones
from pinlater.tls.certificate import CertificateSource
from pinlater.tls.listening import listening_side
from pinlater.tls.protocol import TlsProtocol
from pinlater.wire.wrong_port import THRIFT_PORT, TLS_PORT, begins_http, http_answer, is_cut_short, thrift_answer

logger = logging.getLogger(__name__)

SWEEP_S_MAX = 1.0
PROGRESS_S_MAX = 1.0
# After a standstill new connections are refused for this long, and this many turns of the loop.
REFUSING_S = 0.5
REFUSING_TURNS = 20
# Requests that arrive within this time after the drain began are still read and answered.
LAST_CALL_S = 0.05
# While memory is scarce, a frame must be whole within this time.
PARTIAL_FRAME_S_MAX = 30.0
# A search for requests that could give way, and found none, is not repeated for the same address for this long, and for this many times
# as long as it took.
FRUITLESS_S = 0.01
FRUITLESS_PAUSES = 9
_WRONG_CLIENTS_MAX = 1000  # remembered, so that each is logged once


class ThriftServer:
    """Serves `service` over Thrift. `shared_port`: other processes of the same user may listen there too, and each gets some connections.

    `budget` counts the bytes in flight; by default, it has the settings' limit. `other_connections`: how many other listeners of this
    process may hold; the system's bound on open files is shared with them. `methods`: the record of each method. `guard`: access control,
    if there is one. `certificate`: None serves without TLS.
    """

    def __init__(
        self,
        service: Service,
        settings: ThriftSettings,
        metrics: Metrics,
        clock: Clock,
        methods: Mapping[str, ServedMethod],
        *,
        shared_port: bool = False,
        budget: ByteBudget | None = None,
        standstill: Standstill | None = None,
        other_connections: int = 0,
        guard: Guard | None = None,
        certificate: CertificateSource | None = None,
    ) -> None:
        self.settings = settings
        self._access = None if guard is None else guard.access
        self._certificate = certificate
        self.metrics = metrics
        self.monotonic = clock.monotonic
        self._large_frames = LargeFrames(settings.wire_limits)
        self.answering = Answering(
            service, settings, metrics, clock, methods, budget, large_frames=self._large_frames, guard=guard
        )
        self.budget = self.answering.budget
        self._connections: dict[ThriftConnection, None] = {}
        self._silent: dict[ThriftConnection, None] = {}  # never sent a request, oldest first
        self._paused: dict[ThriftConnection, None] = {}  # not read: too many requests wait on them
        self._wrong_clients: set[tuple[str, str]] = set()  # address, manner
        self._stalled: dict[ThriftConnection, None] = {}  # with answers that the kernel doesn't accept, oldest first
        self._holders: dict[ThriftConnection, None] = {}  # with large requests perhaps, not yet in an operation
        self._fruitless: set[str] = set()  # addresses for which nothing could give way
        self._fruitless_until_s = 0.0
        self.max_connections = settings.max_connections
        self.held_bytes_min = held_bytes_min(self.budget.limit_bytes, settings.max_connections)
        self._max_refused = settings.max_connections_refused
        self._other_connections = other_connections
        self.standstill = standstill or Standstill(clock.monotonic, settings.standstill_s)
        self.standstill.listeners.append(self._stood_still)
        self._progress_timer: asyncio.TimerHandle | None = None
        self._refusing_until_s: float | None = None
        self._shared_port = shared_port
        self._server: asyncio.Server | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()
        self._empty.set()

    # --- life -------------------------------------------------------------------------------------------------------------
    @property
    def port(self) -> int:
        """The port it listens on; the settings' until it has started."""
        if self._server is None or not self._server.sockets:
            return self.settings.port
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._connections)

    async def start(self) -> None:
        """Listens. Raises `OSError` if it can't listen on the address."""
        loop = asyncio.get_running_loop()
        settings = self.settings
        possible = raise_file_limit(
            settings.max_connections + settings.max_connections_refused, self._other_connections
        )
        self._max_refused = min(settings.max_connections_refused, possible // 2)
        self.max_connections = min(settings.max_connections, possible - self._max_refused)
        if self.max_connections < settings.max_connections:
            logger.info(
                "the limit on open files lowers max_connections",
                extra={"max_connections": self.max_connections, "wanted": settings.max_connections},
            )
        self._server = await loop.create_server(
            self._new_connection(loop),
            self.settings.host,
            self.settings.port,
            backlog=self.settings.backlog,
            reuse_port=self._shared_port or None,
        )
        show_thrift(self.metrics, lambda: self.connections, self.answering, self.budget)
        if self._access is not None:
            show_quotas(self.metrics, self._access)
        self._schedule_sweep(loop)
        self.standstill.begin()
        self._note_progress(loop)

    def _new_connection(self, loop: asyncio.AbstractEventLoop) -> Callable[[], asyncio.Protocol]:
        """A handshake is a connection like any other: it counts against the same bounds."""
        if self._certificate is None:
            return lambda: ThriftConnection(self, loop)
        side = listening_side(
            self._certificate,
            "Thrift",
            self.metrics.count,
            plain_answer=_answer_without_tls,
            plain_is_cut_short=is_cut_short,
        )
        return lambda: TlsProtocol(ThriftConnection(self, loop), side)

    async def drain(self, grace_s: float) -> None:
        """Stops accepting, answers the requests that have arrived, closes; connections that are not done after `grace_s` are closed. May
        be called twice.

        The service answers waiting dequeues: tell it before or meanwhile.
        """
        if self._server is not None:
            self._server.close()
        if self._sweep is not None:
            self._sweep.cancel()
        try:
            async with asyncio.timeout(grace_s):
                await self._last_call()
                for connection in list(self._connections):
                    connection.drain()
                await self._empty.wait()
        except TimeoutError:
            logger.warning("drain cut short", extra={"connections": len(self._connections)})
        if self._progress_timer is not None:
            self._progress_timer.cancel()
        for connection in list(self._connections):
            connection.abort()
        await self._empty.wait()
        self._large_frames.close()

    async def _last_call(self) -> None:
        if self._connections:
            try:
                async with asyncio.timeout(LAST_CALL_S):
                    await self._empty.wait()
            except TimeoutError:
                return

    # --- called by connections --------------------------------------------------------------------------------------------
    def opened(self, connection: ThriftConnection) -> None:
        """Registers a connection. Over the bound it is refused with an error; far over it, the oldest silent one is closed."""
        count = len(self._connections)
        self._connections[connection] = None
        self._silent[connection] = None
        self._empty.clear()
        if self._refusing_until_s is not None:
            connection.abort()
            return
        if count < self.max_connections:
            return
        connection.over_limit = True
        self.metrics.count("thrift_connections_over_limit")
        if count >= self.max_connections + self._max_refused:
            oldest = next(iter(self._silent))
            del self._silent[oldest]
            oldest.abort()

    def wrong_client(self, host: str, manner: str) -> None:
        """Logs once for each address that a client there speaks another protocol than this port."""
        if (host, manner) in self._wrong_clients:
            return
        if len(self._wrong_clients) >= _WRONG_CLIENTS_MAX:
            self._wrong_clients.clear()
        self._wrong_clients.add((host, manner))
        logger.warning("a client has called the Thrift port %s", manner, extra={"peer": host})

    def spoke(self, connection: ThriftConnection) -> None:
        """A request arrived on it: its first, or one while it is over the limit."""
        self._silent.pop(connection, None)
        if connection.over_limit and len(self._connections) <= self.max_connections:
            connection.over_limit = False
        connection.silent = connection.over_limit

    def closed(self, connection: ThriftConnection) -> None:
        """Forgets a connection that has ended."""
        self._connections.pop(connection, None)
        self._silent.pop(connection, None)
        self._paused.pop(connection, None)
        self._stalled.pop(connection, None)
        self._holders.pop(connection, None)
        if not self._connections:
            self._empty.set()

    def reading_paused(self, connection: ThriftConnection) -> None:
        """Notes a connection that is not read: the sweep checks whether its peer is still there."""
        self._paused[connection] = None

    def reading_resumed(self, connection: ThriftConnection) -> None:
        """Notes that the connection is read again."""
        self._paused.pop(connection, None)

    def stalled(self, connection: ThriftConnection) -> None:
        """The kernel didn't accept all of its answers. If such answers use up the budget, the connections that have waited longest are
        closed."""
        self._stalled.setdefault(connection)
        while self.budget.exhausted and self._stalled:
            oldest = next(iter(self._stalled))
            del self._stalled[oldest]
            self.metrics.count("thrift_slow_readers_cut_for_memory")
            oldest.abort()

    def unstalled(self, connection: ThriftConnection) -> None:
        """The kernel has accepted all of its answers, or the connection is gone."""
        self._stalled.pop(connection, None)

    # --- requests that give way -------------------------------------------------------------------------------------------
    def holds(self, connection: ThriftConnection) -> None:
        """Notes a connection that holds many bytes of requests that have not begun."""
        self._holders[connection] = None

    def shed_for(self, asker: ThriftConnection) -> bool:
        """Sheds requests of others if the bytes in flight are used up; returns whether there is space again.

        First the bytes that are held too slowly, then those that callers hold beyond their share.
        """
        now_s, budget = self.monotonic(), self.budget
        if now_s > self._fruitless_until_s:
            self._fruitless.clear()
            self._fruitless_until_s = now_s + FRUITLESS_S
        if asker.host in self._fruitless:
            return False
        if not is_slow(asker, now_s):
            self._shed_slow(now_s, except_for=asker)
        if budget.free_bytes < 0:
            for holder in beyond_their_share(list(self._holders), asker, self._bytes_to_shed(), budget.limit_bytes):
                self._shed(holder)
                if holder.held_bytes >= self.held_bytes_min:  # many small requests: each alone frees nothing
                    holder.cut_for_memory()
        if budget.free_bytes < 0:
            self._fruitless.add(asker.host)
            ended_s = self.monotonic()
            self._fruitless_until_s = max(self._fruitless_until_s, ended_s + FRUITLESS_PAUSES * (ended_s - now_s))
        return budget.free_bytes >= 0

    def _shed_slow(self, now_s: float, except_for: ThriftConnection | None = None) -> None:
        self._holders = {each: None for each in self._holders if each.held_bytes}
        for holder in slow_ones(
            [each for each in self._holders if each is not except_for], now_s, self._bytes_to_shed()
        ):
            self._shed(holder)

    def _bytes_to_shed(self) -> int:
        return self.budget.limit_bytes // SHED_SHARE - self.budget.free_bytes

    def _shed(self, holder: ThriftConnection) -> None:
        holder.shed()
        if not holder.held_bytes:
            self._holders.pop(holder, None)

    # --- standstill -------------------------------------------------------------------------------------------------------
    def _note_progress(self, loop: asyncio.AbstractEventLoop) -> None:
        self.standstill.runs(self.monotonic())
        self._progress_timer = loop.call_later(
            min(PROGRESS_S_MAX, self.standstill.limit_s / 4), self._note_progress, loop
        )

    def _stood_still(self, seconds: float) -> None:
        """Closes all connections, including those that arrived meanwhile and were not accepted yet: they are accepted, and closed, in the
        next few turns."""
        self.metrics.count("thrift_standstills")
        logger.warning(
            "this server stood still; its connections are closed unread",
            extra={"seconds": round(seconds, 1), "connections": len(self._connections)},
        )
        refusing = self._refusing_until_s is not None
        self._refusing_until_s = self.monotonic() + REFUSING_S
        if not refusing:
            self._refuse_for(REFUSING_TURNS)
        for connection in list(self._connections):
            connection.abort()

    def _refuse_for(self, turns: int) -> None:
        """The system's own queue of connections is accepted at the loop's pace, so turns count as well as time."""
        if turns:
            asyncio.get_running_loop().call_soon(self._refuse_for, turns - 1)
        elif self._refusing_until_s is not None:
            left_s = self._refusing_until_s - self.monotonic()
            if left_s > 0:
                asyncio.get_running_loop().call_later(left_s, self._refuse_for, 1)
            else:
                self._refusing_until_s = None

    # --- sweeping ---------------------------------------------------------------------------------------------------------
    def _schedule_sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        shortest_s = min(self.settings.idle_timeout_s, self.settings.write_stall_timeout_s)
        self._sweep = loop.call_later(min(SWEEP_S_MAX, shortest_s / 4), self._sweep_and_go_on, loop)

    def _sweep_and_go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        self.sweep()
        self._schedule_sweep(loop)

    def sweep(self) -> None:
        """Closes connections that were idle or didn't read for too long, and checks those that are not read."""
        now_s = self.monotonic()
        settings = self.settings
        self._look_at_paused()
        if self.budget.scarce:
            self._cut_partial_frames(now_s)
            if self._bytes_to_shed() > 0:
                self._shed_slow(now_s)
        else:  # while memory is scarce, progress gives a slow reader no more time
            for connection in list(self._stalled):
                connection.look_at_progress(now_s)
        for connection in list(self._connections):
            reason = connection.overdue(now_s, settings.idle_timeout_s, settings.write_stall_timeout_s)
            if reason:
                self.metrics.count(reason)
                connection.abort()

    def _look_at_paused(self) -> None:
        """Asks the kernel, in one call for all of them, which peers are gone."""
        paused = {connection.fileno(): connection for connection in list(self._paused)}
        paused.pop(-1, None)
        if not paused:
            return
        poll = select.poll()
        for descriptor in paused:
            poll.register(descriptor, select.POLLRDHUP)
        events = dict(poll.poll(0))
        for descriptor, connection in paused.items():
            connection.look_at_peer(events.get(descriptor, 0))

    def _cut_partial_frames(self, now_s: float) -> None:
        for connection in list(self._connections):
            if connection.holds_old_frame(now_s - PARTIAL_FRAME_S_MAX):
                connection.cut_for_memory()


def _answer_without_tls(received: bytes) -> bytes | None:
    """The answer for a client without TLS on a port that has TLS; None for clients of other protocols than Thrift and HTTP."""
    return http_answer(THRIFT_PORT) if begins_http(received) else thrift_answer(received, TLS_PORT)
