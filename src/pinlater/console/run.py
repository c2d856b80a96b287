"""Runs the console under uvicorn until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Literal

import uvicorn

from pinlater.console.app import Console
from pinlater.console.connection import BoundedConnection, ConnectionLimits, OpenConnections
from pinlater.console.server_channel import ServerChannel
from pinlater.supervision.open_files import raise_open_files
from pinlater.supervision.start_signals import stopped_by
from pinlater.tls.certificate import CertificateSource
from pinlater.tls.listening import HTTPS_WANTED, listening_side
from pinlater.tls.protocol import TlsProtocol
from pinlater.wire.wrong_port import CONSOLE_PORT, is_cut_short, thrift_answer

LIMITS = ConnectionLimits()
_OTHER_FILES = 64  # logs, the listener, calls to servers that are no long polls
_BACKLOG = 1024
_STOP_WITHIN_S = 20
_TICKS_A_LOOK = 10  # each a tenth of a second


class ConsoleServer(uvicorn.Server):
    """A uvicorn server that ends long polls before it waits for its requests. `channel`: the channel to the server that runs it, if one
    does.
    `certificate`: None serves without TLS."""

    def __init__(
        self,
        console: Console,
        limits: ConnectionLimits = LIMITS,
        channel: ServerChannel | None = None,
        certificate: CertificateSource | None = None,
    ) -> None:
        self._channel = channel
        self._certificate = certificate
        self._looking: asyncio.Task[bool] | None = None
        self._obeying: asyncio.Task[None] | None = None
        self.connections = OpenConnections(limits)
        super().__init__(
            uvicorn.Config(
                console.app,
                http=self._protocol(),  # type: ignore[arg-type] # it is only called
                ws="none",
                lifespan="on",
                log_config=None,  # the command sets up the logs
                access_log=False,
                proxy_headers=False,  # `arrival` reads them, only from trusted proxies
                server_header=False,
                timeout_keep_alive=limits.idle_s,
                timeout_graceful_shutdown=_STOP_WITHIN_S,
            )
        )
        self._console = console

    def _protocol(self) -> Callable[..., asyncio.Protocol]:
        """Returns the protocol with our own TLS: uvicorn's would never reload the certificate, and hides connections until their
        handshakes are done.
        """
        plain = partial(BoundedConnection, self.connections)
        if self._certificate is None:
            return plain
        side = listening_side(
            self._certificate,
            "HTTP",
            plain_answer=lambda data: thrift_answer(data, CONSOLE_PORT) or HTTPS_WANTED,
            plain_is_cut_short=is_cut_short,
        )
        return lambda **uvicorns: TlsProtocol(plain(**uvicorns), side)

    async def on_tick(self, counter: int) -> bool:
        if (
            self._certificate is not None
            and counter % _TICKS_A_LOOK == 0
            and (not self._looking or self._looking.done())
        ):
            self._looking = asyncio.create_task(asyncio.to_thread(self._certificate.refresh))
            self._certificate.warn_of_expiry()
        return await super().on_tick(counter)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._channel is not None and sockets:
            address = address_of(sockets[0], tls=self._certificate is not None)
            self._obeying = asyncio.create_task(self._channel.obey(address, self.stop))

    def stop(self, how: Literal["stop", "stop now"] = "stop") -> None:
        """Ends `run`."""
        self.should_exit = True
        self.force_exit = self.force_exit or how == "stop now"

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._console.stop()
        await super().shutdown(sockets)


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 takes a free one. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=_BACKLOG)


def address_of(listener: socket.socket, *, tls: bool = False) -> str:
    """The URL at which it listens."""
    host, port = listener.getsockname()[:2]
    scheme = "https" if tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def serve(
    console: Console,
    listener: socket.socket,
    *,
    channel: ServerChannel | None = None,
    certificate: CertificateSource | None = None,
) -> None:
    """Serves until SIGTERM, SIGINT or an order over the channel, then finishes the requests in flight. `certificate`: None serves without
    TLS.
    """
    server = ConsoleServer(console, within(raise_open_files()), channel, certificate)
    with stopped_by(server.stop):  # until uvicorn handles signals, and when it raises them again at its end
        server.run([listener])


def within(open_files: int) -> ConnectionLimits:
    """The limits for a process that may open this number of files: a long poll takes a second one, for the server."""
    possible = max(1, (open_files - _OTHER_FILES) // 2)
    return LIMITS._replace(connections_max=min(LIMITS.connections_max, possible))
