"""The parent's end of the pipe to a child process: sends and receives whole messages without blocking the event loop.

The child's end is a `multiprocessing` connection, which defines the framing: a length of four bytes, or minus one and eight bytes, then
the message. End of file does not show that the child has ended: a process that its task forked may hold the pipe open, perhaps with half
a message in it. A second descriptor becomes readable when the child ends.
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
# How long a child may pause in the middle of a message.
STALL_S = 60.0


class BrokenMessage(EOFError):
    """The child lives, but sends something that is not a message, or not a whole one."""


class ChildPipe:
    """Owns `gone`, a descriptor that is readable when the child has ended. For one sender and one receiver at a time."""

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
        """Closes both descriptors. A living child sees the end of its input."""
        self._socket.close()
        os.close(self._gone)

    async def send(self, message: bytes | memoryview) -> None:
        """Returns when the kernel has the message. Raises EOFError or OSError if the child has ended."""
        size = len(message)
        head = _SIZE.pack(size) if size <= _SIZE_MAX else _SIZE.pack(-1) + _LARGE_SIZE.pack(size)
        unsent = memoryview(head + bytes(message))
        while unsent:
            try:
                unsent = unsent[self._socket.send(unsent) :]
            except BlockingIOError:
                if self._is_gone():
                    raise EOFError from None
                await self._ready(to_write=True)

    async def receive(self) -> bytes:
        """The next message. Raises EOFError or OSError if the child has ended, `BrokenMessage` if it stops within a message."""
        await self._wait_for(1, None)
        (size,) = _SIZE.unpack(await self._take(_SIZE.size))
        if size == -1:
            (size,) = _LARGE_SIZE.unpack(await self._take(_LARGE_SIZE.size))
        if not 0 <= size <= _MESSAGE_BYTES_MAX:
            raise BrokenMessage(f"the process sent something that is not a message, of {size} bytes")
        return await self._take(size)

    async def _take(self, count: int) -> bytes:
        await self._wait_for(count, self._stall_s)
        taken = bytes(self._read[:count])
        del self._read[:count]
        return taken

    async def _wait_for(self, count: int, stall_s: float | None) -> None:
        """Returns when `count` bytes have been read."""
        while len(self._read) < count:
            came = self._read_some()
            if came is None and self._is_gone():
                came = self._read_some()  # written just before it ended
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
        """How many bytes came: None for none yet, 0 at the end of the pipe."""
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
