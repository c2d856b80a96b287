"""Plays steps against a server over its Thrift port, byte for byte."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from itertools import zip_longest

from tests.wire.golden.exchange import Scenario, ScenarioStep
from tests.wire.golden.message import Part, leaves, read_message
from tests.wire.golden.servers import GoldenServer, start_server

_DEADLINE_S = 30.0
_LENGTH_BYTES = 4
# What is masked, in the recorded answer and in the one that comes: only what the next release changes.
_MASKED = {("getServerInfo", "version"): b"VERSION"}


class Player:
    """Plays steps on connections to one server."""

    def __init__(self, server: GoldenServer) -> None:
        self.server = server
        self._connections: dict[str, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}

    async def _connection(self, name: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if name not in self._connections:
            self._connections[name] = await asyncio.open_connection("127.0.0.1", self.server.port, limit=2**26)
        return self._connections[name]

    async def send(self, connection: str, data: bytes) -> None:
        """Sends bytes as they are."""
        _, writer = await self._connection(connection)
        writer.write(data)

    async def receive(self, connection: str) -> bytes:
        """Returns the next answer, without its length. Raises IncompleteReadError if the server closes instead."""
        reader, _ = await self._connection(connection)
        async with asyncio.timeout(_DEADLINE_S):
            size = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
            return await reader.readexactly(size)

    async def rest(self, connection: str) -> bytes:
        """Returns all that comes until the server closes the connection, which it does after its client has."""
        reader, writer = await self._connection(connection)
        async with asyncio.timeout(_DEADLINE_S):
            try:
                return await reader.read()
            except ConnectionResetError:
                return b""
            finally:
                writer.close()
                del self._connections[connection]

    async def play(self, step: ScenarioStep) -> bytes:
        """Does what the step says; returns what came, of an answer or the end of a connection."""
        match step.kind:
            case "do":
                await self.server.do(step.name)
            case "call" | "send":
                await self.send(step.connection, len(step.data).to_bytes(_LENGTH_BYTES, "big") + step.data)
            case "raw":
                await self.send(step.connection, step.data)
            case "answer":
                return settled(await self.receive(step.connection))
            case "closed":
                return await self.rest(step.connection)
            case _:
                raise ValueError(f"line {step.line}: {step.kind}")
        return b""

    async def finish(self) -> None:
        """Ends all connections. An answer that no step has asked for is an error."""
        for name, (_, writer) in list(self._connections.items()):
            with suppress(OSError):
                writer.write_eof()
            assert await self.rest(name) == b"", f"an answer that no step asks for, on connection {name!r}"

    def close(self) -> None:
        """Closes what an error has left open."""
        for _, writer in self._connections.values():
            writer.close()


@asynccontextmanager
async def player(server: str) -> AsyncIterator[Player]:
    """Starts a server of that kind, and stops it."""
    async with start_server(server) as started:
        playing = Player(started)
        try:
            yield playing
        finally:
            playing.close()


async def replay(scenario: Scenario) -> list[str]:
    """Plays a scenario; returns the differences for people, a text for each answer that is another one."""
    differences = []
    async with player(scenario.server) as playing:
        asked = ScenarioStep("")
        for step in scenario.steps:
            if step.data and step.kind != "answer":
                asked = step
            came = await playing.play(step)
            if came != settled(step.data) and step.kind in ("answer", "closed"):
                where = f"{scenario.name}.txt:{step.line}: the answer to {asked.name or asked.kind} ({asked.note or 'no note'})"
                differences.append(_difference(where, settled(step.data), came))
        await playing.finish()
    return differences


def request_differences(recorded: Scenario, sent: Scenario) -> list[str]:
    """The differences between requests, for people."""
    differences = []
    for step, now in zip_longest(recorded.steps, sent.steps, fillvalue=ScenarioStep("")):
        if (step.head, step.data) != (now.head, now.data):
            where = f"{recorded.name}.txt:{step.line}: {now.head} instead of {step.head}"
            differences.append(
                _difference(where.replace(f"{now.head} instead of {now.head}", now.head), step.data, now.data)
            )
    return differences


def _difference(where: str, recorded: bytes, came: bytes) -> str:
    before, now = list(leaves(read_message(recorded))), list(leaves(read_message(came)))
    diff = difflib.unified_diff(before, now, "recorded", "now", n=1, lineterm="")
    return "\n".join([where, *(f"  {line}" for line in diff)])


def settled(data: bytes) -> bytes:
    """The message with what may differ without a change of the contract set to one value: masked fields, and the order of a set."""
    message = read_message(data)
    changed = _settled(message, message.name)
    return data if changed == message else changed.data


def _settled(part: Part, method: str) -> Part:
    masked = _MASKED.get((method, part.name))
    if masked is not None:
        return replace(part, head=part.head[:3] + len(masked).to_bytes(4, "big") + masked)
    children = tuple(_settled(child, method) for child in part.children)
    if part.type.startswith("set<"):
        children = tuple(sorted(children, key=lambda child: child.data))
    return replace(part, children=children)
