"""The messages of a console process to the server that runs it beside itself, over their control channel."""

from __future__ import annotations

import msgspec


class ConsoleServes(msgspec.Struct, frozen=True, tag=True):
    """The console serves at this address, a URL."""

    address: str


class ConsoleFailed(msgspec.Struct, frozen=True, tag=True):
    """The console can't start, for this reason."""

    reason: str


from_console: msgspec.msgpack.Decoder[ConsoleServes | ConsoleFailed] = msgspec.msgpack.Decoder(
    ConsoleServes | ConsoleFailed
)
