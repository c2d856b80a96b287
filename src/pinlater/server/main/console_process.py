"""Runs the console beside a server: `pinlater console` as a process of its own, which is restarted if it dies and ends with the server.

It listens on loopback and calls this server. No failure of it stops the server: without its extra, or without its port, a line in the log
reports that.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from pinlater.extras import install_line
from pinlater.server.config.settings import Settings
from pinlater.supervision.console_messages import ConsoleServes, from_console
from pinlater.supervision.process_slot import ProcessSlot
from pinlater.supervision.restarts import Next, next_start
from pinlater.tls.certificate import CertificateSource

logger = logging.getLogger(__name__)

_MODULES = ("starlette", "uvicorn", "jinja2")  # of the extra
_ANSWER_S = 3.0
_FAILED_STARTS_MAX = 4
# How long the console may take to end once the server has stopped.
_STOP_S = 3.0
_LOOPBACK = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 a comparison


class ConsoleProcess:
    """`stopping`: is set when the server begins to stop. `command`: that of this program, unless given; the options follow it.
    `certificate`: that of the server, if it has TLS."""

    def __init__(
        self,
        settings: Settings,
        stopping: asyncio.Event,
        command: Sequence[str] = (),
        certificate: CertificateSource | None = None,
    ) -> None:
        self._settings = settings
        self._certificate = certificate
        self._stopping = stopping
        self._command = command or [*this_program(), "console"]
        self._slot: ConsoleSlot | None = None
        self._tasks: Sequence[asyncio.Task[None]] = ()

    def start(self, thrift_port: int) -> None:
        """Starts it, unless the settings forbid that, and returns at once. `thrift_port`: where the server listens."""
        if not self._settings.console:
            return
        missing = [module for module in _MODULES if find_spec(module) is None]
        if missing:
            logger.info("the console does not run: its extra is missing", extra={"install": install_line("console")})
            return
        slot = self._slot = ConsoleSlot([*self._command, *self._options(thrift_port)], self._stopping)
        self._tasks = [asyncio.create_task(self._keep(slot)), asyncio.create_task(self._stop_with_server(slot))]

    async def end(self) -> None:
        """Waits for its end, and kills it if that takes too long. Called when the server has stopped."""
        if self._slot is None:
            return
        keeping, stopping = self._tasks
        await asyncio.wait([keeping], timeout=_STOP_S)
        self._slot.kill()
        await keeping
        stopping.cancel()

    async def _keep(self, slot: ConsoleSlot) -> None:
        code = await slot.keep()
        if code is not None:
            logger.warning(
                "the console does not run; the setting console_port chooses another port, and --no-console starts none",
                extra={"reason": slot.failure or f"it ended with exit code {code}"},
            )

    async def _stop_with_server(self, slot: ConsoleSlot) -> None:
        await self._stopping.wait()
        slot.stop()

    def _options(self, thrift_port: int) -> Sequence[str]:
        settings, telemetry = self._settings, self._settings.telemetry
        user_token_file = settings.console_user_token_file
        options: Sequence[tuple[str, object]] = (
            ("--server", local_address(settings, thrift_port)),
            ("--port", settings.console_port),
            ("--log-level", telemetry.log_level),
            ("--log-format", telemetry.log_format),
            ("--guest-token-file", settings.console_guest_token_file),
            *(("--name", name) for name in settings.console_names),
            *(("--trusted-proxy", proxy) for proxy in settings.console_trusted_proxies),
            ("--user-header", None if user_token_file is None else settings.console_user_header),
            ("--user-token-file", user_token_file),
            ("--trace-url", settings.console_trace_url),
            ("--source-url", settings.console_source_url),
        )
        given = [part for option, value in options if value is not None for part in (option, str(value))]
        return [*given, *self._tls_options()]

    def _tls_options(self) -> Sequence[str]:
        """Returns the console's options for its connections to the server: it trusts only the server's certificate itself, and presents
        it if clients need one. Browsers on this machine reach the console without TLS.
        """
        tls, certificate = self._settings.tls, self._certificate
        if certificate is None or tls.certificate_file is None:
            return []
        file, key = str(tls.certificate_file), str(tls.key_file or tls.certificate_file)
        names = certificate.current.names
        options = ["--tls-ca", file]
        if names:
            options += ["--tls-server-name", names[0].replace("*", "any")]
        if tls.require_client_certificate:
            options += ["--tls-certificate", file, "--tls-key", key]
        return options


class ConsoleSlot(ProcessSlot[None]):
    """The slot of the console."""

    kind = "console"
    started_by: Mapping[str, Any] = {"start_new_session": True}  # uvloop can't only make a process group

    def __init__(self, command: Sequence[str], stopping: asyncio.Event) -> None:
        super().__init__(0, command, stopping, _ANSWER_S)
        self._has_served = False

    def _received(self, body: bytes) -> None:
        message = from_console.decode(body)
        if isinstance(message, ConsoleServes):
            self._has_served = True
            self._says_it_serves()
            logger.info("the console is ready", extra={"address": message.address})
        else:
            self.failure = message.reason

    def _next_start(self, code: int, lived_s: float, crashes: int, spread: float) -> Next | None:
        """Gives up if the console can't serve for some time: its port is taken, and not only briefly by the console of a server that was
        killed."""
        if not self._has_served and crashes >= _FAILED_STARTS_MAX:
            return None
        return next_start(code, lived_s, crashes, True, spread)


def local_address(settings: Settings, thrift_port: int) -> str:
    """Returns where a process on this machine reaches the server."""
    host = _LOOPBACK.get(settings.thrift.host, settings.thrift.host)
    return f"[{host}]:{thrift_port}" if ":" in host else f"{host}:{thrift_port}"


def this_program(module: str = "pinlater") -> list[str]:
    """The command of this program, or of one of its modules. It imports from the working directory only if this process does."""
    safely = [] if sys.path[:1] in ([""], [os.getcwd()]) else ["-P"]  # noqa: PTH109 - sys.path holds strings
    return [sys.executable, *safely, "-m", module]
