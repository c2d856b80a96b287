"""What servers say to each other, byte for byte: a server of another build must understand it.

`golden_frames.txt` has each frame of a conversation, for each version of the protocol: `>` from the server that asks, `<` from the one that
is asked. A change of it is a change of the protocol, which needs another version. `python -m tests.forwarding.test_golden_frames` writes
the file.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import pytest

from pinlater.domain.clock import ManualClock
from pinlater.domain.errors import QueueNotFound
from pinlater.domain.job import JobState, Outcome
from pinlater.domain.servers import ServerFacts
from pinlater.domain.workers import LostClaim, ServerWorkers, WorkerInfo, WorkerQueue, WorkerStatus
from pinlater.server.cluster.forwarding import handshake, messages
from pinlater.server.cluster.forwarding.forward_lane import ForwardLane
from pinlater.server.cluster.forwarding.messages import CallKind, Told, Wake
from pinlater.server.cluster.forwarding.peer_connection import PeerConnection
from pinlater.server.cluster.forwarding.peer_listener import PeerListener
from pinlater.server.cluster.forwarding.unconfirmed_claims import Lost
from pinlater.server.link.messages import LENGTH_BYTES
from pinlater.server.storage.values import Acked, ClaimRef, Inserted, JobAck, JobCheckpoint, JobKey
from tests.forwarding.two_servers import SECRET, claimed, request, until, wish

GOLDEN = Path(__file__).with_name("golden_frames.txt")
VERSIONS = range(messages.OLDEST_VERSION, messages.VERSION + 1)
KEY = JobKey("emails", 1, 2**40)
WORKER = WorkerStatus(
    "w",
    7,
    250,
    [WorkerQueue("q", 1, 2, 3, 4, 5, 6, 7)],
    30_000,
    WorkerInfo("python", "1.0", "höst", 2**40, 16, 3, 2**41),
    1_000,
    [LostClaim("q", "q:s1:p1:1", 5)],
)


class Tap:
    """Between the two servers: notes the frames of both directions, in the order in which they come."""

    def __init__(self, port: int) -> None:
        self.frames: list[str] = []
        self._port = port
        self._server: asyncio.Server | None = None

    async def open(self) -> int:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._port)
        async with asyncio.TaskGroup() as both:
            both.create_task(self._pass(">", reader, there_writer))
            both.create_task(self._pass("<", there_reader, writer))

    async def _pass(self, direction: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                length = await reader.readexactly(LENGTH_BYTES)
                message = await reader.readexactly(int.from_bytes(length, "big"))
                self.frames.append(f"{direction} {(length + message).hex()}")
                writer.write(length + message)
        writer.close()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()


def answers_to(kind: CallKind, items: Sequence[Any]) -> Sequence[Any]:
    """An answer of each kind; the first of several items fails."""
    if kind is CallKind.INSERT:
        found: list[Any] = [Inserted([job.id for job in item.jobs], {}, False) for item in items]
        return found if len(found) == 1 else [QueueNotFound.of("emails"), *found[1:]]
    if kind is CallKind.CLAIM:
        return [claimed(2**40, b"\x00body") for _ in items]
    if kind is CallKind.RELEASE:
        raise QueueNotFound.of("emails")
    return [Acked(Outcome.APPLIED, JobState.SUCCEEDED) for _ in items]


class Asked:
    """The answering server. `held`: its calls get no answer."""

    def __init__(self) -> None:
        self.calls = 0
        self.held: list[asyncio.Future[Sequence[Any]]] = []
        self.holds = False

    def carry_out(
        self, kind: CallKind, shard: str, items: Sequence[Any], begin_by_ms: int, sent_ms: int
    ) -> asyncio.Future[Sequence[Any]]:
        del shard, begin_by_ms, sent_ms
        self.calls += 1
        future: asyncio.Future[Sequence[Any]] = asyncio.get_running_loop().create_future()
        if self.holds:
            self.held.append(future)
            return future
        try:
            future.set_result(answers_to(kind, items))
        except QueueNotFound as error:
            future.set_exception(error)
        return future


async def knows(_: int) -> ServerWorkers:
    return ServerWorkers([WORKER], [], "owner", 2, 3, 4, 5)


async def refused(answer: asyncio.Future[Any]) -> None:
    with pytest.raises(QueueNotFound):
        await answer


@contextlib.asynccontextmanager
async def connected(tap: Tap, clock: ManualClock) -> AsyncIterator[PeerConnection]:
    port = await tap.open()
    link = PeerConnection(
        "127.0.0.1:2", "127.0.0.1:1", SECRET, clock, 60.0, lambda _: None, lost=[Lost(b"before".ljust(16), 3)]
    )
    async with asyncio.timeout(20):
        await asyncio.get_running_loop().create_connection(lambda: link, "127.0.0.1", port)
        await link.wait_ready()
        await until(lambda: link.waits is not None)
    try:
        yield link
    finally:
        link.abort()
        tap.close()


async def conversation() -> Sequence[str]:
    """Each kind of call and of message once."""
    clock, asked = ManualClock(), Asked()
    told = Told(
        ["2"], {"1": 7}, 3, "server", "host:9010", True, ServerFacts(), {"1": {4: 5}}, {"emails": 70}, 0.5, {"1": 0.25}
    )
    listener = PeerListener(
        asked.carry_out,
        lambda *_: None,
        lambda: [b"another", SECRET],
        told=lambda: told,
        monotonic=clock.monotonic,
    )
    listener.workers = knows
    wakes: list[Wake] = []
    listener.take_wakes = wakes.extend
    tap = Tap(await listener.open("127.0.0.1"))
    async with connected(tap, clock) as link:

        def lane(kind: CallKind) -> ForwardLane[Any, Any]:
            return ForwardLane(link, kind, "1")

        insert, finish = lane(CallKind.INSERT), lane(CallKind.FINISH)
        await insert.submit(request(1))
        clock.advance(seconds=1)
        one, two = insert.submit(request(2)), insert.submit(request(3, body=b"\xff" * 300))
        gone = insert.submit(request(4))
        gone.cancel()
        acked = finish.submit([JobAck(KEY, True, "token")])
        await refused(one)
        await asyncio.gather(two, acked)
        await lane(CallKind.CLAIM).submit(wish("token"))
        await lane(CallKind.EXTEND).submit([ClaimRef(KEY, "token")])
        await lane(CallKind.CHECKPOINT).submit([JobCheckpoint(KEY, "10.0.0.1", "token", b"half")])
        await refused(lane(CallKind.RELEASE).submit([ClaimRef(KEY, "token")]))
        link.look(ask_after_s=0.0, stall_s=60.0)
        await until(lambda: link.told is not None)
        link.tell_to_look()
        link.wake([Wake("emails", 2, False), Wake("other", 1, True)])
        await link.ask_workers(10)
        listener.tell_waits(1 << 255 | 5)
        await until(lambda: link.waits != 0)
        asked.holds = True
        left, stays = insert.submit(request(5)), insert.submit(request(6))
        await until(lambda: asked.held)
        left.cancel()
        link.look(ask_after_s=0.0, stall_s=60.0)
        await until(lambda: link._asked_s is None)
        listener.say_goodbye()
        await until(lambda: not link.usable)
        asked.held[0].set_result([Inserted([5], {}, False), Inserted([6], {}, False)])
        await stays
    await until(lambda: not listener.connections)
    listener.close()
    return tap.frames


def recorded(version: int) -> Sequence[str]:
    """The frames of a conversation in this version, with the same nonces each time."""
    nonces = iter([bytes([number]) * handshake.NONCE_BYTES for number in range(1, 3)])
    with (
        patch.object(handshake, "VERSION", version),
        patch.object(secrets, "token_bytes", lambda size: next(nonces)[:size]),
    ):
        return asyncio.run(conversation())


def golden() -> dict[int, list[str]]:
    """What the file has of each version."""
    found: dict[int, list[str]] = {}
    for line in GOLDEN.read_text().splitlines():
        if line.startswith("version "):
            found[int(line.removeprefix("version "))] = frames = cast("list[str]", [])
        else:
            frames.append(line)
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_what_servers_say_to_each_other_stays_as_it_is(version: int) -> None:
    assert recorded(version) == golden()[version]


if __name__ == "__main__":
    GOLDEN.write_text("".join(f"version {each}\n" + "\n".join(recorded(each)) + "\n" for each in VERSIONS))
    sys.exit(0)
