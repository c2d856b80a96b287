"""The floor of any server: uvloop, frames split, one constant answer to each. `python -m bench.constant_stub` prints its port."""

from __future__ import annotations

import asyncio
import signal
from typing import cast

import uvloop

from bench import frames

_ANSWER = frames.enqueued("bench:s1:p1:100000000000000000")
_LENGTH = 4


class ConstantAnswers(asyncio.Protocol):
    """Answers each whole frame, all frames of a read with one write. Looks into none."""

    def __init__(self) -> None:
        self._unread = b""
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        data = self._unread + data if self._unread else data
        at, number, end = 0, 0, len(data)
        while end - at >= _LENGTH:
            behind = at + _LENGTH + int.from_bytes(data[at : at + _LENGTH], "big")
            if behind > end:
                break
            at, number = behind, number + 1
        self._unread = data[at:]
        if number and self._transport is not None:
            self._transport.write(_ANSWER * number)


async def serve() -> None:
    """Until SIGTERM."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(ConstantAnswers, "127.0.0.1", 0)
    print(f"ready thrift_port={server.sockets[0].getsockname()[1]}", flush=True)
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    server.close()


if __name__ == "__main__":
    uvloop.run(serve())
