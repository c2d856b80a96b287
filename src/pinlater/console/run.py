"""Runs the console under uvicorn until SIGTERM or SIGINT."""

from __future__ import annotations

import signal
import socket
from functools import partial
from ipaddress import ip_address

import uvicorn

from pinlater.client import AsyncClient
from pinlater.console.app import Console
from pinlater.console.browser_guard import LOOPBACK_NAMES
from pinlater.console.connection import BoundedConnection, ConnectionLimits, OpenConnections
from pinlater.domain.clock import SystemClock

LIMITS = ConnectionLimits()
_BACKLOG = 1024
_STOP_WITHIN_S = 20


class ConsoleServer(uvicorn.Server):
    """A uvicorn server that ends long polls before it waits for its requests."""

    def __init__(self, console: Console, limits: ConnectionLimits = LIMITS) -> None:
        self.connections = OpenConnections(limits)
        super().__init__(
            uvicorn.Config(
                console.app,
                http=partial(BoundedConnection, self.connections),  # type: ignore[arg-type] # it is only called
                ws="none",
                lifespan="on",
                log_config=None,  # the command sets up the logs
                access_log=False,
                proxy_headers=False,  # any caller could send them
                server_header=False,
                timeout_keep_alive=limits.idle_s,
                timeout_graceful_shutdown=_STOP_WITHIN_S,
            )
        )
        self._console = console

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._console.stop()
        await super().shutdown(sockets)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the host."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 takes a free one. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=_BACKLOG)


def serve(client: AsyncClient, listener: socket.socket, *, loopback: bool) -> None:
    """Serves until SIGTERM or SIGINT, then finishes the requests in flight. `loopback`: accepts only this machine's names as `Host`."""
    console = Console(client, SystemClock().now_ms, LOOPBACK_NAMES if loopback else None)
    # uvicorn raises the signal again at its end, for the code around it; here the process ends with 0.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stopped)
    ConsoleServer(console).run([listener])


def _stopped(_number: int, _frame: object) -> None:
    """uvicorn has stopped already."""
