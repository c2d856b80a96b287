"""The messages between the supervisor and a server process.

The supervisor first sends a plan, then orders and requests for status. The process sends a hello when it serves, and answers the requests.
"""

from __future__ import annotations

import pickle
import socket
from typing import Any, Literal, NamedTuple

import msgspec

from pinlater.server.config.settings import Settings
from pinlater.server.main.socket_folder import SocketFolder
from pinlater.supervision.channel import LENGTH, SupervisorOrder, framed
from pinlater.version import __version__


class ProcessPlan(NamedTuple):
    """The settings of a process. `number` distinguishes it from the other processes of its supervisor; `sockets`: where these reach each
    other."""

    number: int
    settings: Settings
    sockets: SocketFolder


class StatusRequest(msgspec.Struct, frozen=True, tag="Ask"):
    """Parent to child: a request for the status, and with `numbers` for the counts since the start or of the last minute."""

    number: int
    numbers: Literal["none", "all", "last minute"]


class ServerHello(msgspec.Struct, frozen=True, tag="Hello"):
    """Child to parent: the process serves."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """Child to parent: the process can't start or continue, with the reason."""

    reason: str


class Vitals(msgspec.Struct, frozen=True):
    """The status of a process. `garbage`: the statistics of the interpreter's garbage collector, by generation."""

    ready: bool
    reasons: list[str]
    info: dict[str, Any]
    requests: int
    connections: int
    garbage: list[dict[str, int]]


class StatusAnswer(msgspec.Struct, frozen=True, tag="Answer"):
    """Child to parent: the answer to the request of that number. `numbers`: `Numbers`, left packed until they are read."""

    number: int
    vitals: Vitals
    since_the_start: bool = False
    numbers: msgspec.Raw = msgspec.Raw(b"\xc0")


from_parent: msgspec.msgpack.Decoder[SupervisorOrder | StatusRequest] = msgspec.msgpack.Decoder(
    SupervisorOrder | StatusRequest
)
from_child: msgspec.msgpack.Decoder[ServerHello | Failed | StatusAnswer] = msgspec.msgpack.Decoder(
    ServerHello | Failed | StatusAnswer
)


class OtherVersion(Exception):
    """The supervisor and the process that it has started run different versions of this program."""


def plan_frame(plan: ProcessPlan, version: str = __version__) -> bytes:
    """Returns the first frame. Settings are our own values with paths and secrets in them; pickled, they need no format of their own."""
    return framed(version.encode() + b"\n" + pickle.dumps(plan))


def receive_plan(channel: socket.socket) -> ProcessPlan:
    """Waits for the first frame. Raises EOFError if the parent is gone, `OtherVersion` if it runs another version."""
    (length,) = LENGTH.unpack(_receive(channel, LENGTH.size))
    version, _, pickled = _receive(channel, length).partition(b"\n")
    if version.decode() != __version__:
        raise OtherVersion(
            f"the program is {__version__} now and was {version.decode()} when the supervisor started: restart the service"
        )
    plan: ProcessPlan = pickle.loads(pickled)  # noqa: S301 - from our own parent, over a socket that no other process holds
    return plan


def _receive(channel: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = channel.recv(count - len(found))
        if not more:
            raise EOFError("the supervisor is gone")
        found += more
    return found
