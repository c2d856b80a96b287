"""A Thrift server for tests that does what the test says: each method is a function of the call's arguments."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from pinlater.wire.codec import Decoder, encode_application_error, encode_exception, encode_reply
from pinlater.wire.errors import ApplicationErrorKind, WireError
from pinlater.wire.framing import FrameSplitter
from tests import structs as ttypes
from tests.databases.ports import free_port

Method = Callable[[Any], Any]


class FakeServer:
    """Answers calls in order. A method may raise a PinLaterException, be a coroutine, or return `FakeServer.HANG_UP`."""

    HANG_UP = object()

    def __init__(self, **methods: Method) -> None:
        self.methods = methods
        self.calls: list[tuple[str, Any]] = []
        self.connections = 0
        self.hung_up = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._port = free_port()  # it may come back on it
        self._writers: set[asyncio.StreamWriter] = set()
        self._readers: set[asyncio.StreamReader] = set()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)

    def stop_listening(self) -> None:
        """Refuses connections; those that are there stay."""
        if self._server is not None:
            self._server.close()

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            for _ in range(10):  # a connection that was accepted last has a writer some turns of the loop later
                await asyncio.sleep(0)
            for writer in self._writers:
                writer.transport.abort()
            await self._server.wait_closed()
            self._server = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def caller_has_hung_up(self) -> bool:
        """Whether a caller has said that it sends no more, on a connection that is still open."""
        return any(reader.at_eof() for reader in self._readers)

    def called(self, name: str) -> list[Any]:
        """The arguments of all calls of one method."""
        return [arguments for method, arguments in self.calls if method == name]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        self._readers.add(reader)
        splitter, decoder = FrameSplitter(1 << 24), Decoder()
        try:
            while data := await reader.read(65536):
                for frame in splitter.feed(data):
                    answer = await self._answer(decoder, frame)
                    if answer is None:
                        return
                    writer.write(answer)
        except ConnectionError:
            pass
        finally:
            self._writers.discard(writer)
            self._readers.discard(reader)
            self.hung_up.set()
            writer.transport.abort()

    async def _answer(self, decoder: Decoder, frame: bytes) -> bytes | None:
        try:
            call = decoder.call(frame)
        except WireError as error:
            return encode_application_error(error.name or b"", error.seqid, error.kind, error.message)
        self.calls.append((call.method.name, call.arguments))
        method = self.methods.get(call.method.name)
        if method is None:
            unknown = ApplicationErrorKind.UNKNOWN_METHOD
            return encode_application_error(call.method.wire_name, call.seqid, unknown, "Invalid method name")
        try:
            value = method(call.arguments)
            if inspect.isawaitable(value):
                value = await value
        except ttypes.PinLaterException as refused:
            return encode_exception(call.method, call.seqid, refused)
        return None if value is self.HANG_UP else encode_reply(call.method, call.seqid, value)
