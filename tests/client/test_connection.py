"""One connection: whose answer is whose, and what a call learns when the stream can't be understood."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from pinlater.client._connection import ClientConnection, connect
from pinlater.client._servers import ServerAddress
from pinlater.client.errors import ConnectionLost
from pinlater.wire.codec import Decoder, encode_reply
from pinlater.wire.framing import FrameSplitter

Answer = Callable[[bytes], bytes]


class Peer:
    """Answers the frames it got when the test says so, as the test says."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._splitter = FrameSplitter(1 << 20)
        self.frames: list[bytes] = []

    async def wait_for(self, calls: int) -> None:
        while len(self.frames) < calls:
            self.frames += self._splitter.feed(await self._reader.read(65_536))

    def answer(self, frame: bytes, names: set[str]) -> None:
        call = Decoder().call(frame)
        self._writer.write(encode_reply(call.method, call.seqid, names))

    def send(self, data: bytes) -> None:
        self._writer.write(data)


@pytest.fixture
async def line() -> AsyncIterator[tuple[ClientConnection, Peer]]:
    """A connection and its other end."""
    accepted: asyncio.Future[Peer] = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(lambda r, w: accepted.set_result(Peer(r, w)), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    connection = await connect(ServerAddress(host, port), 1 << 20, 5)
    peer = await accepted
    yield connection, peer
    await connection.close()
    peer._writer.transport.abort()
    server.close()
    await server.wait_closed()


def ask(connection: ClientConnection) -> asyncio.Task[set[str]]:
    return asyncio.create_task(connection.call("getQueueNames", "test", ()))


async def test_an_answer_that_is_none_ends_its_own_call_too(line: tuple[ClientConnection, Peer]) -> None:
    """At once, and not at its deadline."""
    connection, peer = line
    calls = [ask(connection), ask(connection)]
    await peer.wait_for(2)
    peer.send(b"\x00\x00\x00\x04\xff\xff\xff\xff")
    async with asyncio.timeout(30):
        results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(result) for result in results] == [ConnectionLost, ConnectionLost]
    assert not connection.usable


async def test_a_call_given_up_leaves_its_place_in_line(line: tuple[ClientConnection, Peer]) -> None:
    """Its answer is dropped; the next answer goes to the next call."""
    connection, peer = line
    given_up, kept = ask(connection), ask(connection)
    await peer.wait_for(2)
    given_up.cancel()
    await asyncio.wait([given_up])
    peer.answer(peer.frames[0], {"first"})
    peer.answer(peer.frames[1], {"second"})
    async with asyncio.timeout(30):
        assert await kept == {"second"}


async def test_a_retired_connection_closes_when_its_last_call_is_given_up(
    line: tuple[ClientConnection, Peer],
) -> None:
    """The server may never answer that call."""
    connection, peer = line
    call = ask(connection)
    await peer.wait_for(1)
    connection.retire()
    call.cancel()
    async with asyncio.timeout(30):
        assert await peer._reader.read() == b""


async def test_an_answer_out_of_order_fails_all_calls_of_the_connection(line: tuple[ClientConnection, Peer]) -> None:
    connection, peer = line
    calls = [ask(connection), ask(connection)]
    await peer.wait_for(2)
    peer.answer(peer.frames[1], {"second"})
    async with asyncio.timeout(30):
        results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(result) for result in results] == [ConnectionLost, ConnectionLost]


async def test_an_answer_can_be_looked_at_before_the_loop_has_read_it(line: tuple[ClientConnection, Peer]) -> None:
    """No step of this loop comes between; the caller gets it all the same."""
    connection, peer = line
    assert connection.unread() is None
    call = ask(connection)
    await peer.wait_for(1)
    assert connection.unread() is None
    peer.answer(peer.frames[0], {"a"})
    assert connection.unread() == {"a"}
    assert connection.unread() == {"a"}
    assert not call.done()
    assert await call == {"a"}


async def test_half_an_answer_is_none_yet_whether_it_was_read_or_not(line: tuple[ClientConnection, Peer]) -> None:
    connection, peer = line
    call = ask(connection)
    await peer.wait_for(1)
    request = Decoder().call(peer.frames[0])
    names = {f"queue_{n}" for n in range(9_000)}  # more than is looked at in one go
    whole = encode_reply(request.method, request.seqid, names)
    peer.send(whole[:10])
    assert connection.unread() is None
    while not connection._frames.buffered:
        await asyncio.sleep(0.001)
    peer.send(whole[10:])
    assert connection.unread() == names
    assert await call == names


async def test_an_answer_that_was_read_but_not_handed_out_is_seen_too(line: tuple[ClientConnection, Peer]) -> None:
    connection, peer = line
    call = ask(connection)
    await peer.wait_for(1)
    request = Decoder().call(peer.frames[0])
    connection.data_received(encode_reply(request.method, request.seqid, {"a"}))
    assert connection.unread() == {"a"}
    assert not call.done()
    assert await call == {"a"}


async def test_unread_gives_nothing_after_an_invalid_answer_or_a_lost_connection(
    line: tuple[ClientConnection, Peer],
) -> None:
    connection, peer = line
    call = ask(connection)
    await peer.wait_for(1)
    peer.send(b"\x00\x00\x00\x04oops")
    assert connection.unread() is None
    with pytest.raises(ConnectionLost):
        await call
    assert connection.unread() is None
