"""The HTTP endpoint for probes and Prometheus: GET and HEAD of /healthz, /readyz and /metrics, one request per connection.

The size and time of a request and the number of connections are bounded; beyond that a new connection ends the oldest one, so that clients
that send nothing can't keep probes out. There is no password: use an address that only probes reach.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

from pinlater.worker._outbox.heartbeat_log import log_apart
from pinlater.worker._process.control_channel import ControlChannel, Orders, WorkerHello
from pinlater.worker._process.health import HealthReport, WorkerHealth

if TYPE_CHECKING:
    from pinlater.worker._consumer.worker_run import WorkerRun
    from pinlater.worker._outbox.heartbeater import Service

_log = logging.getLogger("pinlater.worker")
Ask = Callable[[bool], Awaitable[HealthReport]]  # whether with the page of metrics
_HEAD_BYTES_MAX = 8 * 1024
_REQUEST_S = 5.0
_CONNECTIONS_MAX = 32
_TEXT, _METRICS = "text/plain; charset=utf-8", "text/plain; version=0.0.4; charset=utf-8"


class _Answer(NamedTuple):
    status: HTTPStatus
    body: str
    content_type: str = _TEXT


class HealthEndpoint:
    """Listens from `start` to `stop`, on one event loop. Calls `ask` for each request."""

    def __init__(self, host: str, port: int, ask: Ask) -> None:
        self._host = host
        self.port = port
        self._ask = ask
        self._open: dict[asyncio.StreamWriter, None] = {}  # in the order of their arrival
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Raises OSError, with the option's name, if it can't listen."""
        try:
            self._server = await asyncio.start_server(self._serve, self._host, self.port, limit=_HEAD_BYTES_MAX)
        except OSError as error:
            reason = f"--health-port {self.port} (the setting `health_port`): {error.strerror or error}"
            raise OSError(error.errno, reason) from error
        self.port = self._server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        """Stops listening."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= _CONNECTIONS_MAX:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.transport.abort()
        self._open[writer] = None
        try:
            async with asyncio.timeout(_REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self._answered(head))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # not a request, or the client is gone
        finally:
            self._open.pop(writer, None)
            writer.close()

    async def _answered(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        answer = await self._answer(method, rest.partition(" ")[0].partition("?")[0])
        body = answer.body.encode()
        lines = (
            f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
            f"Content-Type: {answer.content_type}",
            f"Content-Length: {len(body)}",
            "Connection: close",
        )
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + (b"" if method == "HEAD" else body)

    async def _answer(self, method: str, path: str) -> _Answer:
        if method not in ("GET", "HEAD"):
            return _Answer(HTTPStatus.METHOD_NOT_ALLOWED, "GET or HEAD\n")
        if path not in ("/healthz", "/readyz", "/metrics"):
            return _Answer(HTTPStatus.NOT_FOUND, "there are /healthz, /readyz and /metrics\n")
        report = await self._ask(path == "/metrics")
        if path == "/metrics":
            return _Answer(HTTPStatus.OK, report.metrics, _METRICS)
        problems = report.unhealthy if path == "/healthz" else report.unready
        if problems:
            return _Answer(HTTPStatus.SERVICE_UNAVAILABLE, "".join(f"{problem}\n" for problem in problems))
        return _Answer(HTTPStatus.OK, "ok\n")


async def serve_probes(host: str, port: int, ask: Ask, ready: Future[None]) -> None:
    """Serves probes until cancelled. Raises OSError if it can't listen."""
    endpoint = HealthEndpoint(host, port, ask)
    await endpoint.start()
    log_apart(_log, logging.INFO, "answering probes", extra={"host": host, "port": endpoint.port})
    ready.set_result(None)
    try:
        await asyncio.Event().wait()
    finally:
        endpoint.stop()


def services_of(run: WorkerRun, health: WorkerHealth, control: ControlChannel | None) -> list[Service]:
    """What a worker answers with while a task blocks its event loop: the supervisor's channel, which then serves the probes, or else its
    own probes. Called on the worker's loop."""
    settings, on_loop = run.settings, asyncio.get_running_loop().call_soon_threadsafe

    def stop_now() -> None:
        run.stop_now.set()
        run.stop.set()

    if control is not None:
        hello = WorkerHello(settings.health_host, settings.health_port, settings.grace_ms)
        orders = Orders(health.report, partial(on_loop, run.stop.set), partial(on_loop, stop_now))
        return [partial(control.obey, hello, orders)]
    if settings.health_port is not None:
        return [partial(serve_probes, settings.health_host, settings.health_port, health.report)]
    return []
