"""One connection to one server: calls go out as they are made, answers come back in the same order.

Must never hand an answer to the wrong call: a call that gave up keeps its place in line until its answer has come, and an answer
whose sequence id is not the one expected ends the connection. Weakness: after a call that timed out the connection is retired,
since the server may still work on it; calls behind it on the same connection wait for it.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, cast

from pinlater.client._servers import ServerAddress
from pinlater.client._thrift import AnswerDecoder, FrameReader, WireError, encode_request
from pinlater.client._tls import TlsSource
from pinlater.client.errors import ConnectionLost, ServerUnreachable
from pinlater.tls.protocol import TlsProtocol
from pinlater.tls.reasons import is_refusal

_SEQUENCE_MAX = 2**31 - 1
_PEEK_BYTES, _PEEK_BYTES_MAX = 64 * 1024, 16 * 1024 * 1024


class Link(Protocol):
    """What a client needs of a connection. `ClientConnection` is the one over TCP; `pinlater.testing` has one that stays in the process."""

    @property
    def address(self) -> ServerAddress: ...

    @property
    def usable(self) -> bool: ...

    async def call(self, method: str, source: str, args: tuple[Any, ...], token: str = "") -> Any: ...

    def unread(self) -> Any: ...

    def retire(self) -> None: ...

    def hang_up(self) -> None: ...

    def abort(self) -> None: ...

    async def close(self) -> None: ...


# Makes a connection. Raises ServerUnreachable.
Connect = Callable[[ServerAddress], Awaitable[Link]]


class ClientConnection(asyncio.Protocol):
    """A connection that was made. `usable` says whether new calls may go over it."""

    def __init__(
        self,
        address: ServerAddress,
        loop: asyncio.AbstractEventLoop,
        max_frame_bytes: int,
        tls: TlsSource | None = None,
    ) -> None:
        self.address = address
        self._tls = tls
        self._loop = loop
        self._max_frame_bytes = max_frame_bytes
        self._frames = FrameReader(max_frame_bytes)
        self._decoder = AnswerDecoder(max_frame_bytes)
        self._waiting: deque[tuple[int, str, asyncio.Future[Any]]] = deque()
        self._transport: asyncio.Transport | None = None
        self._newest: tuple[int, str, asyncio.Future[Any]] | None = None
        self._sequence = 0
        self._retired = False
        self._lost: Exception | None = None
        self._gone = loop.create_future()
        self._writable = asyncio.Event()
        self._writable.set()

    @property
    def usable(self) -> bool:
        return self._lost is None and not self._retired

    async def call(self, method: str, source: str, args: tuple[Any, ...], token: str = "") -> Any:
        """Sends a call and waits for its answer. Raises the server's error, or ConnectionLost. Cancel it to give up."""
        if not self._writable.is_set():
            await self._writable.wait()
        if self._lost is not None or self._transport is None:
            raise self._lost_error()
        self._sequence = self._sequence % _SEQUENCE_MAX + 1
        future: asyncio.Future[Any] = self._loop.create_future()
        frame = encode_request(method, self._sequence, source, args, token)
        self._newest = (self._sequence, method, future)
        self._waiting.append(self._newest)
        self._transport.write(frame)
        try:
            return await future
        except asyncio.CancelledError:
            if self._retired:
                self._close_if_done()
            raise

    def unread(self) -> Any:
        """The answer to the newest call, if it has come and the event loop did not get to handing it out; else None.

        For another thread, while the loop is blocked: it looks and takes nothing away. Weakness: an answer is seen only when the
        system's buffer holds all of it, some hundred kilobytes at least, and never over TLS, where looking would decrypt it.
        """
        if self._newest is None or self._transport is None or self._tls is not None:
            return None
        sequence, method, future = self._newest
        if future.done():
            return None if future.cancelled() or future.exception() is not None else future.result()
        try:
            arrived = self._frames.buffered + _peeked(self._transport.get_extra_info("socket"))
            for frame in FrameReader(self._max_frame_bytes).feed(arrived):
                found, answer = AnswerDecoder(self._max_frame_bytes).decode(frame, method)
                if found == sequence and not isinstance(answer, Exception):
                    return answer
        except (OSError, WireError):  # nothing there, or not for us to say what it is
            return None
        return None

    def retire(self) -> None:
        """No new calls; closes once the calls under way are answered or given up."""
        self._retired = True
        self._close_if_done()

    def hang_up(self) -> None:
        """Tells the server that this client waits no longer. The server ends a call that still waits, and closes the connection.

        A call whose answer is on its way gets it.
        """
        self._retired = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write_eof()
        self._close_if_done()

    def abort(self) -> None:
        """Closes now; calls under way end with ConnectionLost."""
        self._retired = True
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """Closes now and waits until it is closed."""
        self.abort()
        await asyncio.shield(self._gone)

    def _lost_error(self) -> ConnectionLost | ServerUnreachable:
        if self._tls is not None and self._lost is not None and is_refusal(self._lost):  # so no call was executed
            refusal = self._tls.unreachable(self.address, self._lost)
            refusal.__cause__ = self._lost
            return refusal
        error = ConnectionLost(f"Connection to {self.address} lost before the answer came")
        error.__cause__ = self._lost
        return error

    def _close_if_done(self) -> None:
        if self._retired and self._transport is not None and all(future.done() for _, _, future in self._waiting):
            self._transport.abort()

    # --- asyncio.Protocol -------------------------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._frames.feed(data):
                self._take(frame)
        except WireError as error:
            self._lost = error
            self.abort()
        if self._retired:
            self._close_if_done()

    def _take(self, frame: bytes) -> None:
        if not self._waiting:
            raise WireError("an answer came that no call asked for")
        expected, method, future = self._waiting[
            0
        ]  # stays in line until its answer is understood, to be told if it is not
        sequence, answer = self._decoder.decode(frame, method)
        if sequence != expected:
            raise WireError(f"answer {sequence} came where {expected} was due")
        self._waiting.popleft()
        if future.done():
            return
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = self._lost or exc or ConnectionResetError("closed by the server")
        self._writable.set()
        for _, _, future in self._waiting:
            if not future.done():
                future.set_exception(self._lost_error())
        self._waiting.clear()
        if not self._gone.done():
            self._gone.set_result(None)


