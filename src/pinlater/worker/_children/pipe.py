"""The parent's end of the pipe to a child process: whole messages over a socket that never blocks the event loop.

The child's end is a `multiprocessing` connection, so messages are framed as that does it: a length of four bytes, or minus one and
eight bytes, then the message. The pipe's own end of file doesn't tell that the child is gone: what a handler forked holds it open, perhaps
with half a message in it. A descriptor that becomes readable as the child ends does.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import struct
from multiprocessing.connection import Connection

_SIZE, _LARGE_SIZE = struct.Struct("!i"), struct.Struct("!Q")
_SIZE_MAX = 0x7FFF_FFFF
_MESSAGE_BYTES_MAX = 256 * 1024 * 1024
_READ_BYTES = 256 * 1024
# For so long a child may pause in the middle of a message.
STALL_S = 60.0


class BrokenMessage(EOFError):
    """The child lives, but what it sends is no message, or does not come to its end."""


class ChildPipe:
    """Takes the descriptor `gone`, which is readable when the child has ended. For one sender and one receiver at a time."""

    def __init__(self, connection: Connection, gone: int, stall_s: float = STALL_S) -> None:
        self._socket = socket.socket(fileno=os.dup(connection.fileno()))
        connection.close()
        self._socket.setblocking(False)
        self._gone = gone
        self._gone_poll = select.poll()
        self._gone_poll.register(gone, select.POLLIN)
        self._stall_s = stall_s
        self._read = bytearray()

    def close(self) -> None:
        """Both descriptors. The child, if it lives, sees the end of its input."""
        self._socket.close()
        os.close(self._gone)

    async def send(self, message: bytes | memoryview) -> None:
        """Returns when the system has all of it. Raises EOFError or OSError where the child is gone."""
        size = len(message)
        head = _SIZE.pack(size) if size <= _SIZE_MAX else _SIZE.pack(-1) + _LARGE_SIZE.pack(size)
        left = memoryview(head + bytes(message))
        while left:
            try:
                left = left[self._socket.send(left) :]
            except BlockingIOError:
                if self._is_gone():
                    raise EOFError from None
                await self._ready(to_write=True)

    async def receive(self) -> bytes:
        """The next message. Raises EOFError or OSError where the child is gone, BrokenMessage where it does not go on."""
        await self._wait_for(1, None)
        (size,) = _SIZE.unpack(await self._take(_SIZE.size))
        if size == -1:
            (size,) = _LARGE_SIZE.unpack(await self._take(_LARGE_SIZE.size))
        if not 0 <= size <= _MESSAGE_BYTES_MAX:
            raise BrokenMessage(f"the process sent what is no message: one of {size} bytes")
        return await self._take(size)

    async def _take(self, count: int) -> bytes:
        await self._wait_for(count, self._stall_s)
        taken = bytes(self._read[:count])
        del self._read[:count]
        return taken

    async def _wait_for(self, count: int, stall_s: float | None) -> None:
        """Returns when so many bytes are there."""
        while len(self._read) < count:
            came = self._read_some()
            if came is None and self._is_gone():
                came = self._read_some()  # what it wrote at the very last
                if came is None:
                    raise EOFError
            if came == 0:
                raise EOFError
            if came is None:
                try:
                    async with asyncio.timeout(stall_s):
                        await self._ready(to_write=False)
                except TimeoutError:
                    raise BrokenMessage(f"the process stopped in the middle of a message, {stall_s:g} s ago") from None

    def _read_some(self) -> int | None:
        """How many bytes came: none yet, or 0 at the end of the pipe."""
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return None
        self._read += data
        return len(data)

    def _is_gone(self) -> bool:
        return bool(self._gone_poll.poll(0))

    async def _ready(self, *, to_write: bool) -> None:
        """Returns when the socket is ready, or the child has ended."""
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        if to_write:
            loop.add_writer(self._socket, _set, ready)
        else:
            loop.add_reader(self._socket, _set, ready)
        loop.add_reader(self._gone, _set, ready)
        try:
            await ready
        finally:
            loop.remove_reader(self._gone)
            loop.remove_writer(self._socket)
            loop.remove_reader(self._socket)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
