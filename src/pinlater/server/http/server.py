"""The listener: accepts connections up to a bound, routes requests, and stops in order.

When the bound is reached, the server closes the oldest connection that waits for its client: it is idle, its request is incomplete, it
doesn't read its answer, or its refusal is delayed. So a thousand silent, slow or refused clients never keep a health check out. If all of
them are being answered, a few more are accepted for health checks only; beyond those the new one is closed.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

from pinlater.domain.errors import AccessDenied
from pinlater.server.access.control import AccessControl
from pinlater.server.http.access import check_access, permits_host, refusal
from pinlater.server.http.connection import HttpConnection
from pinlater.server.http.messages import BadRequest, Handler, Request, Response, text_response
from pinlater.server.http.settings import HttpSettings
from pinlater.server.http.status import StatusPages, StatusSource
from pinlater.server.telemetry.metrics import Metrics
from pinlater.server.telemetry.settings import QUEUE_SERIES_MAX
from pinlater.tls.certificate import CertificateSource
from pinlater.tls.listening import HTTPS_WANTED, listening_side
from pinlater.tls.protocol import TlsProtocol
from pinlater.wire.wrong_port import HTTP_PORT, is_cut_short, thrift_answer

log = logging.getLogger(__name__)

# Connections that are kept free for health checks, beyond the bound, and the cheap pages that are answered on them.
PLACES_FOR_CHECKS = 16
CHECKS = frozenset({"/healthz", "/readyz", "/health", "/ping", "/ping.txt"})
_BACKLOG = 1024  # with asyncio's 100, a burst of connections keeps health checks waiting for seconds


class HttpServer:
    """Serves the status pages: `pages` has them by path. `access`: None lets all callers see all pages; otherwise all pages but the
    health checks need a token. `certificate`: None serves without TLS; if clients need a certificate, too, health checks are answered
    without one."""

    def __init__(
        self,
        settings: HttpSettings,
        metrics: Metrics,
        source: StatusSource,
        *,
        queue_series_max: int = QUEUE_SERIES_MAX,
        access: AccessControl | None = None,
        certificate: CertificateSource | None = None,
    ) -> None:
        self._settings = settings
        self._certificate = certificate
        self._metrics = metrics
        self._access = access
        self._renderer = ThreadPoolExecutor(1, thread_name_prefix="http-render")
        self.pages: dict[str, Handler] = StatusPages(source, self._renderer, queue_series_max).by_path()
        self._connections: dict[HttpConnection, asyncio.Task[None]] = {}  # the one that was idle longest comes first
        self._tasks: set[asyncio.Task[None]] = set()  # including those that are about to end
        self._server: asyncio.Server | None = None
        self.port = settings.port

    async def start(self) -> None:
        """Listens. Raises OSError if it can't listen on the address."""
        self._server = await self._listen(self._settings.host, self._settings.port)
        self.port = int(self._server.sockets[0].getsockname()[1])
        self._metrics.gauge(
            "http-connections",
            lambda: len(self._connections),
            prometheus="pinlater_http_connections",
            help="Open connections of the HTTP server",
        )
        log.info("http server listens", extra={"host": self._settings.host, "port": self.port})

    async def _listen(self, host: str, port: int) -> asyncio.Server:
        if self._certificate is None:
            return await asyncio.start_server(self._accept, host, port, backlog=_BACKLOG)
        side = listening_side(
            self._certificate,
            "HTTP",
            self._metrics.count,
            lenient=True,
            plain_answer=lambda data: thrift_answer(data, HTTP_PORT) or HTTPS_WANTED,
            plain_is_cut_short=is_cut_short,
        )
        loop = asyncio.get_running_loop()

        def new_connection() -> TlsProtocol:
            reader = asyncio.StreamReader(loop=loop)
            return TlsProtocol(asyncio.StreamReaderProtocol(reader, self._accept, loop=loop), side)

        return await loop.create_server(new_connection, host, port, backlog=_BACKLOG)

    async def stop(self) -> None:
        """Stops accepting, lets requests under way finish for a while, then ends the others. May be called twice."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
            for connection in list(self._connections):
                connection.finish()
            await self._end(set(self._tasks))
            log.info("http server stopped", extra={"port": self.port})
        self._renderer.shutdown(wait=False, cancel_futures=True)

    async def _end(self, tasks: set[asyncio.Task[None]]) -> None:
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=self._settings.stop_timeout_s)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        places_left = 0 if self._server is None else self._places_left()
        if not places_left:
            self._metrics.count("http_connections_refused")
            writer.transport.abort()
            return
        connection = HttpConnection(reader, writer, self._settings, self._answer_for)
        connection.checks_only = places_left <= PLACES_FOR_CHECKS
        task = asyncio.create_task(connection.serve(), name="http-connection")
        self._connections[connection] = task
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._ended(connection, done))

    def _places_left(self) -> int:
        """Returns how many more may be open, including those for health checks; closes a connection if only those are left."""
        most = self._settings.max_connections + PLACES_FOR_CHECKS
        if len(self._connections) >= self._settings.max_connections:
            oldest = next((connection for connection in self._connections if connection.waits_for_client), None)
            if oldest is not None:
                self._metrics.count("http_connections_closed_for_room")
                self._connections.pop(oldest).cancel()
                oldest.abort()
        return most - len(self._connections)

    def _ended(self, connection: HttpConnection, task: asyncio.Task[None]) -> None:
        self._connections.pop(connection, None)
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("http connection failed", exc_info=error)

    async def _answer_for(self, connection: HttpConnection, request: Request) -> Response:
        if (task := self._connections.pop(connection, None)) is not None:
            self._connections[connection] = task  # to the end: it was the last to send
        if connection.checks_only and request.path not in CHECKS:
            response = text_response(
                "Too many connections; only health checks are answered\n", 503, {"Retry-After": "1"}
            )
        else:
            response = await self._answer_allowed(connection, request)
        if log.isEnabledFor(logging.DEBUG):
            log.debug("http request", extra={"method": request.method, "path": request.path, "status": response.status})
        return response

    async def _answer_allowed(self, connection: HttpConnection, request: Request) -> Response:
        if request.path in CHECKS:
            return await self._answer(request)
        if self._client_needs_certificate and not connection.has_certificate:
            self._metrics.count("http_certificates_missing")
            return text_response("Without a client certificate only health checks are answered\n", 403)
        if self._access is not None:
            try:
                check_access(self._access, request)
            except AccessDenied as error:
                self._metrics.count(f"http_access_refused_{error.detail}")
                await connection.hold_back(self._access.refusals.one(connection.host).delay_s)
                return refusal(error)
        return await self._answer(request)

    @property
    def _client_needs_certificate(self) -> bool:
        return self._certificate is not None and self._certificate.settings.require_client_certificate

    async def _answer(self, request: Request) -> Response:
        if not permits_host(self._settings, request.headers.get("host")):
            return text_response("This server does not go by that name; see the setting allowed_hosts\n", 421)
        page = self.pages.get(request.path)
        if page is None:
            paths = ", ".join(sorted(self.pages))
            return text_response(f"Not found. Here are {paths}; the dashboard and its API have another port\n", 404)
        if request.method not in {"GET", "HEAD"}:
            return text_response("Method not allowed\n", 405, {"Allow": "GET, HEAD"})
        try:
            async with asyncio.timeout(self._settings.handler_timeout_s):
                return await page(request)
        except BadRequest as error:
            return text_response(f"{error}\n", error.status)
        except TimeoutError:
            log.warning("http request took too long", extra={"path": request.path})
            return text_response("Took too long\n", 503)
        except Exception:  # a bug in one page must not end the connection, nor reveal internals
            log.exception("http request failed", extra={"path": request.path})
            return text_response("Internal error\n", 500)
