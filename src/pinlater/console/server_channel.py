"""The console's end of the control channel to the server that runs it beside itself."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from typing import Literal

import msgspec

from pinlater.supervision.channel import SupervisorOrder, frame, read_frame
from pinlater.supervision.console_messages import ConsoleFailed, ConsoleServes

_orders: msgspec.msgpack.Decoder[SupervisorOrder] = msgspec.msgpack.Decoder(SupervisorOrder)


class ServerChannel:
    """`descriptor`: an open socket, which the server has given to this process."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._socket = socket.socket(fileno=descriptor)

    def failed(self, reason: str) -> None:
        """Tells the server why the console can't start. Instead of `obey`."""
        with contextlib.suppress(OSError):
            self._socket.sendall(frame(ConsoleFailed(reason)))

    async def obey(self, address: str, stop: Callable[[Literal["stop", "stop now"]], None]) -> None:
        """Tells the server that the console serves at this address, and calls `stop` each time the server asks for it, and when the server
        is gone.
        """
        self._socket.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=self._socket)
        try:
            writer.write(frame(ConsoleServes(address)))
            while (body := await read_frame(reader)) is not None:
                order = _orders.decode(body)
                if order.what != "reload":
                    stop(order.what)
            stop("stop")
        finally:
            writer.close()
