"""Two servers, one of which asks the other, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Raw

from pinlater.domain.clock import SystemClock
from pinlater.domain.job import HandedOutJob, Holder, UniqueKey, UniqueScope
from pinlater.server.cluster.forwarding import handshake
from pinlater.server.cluster.forwarding.forward_lane import ForwardLane
from pinlater.server.cluster.forwarding.messages import CallKind, Told
from pinlater.server.cluster.forwarding.peer_connection import PeerConnection
from pinlater.server.cluster.forwarding.peer_listener import PeerListener
from pinlater.server.cluster.forwarding.traffic import Traffic
from pinlater.server.cluster.forwarding.unconfirmed_claims import AnsweredClaims, Lost
from pinlater.server.link.messages import LENGTH_BYTES, encoded, frame
from pinlater.server.sharding.shards import ClaimRequest
from pinlater.server.storage.options import Options
from pinlater.server.storage.values import ClaimCall, Claimed, Inserted, InsertRequest, NewJob

SECRET = b"the secret of shard 1"


class Owner:
    """The answering server: keeps what it was asked, and answers as told."""

    def __init__(self) -> None:
        self.asked: list[tuple[CallKind, str, list[Any]]] = []
        self.answers: list[asyncio.Future[Sequence[Any]]] = []
        self.begin_by_ms: list[int] = []
        self.undelivered: list[Sequence[Any]] = []
        self.at_once = True
        self.unreachable: list[str] = []
        self.queue_changes = 0
        self.listener = PeerListener(
            self.carry_out,
            self.not_delivered,
            lambda: [b"another", SECRET],
            told=lambda: Told(self.unreachable, {}, self.queue_changes),
        )
        self.port = 0

    def carry_out(
        self, kind: CallKind, shard: str, items: Sequence[Any], begin_by_ms: int, sent_ms: int
    ) -> asyncio.Future[Sequence[Any]]:
        future: asyncio.Future[Sequence[Any]] = asyncio.get_running_loop().create_future()
        self.asked.append((kind, shard, list(items)))
        self.begin_by_ms.append(begin_by_ms)
        self.answers.append(future)
        if self.at_once:
            future.set_result([Inserted([job.id for job in item.jobs], {}, False) for item in items])
        return future

    def not_delivered(self, claims: AnsweredClaims) -> None:
        self.undelivered.append(claims.answers)


class Asker:
    """The asking server, with one connection.

    `transport`: of the connection; while a test pauses it, what the other server writes lies in the socket.
    `waits_changed`: is told when what the other server waits for has changed.
    """

    def __init__(self) -> None:
        self.traffic = Traffic()
        self.orphans: list[tuple[Any, Any]] = []
        self.changes = 0
        self.queue_changes = 0
        self.waits: list[int | None] = []
        self.waits_changed: Callable[[PeerConnection], None] = lambda link: self.waits.append(link.waits)
        self.link: PeerConnection
        self.transport: asyncio.Transport
        self.lanes: dict[str, ForwardLane[InsertRequest, Inserted]] = {}

    async def connect(self, owner: Owner, secret: bytes = SECRET, lost: Sequence[Lost] = ()) -> PeerConnection:
        self.link = PeerConnection(
            f"127.0.0.1:{owner.port}",
            "127.0.0.1:1",
            secret,
            SystemClock(),
            60.0,
            self.count_change,
            lambda connection: self.waits_changed(connection),
            self.traffic,
            lost,
            self.count_queue_change,
        )
        async with asyncio.timeout(20):
            self.transport, _ = await asyncio.get_running_loop().create_connection(
                lambda: self.link, "127.0.0.1", owner.port
            )
            await self.link.wait_ready()
        return self.link

    def count_change(self, connection: PeerConnection) -> None:
        del connection
        self.changes += 1

    def count_queue_change(self) -> None:
        self.queue_changes += 1

    def insert(self, request: InsertRequest, shard: str = "1") -> asyncio.Future[Inserted]:
        if shard not in self.lanes:
            self.lanes[shard] = ForwardLane(
                self.link,
                CallKind.INSERT,
                shard,
                orphaned=lambda item, result: self.orphans.append((item, result)),
            )
        return self.lanes[shard].submit(request)


def request(job_id: int, queue: str = "emails", body: bytes = b"x") -> InsertRequest:
    job = NewJob(job_id, body, 1, 5, 3, Options("", {"a": "b"}, UniqueKey("k", UniqueScope.TIME, 9)))
    return InsertRequest(queue, [job], "key", b"\x00\xff", max_backlog=4)


def wish(token: str) -> ClaimRequest:
    return ClaimRequest("emails", ClaimCall(1, Holder("worker", "10.0.0.1", token)), 60_000)


def claimed(job_id: int, body: bytes = b"body") -> Claimed:
    return Claimed([[HandedOutJob(job_id, 1, body, 3, 3, 1, None, 1, 1, 60_000)]])


def encoded_items(items: Sequence[object]) -> Raw:
    """The items of a part, or the value of a message."""
    return Raw(encoded(items))


async def read_message(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big"))


async def end_of(reader: asyncio.StreamReader) -> None:
    """Returns when the other side has ended the connection."""
    with contextlib.suppress(ConnectionError):
        while await reader.read(65_536):
            pass


async def until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)


async def proven(owner: Owner) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that the owner takes for that of a server."""
    reader, writer = await asyncio.open_connection("127.0.0.1", owner.port)
    asked = handshake.hello("127.0.0.1:1")
    writer.write(frame(asked))
    answered = handshake.decoded(await read_message(reader), handshake.Welcome)
    writer.write(frame(handshake.prove(asked, answered, SECRET)))
    await read_message(reader)
    return reader, writer
