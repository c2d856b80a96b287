"""A real server on a real socket in front of fake operations, and a client that speaks frames."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
import uvloop

from pinlater.domain.clock import ManualClock, SystemClock
from pinlater.server.features.all import METHODS
from pinlater.server.operations.service import Service
from pinlater.server.telemetry.metrics import Metrics
from pinlater.server.thrift.connection import ThriftConnection
from pinlater.server.thrift.server import ThriftServer
from pinlater.server.thrift.settings import ThriftSettings
from pinlater.wire.codec import Decoder, Reply, encode_call
from pinlater.wire.generated import structs as types
from tests.thrift_server.fake_operations import FakeOperations

CONTEXT = types.RequestContext("worker-1", "request-1")
DEADLINE_S = 30.0


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Everything here holds on both loops."""
    del config, item
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


class Client:
    """One connection of a test."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, method: str, seqid: int = 1, **arguments: Any) -> None:
        """Sends a call, without waiting for anything."""
        self.writer.write(encode_call(method, seqid, context=CONTEXT, **arguments))

    async def receive(self) -> Reply:
        """The next reply."""
        async with asyncio.timeout(DEADLINE_S):
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            return Decoder().reply(await self.reader.readexactly(size))

    async def call(self, method: str, **arguments: Any) -> Reply:
        """Sends a call and returns its reply."""
        self.send(method, **arguments)
        return await self.receive()

    async def closed(self) -> bytes:
        """Waits until the server has closed; returns what came before."""
        async with asyncio.timeout(DEADLINE_S):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""

    def read_no_further(self) -> None:
        """From here on the client takes in only what `receive` asks for."""
        self.reader._limit = 1  # type: ignore[attr-defined]

    def close(self) -> None:
        self.writer.close()


class WatchedListener(ThriftServer):
    """A listener that keeps what its connections tell it.

    `opened_connections`: those that are open, the oldest first.
    `paused_connections`: those that are not read from.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.opened_connections: dict[ThriftConnection, None] = {}
        self.paused_connections: set[ThriftConnection] = set()

    def opened(self, connection: ThriftConnection) -> None:
        self.opened_connections[connection] = None
        super().opened(connection)

    def closed(self, connection: ThriftConnection) -> None:
        self.opened_connections.pop(connection, None)
        self.paused_connections.discard(connection)
        super().closed(connection)

    def reading_paused(self, connection: ThriftConnection) -> None:
        self.paused_connections.add(connection)
        super().reading_paused(connection)

    def reading_resumed(self, connection: ThriftConnection) -> None:
        self.paused_connections.discard(connection)
        super().reading_resumed(connection)


class ThriftServerUnderTest:
    """A server under test with all that belongs to it."""

    def __init__(self, settings: ThriftSettings, clock: SystemClock | ManualClock) -> None:
        self.operations = FakeOperations()
        self.metrics = Metrics()
        self.server = WatchedListener(cast(Service, self.operations), settings, self.metrics, clock, METHODS)
        self._clients: list[Client] = []

    async def connect(self, host: str = "127.0.0.1") -> Client:
        """A client at that address of this machine."""
        streams = await asyncio.open_connection("127.0.0.1", self.server.port, limit=2**25, local_addr=(host, 0))
        client = Client(*streams)
        self._clients.append(client)
        return client

    async def until(self, condition: Callable[[], object]) -> None:
        """Looks every other millisecond until the condition holds."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                moment = asyncio.Event()
                loop.call_later(0.002, moment.set)
                await moment.wait()

    def counted(self, name: str) -> int:
        """A counter's value."""
        return int(self.metrics.snapshot().counters.get(name, 0))

    async def close(self) -> None:
        for client in self._clients:
            client.close()
        await self.server.drain(0.2)


@pytest.fixture
async def start() -> AsyncIterator[Callable[..., Awaitable[ThriftServerUnderTest]]]:
    """Starts a server with settings changed by name; `clock=` may be given."""
    desks: list[ThriftServerUnderTest] = []

    async def start_one(clock: SystemClock | ManualClock | None = None, **changes: Any) -> ThriftServerUnderTest:
        if isinstance(clock, ManualClock):  # a clock that is turned looks like a server that stood still
            changes.setdefault("standstill_s", 1e9)
        desk = ThriftServerUnderTest(replace(ThriftSettings(port=0), **changes), clock or SystemClock())
        await desk.server.start()
        desks.append(desk)
        return desk

    yield start_one
    for desk in desks:
        await desk.close()


@pytest.fixture
async def desk(start: Callable[..., Awaitable[ThriftServerUnderTest]]) -> ThriftServerUnderTest:
    """A server with default settings."""
    return await start()
