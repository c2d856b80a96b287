"""A proxy between client and server that can do what networks do: hang, break off."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Self


class Proxy:
    """Forwards to `target`. After `stall`, connections made so far forward nothing more, and neither side is told."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._server: asyncio.Server | None = None
        self._pumps: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.connections = 0
        self.stalls_new = False

    @property
    def address(self) -> str:
        assert self._server is not None
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def stall(self, *, new_too: bool = False) -> None:
        """Everything that is open forwards nothing from now on; with `new_too` nor does what is opened later."""
        for pump in self._pumps:
            pump.cancel()
        self.stalls_new = new_too

    def heal(self) -> None:
        """What is opened from now on forwards again."""
        self.stalls_new = False

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.stall()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        if self.stalls_new:
            return
        with contextlib.suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection(*self._target)
            self._writers.add(far_writer)
            for source, sink in ((reader, far_writer), (far_reader, writer)):
                pump = asyncio.create_task(_forward(source, sink))
                self._pumps.add(pump)
                pump.add_done_callback(self._pumps.discard)
            return
        writer.transport.abort()


async def _forward(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    sink.transport.abort()
