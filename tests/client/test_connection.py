"""One connection: whose answer is whose, and what a call learns when the stream can't be understood."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest

from pinlater.client import AsyncClient, Dequeued, errors
from pinlater.wire.codec import DecodedCall, Decoder, encode_reply
from pinlater.wire.framing import FrameSplitter
from pinlater.wire.generated import structs as types

NO_MESSAGE = b"\x00\x00\x00\x04\xff\xff\xff\xff"


class Peer:
    """A server that answers when the test says so, as the test says. It takes one connection after another."""

    def __init__(self) -> None:
        self.calls: list[DecodedCall] = []
        self.connections = 0
        self.closed = asyncio.Event()
        self._arrived = asyncio.Condition()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writer = writer
        splitter, decoder = FrameSplitter(1 << 20), Decoder()
        while data := await reader.read(65_536):
            async with self._arrived:
                self.calls += map(decoder.call, splitter.feed(data))
                self._arrived.notify_all()
        writer.close()
        self.closed.set()

    async def wait_for(self, calls: int) -> None:
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.calls) >= calls)

    def answer(self, number: int, value: Any) -> bytes:
        """The answer to one of the calls."""
        call = self.calls[number]
        return encode_reply(call.method, call.seqid, value)

    def send(self, data: bytes) -> None:
        self.writer.write(data)


class OneConnection(NamedTuple):
    """A client with one connection, and the other end of that."""

    client: AsyncClient
    peer: Peer

    def ask(self) -> asyncio.Task[list[str]]:
        return asyncio.create_task(self.client.queue_names())

    def poll(self) -> asyncio.Task[Dequeued]:
        return asyncio.create_task(self.client.dequeue("q", wait_ms=60_000))

    @property
    def unread(self) -> list[list[bytes]]:
        return [[job.body for job in dequeued.jobs] for dequeued in self.client.unread()]


@pytest.fixture
async def line() -> AsyncIterator[OneConnection]:
    peer = Peer()
    async with await asyncio.start_server(peer.serve, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()[:2]
        async with AsyncClient(f"{host}:{port}", connections=1, retries=0) as client, asyncio.timeout(30):
            yield OneConnection(client, peer)
        if peer.connections:
            await peer.closed.wait()


def dequeued(*bodies: bytes) -> types.DequeueResponse:
    return types.DequeueResponse(jobs={f"q:s1:p1:{number}": body for number, body in enumerate(bodies, 1)})


@pytest.mark.parametrize("answer", ["none", "out of order"])
async def test_an_answer_that_belongs_to_no_call_ends_all_calls_of_the_connection(
    line: OneConnection, answer: str
) -> None:
    """At once, and not at their deadline. The next call has another connection."""
    calls = [line.ask(), line.ask()]
    await line.peer.wait_for(2)
    line.peer.send(NO_MESSAGE if answer == "none" else line.peer.answer(1, {"second"}))
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(result) for result in results] == [errors.ConnectionLost] * 2
    after = line.ask()
    await line.peer.wait_for(3)
    line.peer.send(line.peer.answer(2, {"third"}))
    assert (await after, line.peer.connections) == (["third"], 2)


async def test_a_call_given_up_leaves_its_place_in_line(line: OneConnection) -> None:
    """Its answer is dropped; the next answer goes to the next call."""
    given_up, kept = line.ask(), line.ask()
    await line.peer.wait_for(2)
    given_up.cancel()
    await asyncio.wait([given_up])
    line.peer.send(line.peer.answer(0, {"first"}) + line.peer.answer(1, {"second"}))
    assert await kept == ["second"]


async def test_a_connection_closes_when_its_last_call_is_given_up(line: OneConnection) -> None:
    """The server may never answer that call."""
    call = line.ask()
    await line.peer.wait_for(1)
    call.cancel()
    await line.peer.closed.wait()


@pytest.mark.parametrize("turns", [0, 20], ids=["", "the loop has read the first part"])
async def test_half_an_answer_to_a_long_poll_is_none_yet(line: OneConnection, turns: int) -> None:
    body = b"x" * 100_000  # more than is looked at in one go
    poll = line.poll()
    await line.peer.wait_for(1)
    assert line.unread == []
    whole = line.peer.answer(0, dequeued(body))
    line.peer.send(whole[:10])
    for _ in range(turns):
        await asyncio.sleep(0)
    assert line.unread == []
    line.peer.send(whole[10:])
    assert line.unread == [[body]]
    assert [job.body for job in (await poll).jobs] == [body]


async def test_an_answer_is_seen_from_its_arrival_until_the_caller_has_it(line: OneConnection) -> None:
    """Before the loop has read it and after that. It is not taken away by a look."""
    poll = line.poll()
    await line.peer.wait_for(1)
    line.peer.send(line.peer.answer(0, dequeued(b"a")))
    looks = 0
    while not poll.done():
        assert line.unread == line.unread == [[b"a"]]
        looks += 1
        await asyncio.sleep(0)
    assert looks > 1
    assert [job.body for job in (await poll).jobs] == [b"a"]


async def test_unread_gives_nothing_after_an_invalid_answer_or_a_lost_connection(line: OneConnection) -> None:
    poll = line.poll()
    await line.peer.wait_for(1)
    line.peer.send(NO_MESSAGE)
    assert line.unread == []
    with pytest.raises(errors.ConnectionLost):
        await poll
    assert line.unread == []
