"""Connections between simulated processes.

Data of a connection arrives in order or not at all, as with TCP: it may come late, in pieces, after an answer has become useless, or the
connection may break, and either side learns of it at once, later, or never (half open).

Weakness: no window is ever full, so a writer is never told to pause.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from pinlater.simulation.loop import ProcessLoop, ProcessState, Timeline

Address = tuple[str, int]
_CONNECT_TIMEOUT_S = 75.0  # after which a kernel gives up on a silent host


class NetworkTrouble(NamedTuple):
    """Shares of messages. `slow_s`: the mean delay of a slow message; an ordinary one takes at most `latency_s`."""

    latency_s: float = 0.000_5
    slow: float = 0.0
    slow_s: float = 0.05
    split: float = 0.0  # arrives in two pieces
    reset: float = 0.0  # the connection breaks instead; both sides are told
    black_hole: float = 0.0  # this and all later data in that direction is lost, and neither side is told


CALM = NetworkTrouble()


class Network:
    """All connections of a simulation."""

    def __init__(self, timeline: Timeline, random: Random, calm: NetworkTrouble = CALM) -> None:
        self.timeline = timeline
        self.calm = calm
        self.trouble = calm
        # By the two hosts: the data that is held back.
        self._cut: dict[tuple[str, str], list[tuple[ConnectionEnd, Callable[[ConnectionEnd], None]]]] = {}
        self._distance_s: dict[tuple[str, str], float] = {}  # by the same
        self._random = random
        self._listeners: dict[Address, tuple[ProcessLoop, Callable[[], asyncio.Protocol]]] = {}
        self.connections: list[Connected] = []  # open ones
        self._ports = 20_000
        self.resets = 0

    # --- servers --------------------------------------------------------------------------------------------------------------

    def listen(
        self, loop: ProcessLoop, factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> SimulatedListener:
        """Starts to accept connections."""
        address = (host, port or self._port())
        if address in self._listeners and self._listeners[address][0].state is not ProcessState.DEAD:
            raise OSError(98, "Address already in use")
        self._listeners[address] = (loop, factory)
        return SimulatedListener(self, address)

    def close_listener(self, address: Address) -> None:
        """Stops accepting connections."""
        self._listeners.pop(address, None)

    # --- connections ----------------------------------------------------------------------------------------------------------

    async def connect(
        self, loop: ProcessLoop, factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """Connects as `loop.create_connection` does. Nothing answers across a cut, and a host without a listener refuses."""
        await asyncio.sleep(self.delay_s())
        while self.is_cut(loop.host, host) or self.is_cut(host, loop.host):
            await asyncio.sleep(_CONNECT_TIMEOUT_S)
        found = self._listeners.get((host, port))
        if found is None or found[0].state is ProcessState.DEAD:
            raise ConnectionRefusedError(111, "Connection refused")
        await asyncio.sleep(self.delay_s())
        there, make = found
        near = ConnectionEnd(self, loop, (loop.host, self._port()), (host, port))
        far = ConnectionEnd(self, there, (host, port), near.local)
        near.peer, far.peer = far, near
        self.connections.append(Connected(near, far))
        protocol = factory()
        near.protocol = protocol
        protocol.connection_made(near)
        there.call_soon(far.accept, make)
        return near, protocol

    def forget(self, end: ConnectionEnd) -> None:
        """The connection is over."""
        self.connections = [one for one in self.connections if end is not one.near and end is not one.far]

    def process_died(self, loop: ProcessLoop, *, told: bool) -> None:
        """Its kernel closes its connections, or, if the machine failed, does not."""
        for one in list(self.connections):
            for end in (one.near, one.far):
                if end.loop is loop and end.peer is not None:
                    if told:
                        end.say(lambda peer: peer.break_off(ConnectionResetError(104, "Connection reset by peer")))
                    end.black_hole = True

    # --- cuts -----------------------------------------------------------------------------------------------------------------

    def cut(self, one: str, other: str, *, one_way: bool = False) -> None:
        """From now on blocks all messages between the two hosts; or, one way, those from the first one to the other."""
        self._cut.setdefault((one, other), [])
        if not one_way:
            self._cut.setdefault((other, one), [])

    def heal(self, one: str, other: str) -> None:
        """Connects the two hosts again, both ways; the data that kernels have kept sending arrives."""
        for way in ((one, other), (other, one)):
            for end, what in self._cut.pop(way, ()):
                end.say(what)

    def heal_all(self) -> None:
        """Connects all hosts again."""
        for one, other in list(self._cut):
            self.heal(one, other)

    def is_cut(self, source: str, to: str) -> bool:
        """Returns whether messages from one host to another are blocked now."""
        return bool(self._cut) and (source, to) in self._cut

    def holds_back(self, end: ConnectionEnd, what: Callable[[ConnectionEnd], None]) -> bool:
        """Keeps data that is sent into a cut until that has healed; or loses it, as if the kernel gives up sooner."""
        held = self._cut[end.loop.host, end.remote[0]]
        if self._random.random() < 0.5:
            return False
        held.append((end, what))
        return True

    # --- delays ---------------------------------------------------------------------------------------------------------------

    def delay_s(self) -> float:
        """Returns how long one message takes."""
        random, trouble = self._random, self.trouble
        if trouble.slow and random.random() < trouble.slow:
            return random.expovariate(1 / trouble.slow_s)
        return trouble.latency_s * (0.2 + 0.8 * random.random())

    def move_apart(self, one: str, other: str, distance_s: float) -> None:
        """Adds this delay to each message between two hosts."""
        self._distance_s[one, other] = self._distance_s[other, one] = distance_s

    def distance_s(self, source: str, to: str) -> float:
        """Returns how much longer a message takes between these hosts."""
        return self._distance_s.get((source, to), 0.0)

    def befalls(self, share: float) -> bool:
        """Returns whether an event that happens to this share of messages happens to this one."""
        return share > 0 and self._random.random() < share

    def _port(self) -> int:
        self._ports += 1
        return self._ports


class SimulatedListener:
    """Replaces the server of an event loop and its socket, as far as they are used."""

    family = socket.AF_INET

    def __init__(self, network: Network, address: Address) -> None:
        self._network = network
        self._address = address

    @property
    def sockets(self) -> list[SimulatedListener]:
        return [self]

    def getsockname(self) -> Address:
        return self._address

    def close(self) -> None:
        self._network.close_listener(self._address)


class ConnectionEnd(asyncio.Transport):
    """One process's end of a connection."""

    def __init__(self, network: Network, loop: ProcessLoop, local: Address, remote: Address) -> None:
        super().__init__()
        self.loop = loop
        self.local = local
        self.remote = remote
        self.peer: ConnectionEnd | None = None
        self.protocol: asyncio.Protocol | None = None
        self.black_hole = False  # what is sent from here is lost
        self._network = network
        self._arrives_at_s = 0.0  # the newest that was sent
        self._reading = True
        self._unread: list[bytes] = []
        self._finished = False  # the peer sends no more
        self._closing = False
        self._over = False

    def accept(self, make: Callable[[], asyncio.Protocol]) -> None:
        """The listener's process accepts the connection."""
        self.protocol = make()
        self.protocol.connection_made(self)
        self._hand_over()

    # --- sending --------------------------------------------------------------------------------------------------------------

    def write(self, data: Any) -> None:
        if self._closing or self._over or not data:
            return
        network, trouble, peer = self._network, self._network.trouble, self.peer
        assert peer is not None
        if network.befalls(trouble.reset):
            network.resets += 1
            self.break_off(ConnectionResetError(104, "Connection reset by peer"))
            peer.break_off(ConnectionResetError(104, "Connection reset by peer"))
            return
        if network.befalls(trouble.black_hole):
            self.black_hole = True
        data = bytes(data)
        if len(data) > 1 and network.befalls(trouble.split):
            half = len(data) // 2
            self.say(lambda peer: peer.receive(data[:half]))
            self.say(lambda peer: peer.receive(data[half:]))
        else:
            self.say(lambda peer: peer.receive(data))

    def say(self, what: Callable[[ConnectionEnd], None]) -> None:
        """Happens at the other end after all earlier data."""
        network = self._network
        if not self.black_hole and network.is_cut(self.loop.host, self.remote[0]):
            self.black_hole = not network.holds_back(self, what)
            return
        if self.black_hole:
            return
        delay_s = network.delay_s() + network.distance_s(self.loop.host, self.remote[0])
        self._arrives_at_s = max(self._arrives_at_s + 0.000_001, network.timeline.now_s + delay_s)
        assert self.peer is not None
        self.peer.loop.call_at(self._arrives_at_s, what, self.peer)

    def write_eof(self) -> None:
        self.say(ConnectionEnd.finish)

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self.say(ConnectionEnd.finish)
            self.loop.call_soon(self._lost, None)

    def abort(self) -> None:
        if not self._over:
            self._closing = True
            self.say(lambda peer: peer.break_off(ConnectionResetError(104, "Connection reset by peer")))
            self.loop.call_soon(self._lost, None)

    # --- receiving ------------------------------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """The data has arrived on this machine."""
        if self._over:
            self.say(lambda peer: peer.break_off(BrokenPipeError(32, "Broken pipe")))
            return
        self._unread.append(data)
        self._hand_over()

    def finish(self) -> None:
        """Notes that the peer has stopped sending."""
        self._finished = True
        self._hand_over()

    def break_off(self, error: Exception) -> None:
        """The connection is broken, and this side knows."""
        if not self._over:
            self._closing = True
            self.loop.call_soon(self._lost, error)

    def _hand_over(self) -> None:
        while self._unread and self._reading and not self._closing and self.protocol is not None:
            data, self._unread = b"".join(self._unread), []
            self.protocol.data_received(data)
        if self._finished and not self._unread and self._reading and not self._closing and self.protocol is not None:
            self._finished = False
            if not self.protocol.eof_received():
                self.close()

    def _lost(self, error: Exception | None) -> None:
        if self._over:
            return
        self._over = True
        self._network.forget(self)
        if self.protocol is not None:
            self.protocol.connection_lost(error)

    # --- the rest of a transport ----------------------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self.loop.call_soon(self._hand_over)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Does nothing, since no window is ever full."""

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": self.remote, "sockname": self.local}.get(name, default)


class Connected(NamedTuple):
    """The two ends of a connection; the near one belongs to the process that made it."""

    near: ConnectionEnd
    far: ConnectionEnd
