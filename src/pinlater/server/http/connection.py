"""One HTTP/1.1 connection: h11 interprets the bytes, this loop reads, calls the handler and writes.

Every wait has an end: the head of a request, its body, its handler, each write. Whatever is malformed, too large or too slow ends this
connection and no other.

Weakness: a client that sends its request too slowly is cut off without an answer; an error answer sent while it is still
sending may be lost to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from email.utils import formatdate
from http import HTTPStatus
from typing import cast

import h11

from pinlater.server.http.messages import BadRequest, Request, Response, parse_request, text_response
from pinlater.server.http.settings import HttpSettings
from pinlater.wire.wrong_port import HTTP_PORT, begins_tls, is_cut_short, thrift_answer

log = logging.getLogger(__name__)

_READ_BYTES = 64 * 1024
_LAST_WORDS_S = 1.0
_SAFETY_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_ANSWERABLE = (h11.IDLE, h11.SEND_RESPONSE)


class _ThriftCall(Exception):
    """The client speaks Thrift; `answer` is an error in Thrift that says so."""

    def __init__(self, answer: bytes) -> None:
        super().__init__("a Thrift call on the HTTP port")
        self.answer = answer


class HttpConnection:
    """Serves one client until it leaves, misbehaves, or `finish` or `abort` ends it.

    `idle`: it waits for a request. `checks_only`: it came when all places were taken, and gets only the health checks.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        settings: HttpSettings,
        answer: Callable[[HttpConnection, Request], Awaitable[Response]],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._settings = settings
        self._answer = answer
        self._protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=settings.max_header_bytes)
        self._finishing = False
        self._head_only = False
        self._fresh = True  # nothing was read yet
        self._client_is_due = False
        self.idle = True
        self.checks_only = False

    @property
    def host(self) -> str:
        """The address of the client, without its port."""
        peer = self._writer.get_extra_info("peername")
        return str(peer[0]) if isinstance(peer, tuple) else str(peer)

    @property
    def has_certificate(self) -> bool:
        """Whether the client has proven that it has a certificate of a trusted authority."""
        return self._writer.get_extra_info("peercert") is not None

    @property
    def waits_for_client(self) -> bool:
        """Whether the connection waits for the client to send or to read, or delays a refusal: it may be closed for a new one."""
        return self.idle or self._client_is_due

    async def hold_back(self, seconds: float) -> None:
        """Delays the answer to a caller that is refused."""
        self._client_is_due = True
        try:
            await asyncio.sleep(seconds)
        finally:
            self._client_is_due = False

    def abort(self) -> None:
        """Ends it at once."""
        self._writer.transport.abort()

    def finish(self) -> None:
        """Ends the connection after the request under way, or at once if there is none."""
        self._finishing = True
        if self.idle:
            self.abort()

    async def serve(self) -> None:
        """Answers requests one after the other; returns when the connection is over, and never raises an error that a client caused."""
        timeout_s = self._settings.header_timeout_s
        try:
            while await self._serve_one(timeout_s):
                timeout_s = self._settings.idle_timeout_s
                # One pipelined request is answered in each turn of the loop, since reading them never waits.
                await asyncio.sleep(0)
            await self._close()
        except _ThriftCall as call:
            log.warning("a Thrift client has connected to the HTTP port")
            await self._answer_thrift(call.answer)
        except (OSError, TimeoutError, h11.LocalProtocolError) as error:
            log.debug("http connection ended", extra={"reason": repr(error)})
        finally:
            self.abort()

    async def _close(self) -> None:
        """Waits a bounded time until unsent data has been sent."""
        self._writer.close()
        async with asyncio.timeout(self._settings.write_timeout_s):
            await self._writer.wait_closed()

    async def _answer_thrift(self, answer: bytes) -> None:
        """Reads briefly what the client still sends: closing earlier would reset the connection, and lose the answer."""
        with contextlib.suppress(OSError, TimeoutError):
            self._writer.write(answer)
            if self._writer.can_write_eof():
                self._writer.write_eof()
                async with asyncio.timeout(_LAST_WORDS_S):
                    while await self._reader.read(_READ_BYTES):
                        pass
            await self._close()

    async def _serve_one(self, timeout_s: float) -> bool:
        """Serves one request. Returns whether another request may follow."""
        self.idle = True
        try:
            async with asyncio.timeout(timeout_s):
                event = await self._next_event()
            if not isinstance(event, h11.Request):
                return False
            self.idle = False
            self._head_only = event.method == b"HEAD"
            await self._skip_body(event)
            request = parse_request(event.method, event.target, list(event.headers))
        except BadRequest as error:
            return await self._refuse(str(error), error.status)
        except h11.RemoteProtocolError as error:
            return await self._refuse("Malformed or too large a request", error.error_status_hint)
        await self._send(await self._answer(self, request))
        if self._finishing or self._protocol.our_state is not h11.DONE or self._protocol.their_state is not h11.DONE:
            return False
        self._protocol.start_next_cycle()
        return True

    async def _next_event(self) -> h11.Event | type[h11.PAUSED]:
        while True:
            event = self._protocol.next_event()
            if event is not h11.NEED_DATA:
                return cast("h11.Event | type[h11.PAUSED]", event)
            data = await self._reader.read(_READ_BYTES)
            if self._fresh:
                self._fresh = False
                while is_cut_short(data) and (more := await self._reader.read(_READ_BYTES)):
                    data += more
                if begins_tls(data):
                    log.warning("a client with TLS has connected to the HTTP port, which has no TLS")
                answer = thrift_answer(data, HTTP_PORT)
                if answer is not None:
                    raise _ThriftCall(answer)
            self._protocol.receive_data(data)

    async def _skip_body(self, head: h11.Request) -> None:
        """Reads a body, which no page uses, to find the next request. Raises `BadRequest` for a body that is too long."""
        limit = self._settings.max_body_bytes
        names = {name for name, _ in head.headers}
        if b"content-length" in names and b"transfer-encoding" in names:
            # A proxy may see another end of it.
            raise BadRequest("A body has either Content-Length or Transfer-Encoding")
        declared = next((value for name, value in head.headers if name == b"content-length"), b"0")
        if int(declared) > limit:
            raise BadRequest(f"The body is longer than {limit} bytes", 413)
        found_bytes = 0
        async with self._client_is_next(self._settings.header_timeout_s):
            if self._protocol.they_are_waiting_for_100_continue:
                await self._write(h11.InformationalResponse(status_code=100, headers=[]))
                self._client_is_due = True
            while isinstance(event := await self._next_event(), h11.Data):
                found_bytes += len(event.data)
                if found_bytes > limit:
                    raise BadRequest(f"The body is longer than {limit} bytes", 413)

    async def _refuse(self, message: str, status: int) -> bool:
        if self._protocol.our_state in _ANSWERABLE:
            await self._send(text_response(message + "\n", status, {"Connection": "close"}))
        return False

    async def _send(self, response: Response) -> None:
        headers = {"Date": formatdate(usegmt=True), "Content-Type": response.content_type, **_SAFETY_HEADERS}
        headers.update(response.headers)
        if self._finishing:
            headers["Connection"] = "close"
        headers["Content-Length"] = str(len(response.body))
        reason = HTTPStatus(response.status).phrase
        await self._write(h11.Response(status_code=response.status, headers=list(headers.items()), reason=reason))
        if response.body and not self._head_only:
            await self._write(h11.Data(data=response.body))
        await self._write(h11.EndOfMessage())

    async def _write(self, event: h11.Event) -> None:
        data = self._protocol.send(event)
        if data:
            if self._writer.transport.is_closing():
                raise ConnectionResetError("the client is gone")
            self._writer.write(data)
            async with self._client_is_next(self._settings.write_timeout_s):
                await self._writer.drain()

    @asynccontextmanager
    async def _client_is_next(self, timeout_s: float) -> AsyncGenerator[None]:
        """A context in which the connection waits for the client, for at most `timeout_s`."""
        self._client_is_due = True
        try:
            async with asyncio.timeout(timeout_s):
                yield
        finally:
            self._client_is_due = False
