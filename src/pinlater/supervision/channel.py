"""The control channel between a supervisor and one process: a socket pair, which carries frames of a length and a MessagePack message.

If the channel breaks, the other end has died, however that happened. Only these two processes hold its ends.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Literal

import msgspec

FRAME_BYTES_MAX = 256 * 1024 * 1024
LENGTH = struct.Struct("!I")


class SupervisorOrder(msgspec.Struct, frozen=True, tag="Order"):
    """Supervisor to process. A second `stop` changes nothing; `stop now` skips the grace time; a server rereads its files at `reload`."""

    what: Literal["stop", "stop now", "reload"]


def frame(message: msgspec.Struct) -> bytes:
    return framed(msgspec.msgpack.encode(message))


def framed(body: bytes) -> bytes:
    return LENGTH.pack(len(body)) + body


async def read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """The next frame's body; None at the end of the channel."""
    try:
        (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
        if length > FRAME_BYTES_MAX:
            return None
        return await reader.readexactly(length)
    except (asyncio.IncompleteReadError, OSError):
        return None
