"""The line between the supervisor and one of its processes: a socket pair, which carries frames of a length and a message.

First the parent sends what to run. Then it orders and asks, and the child says hello once it serves, and answers. A line that breaks
means that the other end is gone, however it died; nothing else has to be watched. Only these two hold its ends.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
import struct
from typing import Any, Literal, NamedTuple

import msgspec

from pinlater.config.settings import Settings
from pinlater.version import __version__

FRAME_BYTES_MAX = 256 * 1024 * 1024
_LENGTH = struct.Struct("!I")


class Plan(NamedTuple):
    """What a process is to be. `number` tells it from its siblings."""

    number: int
    settings: Settings


class Order(msgspec.Struct, frozen=True, tag=True):
    """Parent to child: do this. A second `stop` is nothing new, in contrast to a second signal."""

    what: Literal["stop", "hurry", "reload"]


class Ask(msgspec.Struct, frozen=True, tag=True):
    """Parent to child: how are you, and with `numbers`, what have you counted since the start or in the last minute."""

    number: int
    numbers: Literal["none", "all", "last minute"]


class Hello(msgspec.Struct, frozen=True, tag=True):
    """Child to parent: I serve."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """Child to parent: I can't start, or go on, for this reason."""

    reason: str


class Vitals(msgspec.Struct, frozen=True):
    """How a process is. `garbage`: what the interpreter says of its collector, a generation each."""

    ready: bool
    reasons: list[str]
    info: dict[str, Any]
    requests: int
    connections: int
    garbage: list[dict[str, int]]


class Answer(msgspec.Struct, frozen=True, tag=True):
    """Child to parent: to the ask of that number. `numbers` are `Numbers`, left packed until somebody wants to read them."""

    number: int
    vitals: Vitals
    since_the_start: bool = False
    numbers: msgspec.Raw = msgspec.Raw(b"\xc0")


from_parent: msgspec.msgpack.Decoder[Order | Ask] = msgspec.msgpack.Decoder(Order | Ask)
from_child: msgspec.msgpack.Decoder[Hello | Failed | Answer] = msgspec.msgpack.Decoder(Hello | Failed | Answer)


def frame(message: Order | Ask | Hello | Failed | Answer) -> bytes:
    """The message as it goes over the line."""
    return framed(msgspec.msgpack.encode(message))


def framed(body: bytes) -> bytes:
    """With its length before it."""
    return _LENGTH.pack(len(body)) + body


async def read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """The next message's bytes; None at the end of the line."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > FRAME_BYTES_MAX:
            return None
        return await reader.readexactly(length)
    except (asyncio.IncompleteReadError, OSError):
        return None


class OtherVersion(Exception):
    """The supervisor is of another version of this program than the process that it has started."""


def plan_frame(plan: Plan, version: str = __version__) -> bytes:
    """The first frame. Settings are values of ours with paths and secrets in them; pickled, no form for them has to be kept up."""
    return framed(version.encode() + b"\n" + pickle.dumps(plan))


def receive_plan(line: socket.socket) -> Plan:
    """Waits for the first frame. Raises EOFError where the parent is gone, `OtherVersion` where it means another program."""
    (length,) = _LENGTH.unpack(_receive(line, _LENGTH.size))
    version, _, pickled = _receive(line, length).partition(b"\n")
    if version.decode() != __version__:
        raise OtherVersion(
            f"the program is {__version__} now and was {version.decode()} when the supervisor started: restart the service"
        )
    plan: Plan = pickle.loads(pickled)  # noqa: S301 - from our own parent, over a socket that nobody else holds
    return plan


def _receive(line: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = line.recv(count - len(found))
        if not more:
            raise EOFError("the supervisor is gone")
        found += more
    return found
