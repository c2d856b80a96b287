"""Cuts of the simulated network: what passes between two hosts, and what does not."""

from __future__ import annotations

import asyncio
from random import Random
from typing import NamedTuple

import pytest

from pinlater.simulation.loop import Timeline, new_process
from pinlater.simulation.network import ConnectionEnd, Network

PORT = 1
LONG_S = 5.0  # more than any message takes


class Received(asyncio.Protocol):
    """Counts what came."""

    number = 0

    def data_received(self, data: bytes) -> None:
        self.number += len(data)


class Way(NamedTuple):
    """From one host to another, over a connection."""

    end: ConnectionEnd
    arrived: Received

    async def passes(self) -> bool:
        """Whether a byte arrives."""
        before = self.arrived.number
        self.end.write(b"x")
        await asyncio.sleep(LONG_S)
        return self.arrived.number == before + 1


class Hosts:
    """Two of them, with ways there and back."""

    def __init__(self) -> None:
        self.timeline = Timeline()
        self.network = Network(self.timeline, Random(1))
        self.here = new_process(self.timeline, "here", "here", self.network)
        self.there = new_process(self.timeline, "there", "there", self.network)

    async def connect(self) -> tuple[Way, Way]:
        """A way there, and the way back."""
        ends = Received(), Received()
        listener = self.network.listen(self.there, lambda: ends[1], "there", PORT)
        near, _ = await self.network.connect(self.here, lambda: ends[0], "there", PORT)
        listener.close()
        assert isinstance(near, ConnectionEnd)
        assert near.peer is not None
        await asyncio.sleep(LONG_S)
        return Way(near, ends[1]), Way(near.peer, ends[0])


@pytest.mark.parametrize(
    ("source", "to", "one_way", "passes"),
    [
        ("here", "there", False, [False, False]),
        ("there", "here", False, [False, False]),
        ("here", "there", True, [False, True]),
        ("there", "here", True, [True, False]),
    ],
)
def test_a_cut_stops_connections_both_ways_or_one_way(source: str, to: str, one_way: bool, passes: list[bool]) -> None:
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