def _peeked(opened: Any) -> bytes:
    """What has arrived and was not read yet. Raises OSError if that is nothing."""
    with socket.socket(fileno=os.dup(-1 if opened is None else opened.fileno())) as ours:
        size = _PEEK_BYTES
        while True:
            data = ours.recv(size, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            if len(data) < size or size >= _PEEK_BYTES_MAX:
                return data
            size *= 4


def check_allowed(address: ServerAddress) -> None:
    """Does nothing; the pytest plugin puts a check of its own here. What that raises reaches the caller as it is."""


async def connect(
    address: ServerAddress, max_frame_bytes: int, timeout_s: float, tls: TlsSource | None = None
) -> ClientConnection:
    """A new connection. Raises ServerUnreachable, with what the system said as its cause."""
    check_allowed(address)
    loop = asyncio.get_running_loop()
    connection = ClientConnection(address, loop, max_frame_bytes, tls)
    layer = None if tls is None else TlsProtocol(connection, tls.side(address))
    try:
        async with asyncio.timeout(timeout_s):
            await loop.create_connection(lambda: layer or connection, address.host, address.port)
            if tls is not None and layer is not None:
                await _shake_hands(layer, tls, address)
    except (OSError, UnicodeError) as error:
        if layer is not None:
            layer.abort()
        raise unreachable(address, error, timeout_s) from error
    except BaseException:
        if layer is not None:
            layer.abort()
        raise
    return connection


async def _shake_hands(layer: TlsProtocol, tls: TlsSource, address: ServerAddress) -> None:
    try:
        await layer.wait_handshake()
    except OSError as error:
        raise tls.unreachable(address, error) from error


def unreachable(address: ServerAddress, error: OSError | UnicodeError, timeout_s: float) -> ServerUnreachable:
    """Why there is no connection, in words for people."""
    if isinstance(error, TimeoutError) and error.errno is None:
        return ServerUnreachable(f"Server {address} did not accept a connection within {timeout_s:g} s")
    number = getattr(error, "errno", None)  # asyncio puts its own words into strerror
    reason = os.strerror(number) if number and number > 0 else str(error) or type(error).__name__
    return ServerUnreachable(f"Server {address} can't be reached: {reason}")
