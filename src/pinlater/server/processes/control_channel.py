"""The messages between the supervisor and a server process.

The supervisor first sends a plan, then orders and asks. The process says hello when it serves, and answers.
"""

from __future__ import annotations

import pickle
import socket
from typing import Any, Literal, NamedTuple

import msgspec

from pinlater.server.config.settings import Settings
from pinlater.supervision.channel import LENGTH, Order, framed
from pinlater.version import __version__


class ProcessPlan(NamedTuple):
    """What a process is to be. `number` tells it from its siblings."""

    number: int
    settings: Settings


class StatusRequest(msgspec.Struct, frozen=True, tag="Ask"):
    """Parent to child: how are you, and with `numbers`, what have you counted since the start or in the last minute."""

    number: int
    numbers: Literal["none", "all", "last minute"]


class ServerHello(msgspec.Struct, frozen=True, tag="Hello"):
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


class StatusAnswer(msgspec.Struct, frozen=True, tag="Answer"):
    """Child to parent: to the ask of that number. `numbers` are `Numbers`, left packed until they are read."""

    number: int
    vitals: Vitals
    since_the_start: bool = False
    numbers: msgspec.Raw = msgspec.Raw(b"\xc0")


from_parent: msgspec.msgpack.Decoder[Order | StatusRequest] = msgspec.msgpack.Decoder(Order | StatusRequest)
from_child: msgspec.msgpack.Decoder[ServerHello | Failed | StatusAnswer] = msgspec.msgpack.Decoder(
    ServerHello | Failed | StatusAnswer
)


class OtherVersion(Exception):
    """The supervisor is of another version of this program than the process that it has started."""


def plan_frame(plan: ProcessPlan, version: str = __version__) -> bytes:
    """The first frame. Settings are values of ours with paths and secrets in them; pickled, no form for them has to be kept up."""
    return framed(version.encode() + b"\n" + pickle.dumps(plan))


def receive_plan(line: socket.socket) -> ProcessPlan:
    """Waits for the first frame. Raises EOFError if the parent is gone, `OtherVersion` if it means another program."""
    (length,) = LENGTH.unpack(_receive(line, LENGTH.size))
    version, _, pickled = _receive(line, length).partition(b"\n")
    if version.decode() != __version__:
        raise OtherVersion(
            f"the program is {__version__} now and was {version.decode()} when the supervisor started: restart the service"
        )
    plan: ProcessPlan = pickle.loads(pickled)  # noqa: S301 - from our own parent, over a socket that no other process holds
    return plan


def _receive(line: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = line.recv(count - len(found))
        if not more:
            raise EOFError("the supervisor is gone")
        found += more
    return found
