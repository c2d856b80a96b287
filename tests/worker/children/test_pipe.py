"""The pipe to a child process: whole messages; a child that ends or pauses within a message never blocks the event loop."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pickle
import socket
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection

import pytest

from pinlater.worker._children.pipe import BrokenMessage, ChildPipe


class Ends:
    """A pipe whose child's end stays open, as a process that the child forked would hold it. `die` ends the child."""

    def __init__(self, stall_s: float) -> None:
        ours, self.theirs = multiprocessing.Pipe()
        gone, self._alive = os.pipe()
        self.pipe = ChildPipe(ours, gone, stall_s)
        self.raw = socket.socket(fileno=os.dup(self.theirs.fileno()))

    def die(self) -> None:
        os.close(self._alive)
        self._alive = -1

    def close(self) -> None:
        self.pipe.close()
        self.theirs.close()
        self.raw.close()
        if self._alive >= 0:
            self.die()


@pytest.fixture
def ends(request: pytest.FixtureRequest) -> Iterator[Ends]:
    ends = Ends(getattr(request, "param", 60.0))
    yield ends
    ends.close()


@pytest.mark.parametrize("size", [0, 1, 16_384, 16_385, 3_000_000])
async def test_messages_of_any_size_are_sent_and_received(ends: Ends, size: int) -> None:
    """As `multiprocessing` writes and reads them."""
    message = os.urandom(size)

    def child(theirs: Connection) -> None:
        theirs.send_bytes(theirs.recv_bytes())
        theirs.send(theirs.recv())

    thread = threading.Thread(target=child, args=(ends.theirs,))
    thread.start()
    async with asyncio.timeout(30):
        await ends.pipe.send(message)
        assert await ends.pipe.receive() == message
        await ends.pipe.send(pickle.dumps({"a": message}))
        assert pickle.loads(await ends.pipe.receive()) == {"a": message}
    thread.join()


@pytest.mark.parametrize("cut", [0, 1, 4, 5, 103])
async def test_a_child_that_dies_within_a_message_is_noticed_while_its_pipe_is_open(ends: Ends, cut: int) -> None:
    ends.raw.sendall((b"\x00\x00\x00\x64" + bytes(100))[:cut])
    receiving = asyncio.create_task(ends.pipe.receive())
    turns = 0
    while turns < 100:  # the loop goes on
        await asyncio.sleep(0)
        turns += 1
    assert not receiving.done()
    ends.die()
    async with asyncio.timeout(30):
        with pytest.raises(EOFError):
            await receiving


async def test_a_message_sent_before_the_child_died_is_received(ends: Ends) -> None:
    ends.theirs.send_bytes(b"last words")
    ends.die()
    assert await ends.pipe.receive() == b"last words"
    with pytest.raises(EOFError):
        await ends.pipe.receive()


async def test_a_send_fails_when_the_child_dies_without_reading(ends: Ends) -> None:
    sending = asyncio.create_task(ends.pipe.send(bytes(10_000_000)))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not sending.done()
    ends.die()
    async with asyncio.timeout(30):
        with pytest.raises(EOFError):
            await sending


@pytest.mark.parametrize("ends", [0.05], indirect=True)
async def test_a_child_that_pauses_within_a_message_is_given_up(ends: Ends) -> None:
    ends.raw.sendall(b"\x00\x00\x00\x64half")
    with pytest.raises(BrokenMessage, match="in the middle of a message"):
        await ends.pipe.receive()


@pytest.mark.parametrize("head", [b"\xff\xff\xff\xfe", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff" + b"\x7f" * 8])
async def test_an_invalid_message_length_is_refused_before_it_takes_memory(ends: Ends, head: bytes) -> None:
    ends.raw.sendall(head)
    with pytest.raises(BrokenMessage, match="not a message"):
        await ends.pipe.receive()


async def test_a_message_can_be_waited_for_again_after_the_wait_was_cancelled(ends: Ends) -> None:
    receiving = asyncio.create_task(ends.pipe.receive())
    await asyncio.sleep(0)
    receiving.cancel()
    await asyncio.wait([receiving])
    ends.theirs.send_bytes(b"later")
    assert await ends.pipe.receive() == b"later"
