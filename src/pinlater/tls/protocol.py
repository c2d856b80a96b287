"""TLS between a protocol and its transport, on any event loop.

This does not use the event loops' own TLS, because its requirements differ: a connection belongs to its protocol from its first moment,
so that handshakes count against the bounds of connections; `get_write_buffer_size` counts all bytes that the kernel has not accepted, so
that an answer is known to be delivered or not (the loops' own omits encrypted bytes, and returns 0 with 50 MB unsent); one side may end
its direction and continue reading; each connection uses the certificate that is in force when it arrives; and a listener sees the first
bytes of a client that does not speak TLS.

Must never pass on a byte that was not decrypted, nor send one that was not encrypted, except `Listening.plain_answer`. Weakness: all
encryption happens on the event loop; at most `_CHUNK_BYTES` at a time for a peer that reads slowly.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, cast

_CHUNK_BYTES = 256 * 1024
_READ_BYTES = 16 * 1024  # the largest size of a record
_HANDSHAKE_RECORD = 0x16  # the first byte of a client that speaks TLS
HANDSHAKE_S = 10.0
_LAST_WORDS_S = 1.0


class NotTls(ConnectionError):
    """The peer does not speak TLS. `received`: its first bytes."""

    def __init__(self, received: bytes) -> None:
        super().__init__("the peer speaks no TLS")
        self.received = received


class ListeningSide(NamedTuple):
    """TLS on the side that accepts the connection. `context`: called for each connection. `failed`: called with the reason why a
    handshake failed, and the address of the peer. `plain_answer`: returns the answer for a peer without TLS, sent before the connection
    is closed, from its first bytes; `plain_is_cut_short`: whether it needs more of them."""

    context: Callable[[], ssl.SSLContext]
    failed: Callable[[Exception, object], None]
    plain_answer: Callable[[bytes], bytes | None] = lambda _: None
    handshake_s: float = HANDSHAKE_S
    plain_is_cut_short: Callable[[bytes], bool] = lambda _: False


class ConnectingSide(NamedTuple):
    """TLS on the side that connects. `server_name`: the name for which the certificate must be, as far as the context checks it."""

    context: ssl.SSLContext
    server_name: str | None


class TlsProtocol(asyncio.Transport, asyncio.Protocol):
    """The protocol of the event loop's transport, and the transport of `above`, to which it looks like that of a plain connection.

    On the listening side `above` gets its transport as soon as there is a connection; on the connecting side when the handshake is done
    (`wait_handshake`).
    """

    def __init__(self, above: asyncio.Protocol, side: ListeningSide | ConnectingSide) -> None:
        super().__init__()
        self._above = above
        self._side = side
        self._loop = asyncio.get_running_loop()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None  # made on demand: a silent connection costs little
        self._below: asyncio.Transport | None = None
        self._is_open = False  # the handshake is done
        self._told_above = False
        self._plain = b""  # the first bytes of a peer without TLS
        self._eof_told = False
        self._below_ended = False
        self._goodbye_said = False
        self._backlog: deque[memoryview] = deque()  # not encrypted yet
        self._backlog_bytes = 0
        self._eof_wanted = self._close_wanted = self._below_full = self._above_paused = False
        self._limits = (64 * 1024, 16 * 1024)
        self._reading = True
        self._closing = False
        self._deadline: asyncio.TimerHandle | None = None
        self._handshaken: asyncio.Future[None] = self._loop.create_future()
        self._error: Exception | None = None

    async def wait_handshake(self) -> None:
        """Returns when the handshake is done. Raises OSError with the reason of the library."""
        await asyncio.shield(self._handshaken)

    # --- called by the transport below ----------------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        below = self._below = cast("asyncio.Transport", transport)
        below.set_write_buffer_limits(high=0)
        if isinstance(self._side, ListeningSide):
            self._deadline = self._loop.call_later(self._side.handshake_s, self._too_slow)
            self._tell_above()
        else:
            self._begin()

    def data_received(self, data: bytes) -> None:
        if self._closing or self._eof_told:
            return  # after the peer's close message the library reads nothing more, and would keep the data
        if self._tls is None:
            if self._plain or data[0] != _HANDSHAKE_RECORD:
                self._found_plain(self._plain + data)
                return
            self._begin()
        self._incoming.write(data)
        if self._is_open or self._handshake():
            self._read()

    def eof_received(self) -> bool:
        self._below_ended = True
        if self._error is not None and self._below is not None:
            self._below.close()
        elif self._plain:
            self._fail(NotTls(self._plain))
        elif not self._is_open:
            self._fail(ConnectionResetError("the connection was closed during the TLS handshake"))
        else:
            self._read()
        return True  # it is closed here, once everything is encrypted and sent

    def connection_lost(self, exc: Exception | None) -> None:
        self._below = None
        self._closing = True
        self._stop_deadline()
        self._backlog.clear()
        self._backlog_bytes = 0
        if not self._handshaken.done():
            self._handshaken.set_exception(
                self._error or exc or ConnectionResetError("the connection was lost during the TLS handshake")
            )
            self._handshaken.exception()  # the listening side does not wait for it
        if self._told_above:
            self._above.connection_lost(exc or self._error)
        # It and the protocol above refer to each other. Until the garbage collector finds them, they keep no memory of the library.
        self._tls = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()

    def pause_writing(self) -> None:
        self._below_full = True

    def resume_writing(self) -> None:
        self._below_full = False
        self._pump()

    # --- the handshake ------------------------------------------------------------------------------------------------------
    def _begin(self) -> None:
        side, bios = self._side, (self._incoming, self._outgoing)
        if isinstance(side, ListeningSide):
            self._tls = side.context().wrap_bio(*bios, server_side=True)
            return
        try:
            self._tls = side.context.wrap_bio(*bios, server_hostname=side.server_name)
        except ValueError as error:  # a name that no server can have
            self._fail(OSError(f"{side.server_name!r} is no name of a server: {error}"))
            return
        self._handshake()

    def _handshake(self) -> bool:
        """Goes on with it. Returns whether it is done."""
        assert self._tls is not None  # noqa: S101 - for the type checker
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send()
            return False
        except ssl.SSLError as error:
            self._send()  # the alert that tells the peer the reason
            self._fail(error)
            return False
        self._is_open = True
        self._stop_deadline()
        self._send()
        if not self._handshaken.done():
            self._handshaken.set_result(None)
        if not self._told_above:
            self._tell_above()
        self._pump()
        return self._below is not None

    def _tell_above(self) -> None:
        self._told_above = True
        self._above.connection_made(self)

    def _found_plain(self, data: bytes) -> None:
        if isinstance(self._side, ListeningSide) and self._below is not None and not self._closing:
            if self._side.plain_is_cut_short(data):
                self._plain = data
                return
            answer = self._side.plain_answer(data)
            if answer:
                self._below.write(answer)
        self._fail(NotTls(data))

    def _too_slow(self) -> None:
        self._fail(TimeoutError("the TLS handshake took too long"), abort=True)

    def _fail(self, error: Exception, *, abort: bool = False) -> None:
        if self._closing:
            return
        self._error = error
        self._closing = True
        self._stop_deadline()
        if self._below is None:
            return
        if not isinstance(self._side, ListeningSide):
            self._below.close()
            return
        self._side.failed(error, self._below.get_extra_info("peername"))
        if abort or self._below_full or self._below_ended:
            self._below.abort()
        else:
            # Input that the peer has already sent is read briefly: closing before that would reset the connection, and lose the reason.
            self._below.write_eof()
            self._deadline = self._loop.call_later(_LAST_WORDS_S, self._below.abort)

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    # --- input --------------------------------------------------------------------------------------------------------------
    def _read(self) -> None:
        """Passes on all bytes that have arrived and can be decrypted, in one piece; then the end of the stream, if it has arrived."""
        if not self._reading or self._closing or self._tls is None:
            return
        pieces: list[bytes] = []
        ended, error = self._below_ended, None
        read = self._tls.read
        try:
            while piece := read(_READ_BYTES):
                pieces.append(piece)
            ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            ended = True
        except ssl.SSLError as found:
            error = found
        if pieces:
            self._above.data_received(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        self._send()  # answers of the layer itself, such as to an update of keys
        if error is not None:
            self._error = error
            self.abort()
        elif ended and not self._eof_told and not self._closing:
            self._eof_told = True
            if not self._above.eof_received():
                self.close()

    # --- output -------------------------------------------------------------------------------------------------------------
    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Encrypts and sends the data, or keeps it until the kernel has accepted the earlier data."""
        data = bytes(data)
        if not data or self._closing or self._eof_wanted:
            return
        if self._is_open and not self._backlog and not self._below_full and len(data) <= _CHUNK_BYTES:
            self._encrypt(data)
        else:
            self._backlog.append(memoryview(data))
            self._backlog_bytes += len(data)
            if self._is_open:
                self._pump()
        self._tell_flow()

    def _encrypt(self, data: bytes | memoryview) -> None:
        assert self._tls is not None  # noqa: S101 - for the type checker
        try:
            sent = self._tls.write(data)
            while sent < len(data):
                data = data[sent:]
                sent = self._tls.write(data)
        except ssl.SSLError:
            self.abort()
            return
        self._send()

    def _send(self) -> None:
        if self._outgoing.pending and self._below is not None:
            self._below.write(self._outgoing.read())

    def _pump(self) -> None:
        """Encrypts the waiting data, as far as the kernel accepts it; then ends the direction or the connection if that was requested."""
        while self._backlog and not self._below_full and self._below is not None:
            first = self._backlog[0]
            piece = first[:_CHUNK_BYTES]
            if len(first) > len(piece):
                self._backlog[0] = first[len(piece) :]
            else:
                self._backlog.popleft()
            self._backlog_bytes -= len(piece)
            self._encrypt(piece)
        if not self._backlog and self._below is not None and (self._eof_wanted or self._close_wanted):
            self._end_direction(self._below)
        self._tell_flow()

    def _tell_flow(self) -> None:
        unsent_bytes, (high, low) = self.get_write_buffer_size(), self._limits
        if not self._above_paused and unsent_bytes > high:
            self._above_paused = True
            self._above.pause_writing()
        elif self._above_paused and unsent_bytes <= low:
            self._above_paused = False
            self._above.resume_writing()

    def get_write_buffer_size(self) -> int:
        """Returns how many bytes the kernel has not accepted."""
        return self._backlog_bytes + (0 if self._below is None else self._below.get_write_buffer_size())

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        high = (64 * 1024 if low is None else 4 * low) if high is None else high
        self._limits = (high, high // 4 if low is None else low)

    # --- the end ------------------------------------------------------------------------------------------------------------
    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Ends the sending direction. Reading continues."""
        if self._closing or self._eof_wanted:
            return
        self._eof_wanted = True
        if self._is_open:
            self._pump()

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Closes it when all written data is sent."""
        if self._closing:
            return
        self._closing = self._close_wanted = True
        if self._is_open:
            self._pump()
        elif self._below is not None:
            self._below.close()

    def _end_direction(self, below: asyncio.Transport) -> None:
        if self._tls is not None and not self._goodbye_said:
            self._goodbye_said = True
            with contextlib.suppress(
                ssl.SSLError
            ):  # it would wait for the peer's close message; this side's is in the buffer
                self._tls.unwrap()
            self._send()
            if not self._close_wanted:
                below.write_eof()
        if self._close_wanted:
            below.close()

    def abort(self) -> None:
        """Closes the connection at once."""
        self._closing = True
        if self._below is not None:
            self._below.abort()

    # --- pausing and resuming reading -----------------------------------------------------------------------------------------
    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        """Pauses reading: nothing is passed on until `resume_reading`."""
        self._reading = False
        if self._below is not None and self._below.is_reading():
            self._below.pause_reading()

    def resume_reading(self) -> None:
        """Passes on the waiting data, in a turn of the event loop of its own."""
        if self._reading:
            return
        self._reading = True
        if self._below is not None and not self._below.is_closing() and not self._below.is_reading():
            self._below.resume_reading()
        self._loop.call_soon(self._read)

    # --- for the protocol above -----------------------------------------------------------------------------------------------
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Returns `ssl_object`, `sslcontext` and `peercert` once the handshake is done, and everything else from the transport below."""
        if name == "ssl_object":
            return self._tls or default
        if name == "sslcontext":
            return self._side.context() if isinstance(self._side, ListeningSide) else self._side.context
        if name == "peercert":
            return default if self._tls is None or not self._is_open else self._tls.getpeercert() or default
        return default if self._below is None else self._below.get_extra_info(name, default)
