"""Cuts of the simulated network: what passes between two hosts, and what does not."""

from __future__ import annotations

import asyncio
from random import Random
from typing import NamedTuple

import pytest

from pinlater.simulation.loop import ProcessLoop, Timeline, new_process
from pinlater.simulation.network import ConnectionEnd, DatagramEndpoint, Network

PORT = 1
LONG_S = 5.0  # more than any message takes


class Received(asyncio.Protocol, asyncio.DatagramProtocol):
    """Counts what came."""

    number = 0

    def data_received(self, data: bytes) -> None:
        self.number += len(data)

    def datagram_received(self, data: bytes, addr: object) -> None:
        self.number += len(data)


class Way(NamedTuple):
    """From one host to another: over a connection, and by datagrams."""

    end: ConnectionEnd
    arrived: Received
    socket: DatagramEndpoint
    to: tuple[str, int]
    datagrams: Received

    async def passes(self) -> bool:
        """Whether a byte and a datagram arrive."""
        before = self.arrived.number, self.datagrams.number
        self.end.write(b"x")
        self.socket.sendto(b"x", self.to)
        await asyncio.sleep(LONG_S)
        came = {self.arrived.number - before[0], self.datagrams.number - before[1]}
        assert len(came) == 1
        return came == {1}


class Hosts:
    """Two of them, with ways there and back."""

    def __init__(self) -> None:
        self.timeline = Timeline()
        self.network = Network(self.timeline, Random(1))
        self.here = new_process(self.timeline, "here", "here", self.network)
        self.there = new_process(self.timeline, "there", "there", self.network)

    def _socket(self, loop: ProcessLoop) -> tuple[DatagramEndpoint, Received]:
        received = Received()
        return self.network.open_datagrams(loop, lambda: received, (loop.host, PORT))[0], received

    async def connect(self) -> tuple[Way, Way]:
        """A way there, and the way back."""
        ends = Received(), Received()
        listener = self.network.listen(self.there, lambda: ends[1], "there", PORT)
        near, _ = await self.network.connect(self.here, lambda: ends[0], "there", PORT)
        listener.close()
        assert isinstance(near, ConnectionEnd)
        assert near.peer is not None
        (from_here, come_here), (from_there, come_there) = self._socket(self.here), self._socket(self.there)
        await asyncio.sleep(LONG_S)
        there = Way(near, ends[1], from_here, ("there", PORT), come_there)
        return there, Way(near.peer, ends[0], from_there, ("here", PORT), come_here)


@pytest.mark.parametrize(
    ("source", "to", "one_way", "passes"),
    [
        ("here", "there", False, [False, False]),
        ("there", "here", False, [False, False]),
        ("here", "there", True, [False, True]),
        ("there", "here", True, [True, False]),
    ],
)
def test_a_cut_stops_connections_and_datagrams_both_ways_or_one_way(
    source: str, to: str, one_way: bool, passes: list[bool]
) -> None:
    hosts = Hosts()

    async def work() -> None:
        ways = await hosts.connect()
        assert [await way.passes() for way in ways] == [True, True]
        hosts.network.cut(source, to, one_way=one_way)
        assert [await way.passes() for way in ways] == passes
        connecting = asyncio.ensure_future(hosts.connect())
        await asyncio.sleep(LONG_S)
        assert not connecting.done()
        hosts.network.heal("here", "there")
        assert [await way.passes() for way in await connecting] == [True, True]

    try:
        assert hosts.timeline.run(work(), hosts.here, until_s=hosts.timeline.now_s + 1_000.0)
    finally:
        hosts.timeline.end()
