"""Runs several server processes: `pinlater serve --processes N`.

The supervisor handles no jobs, so its memory hardly grows. It reserves the Thrift port for its processes, answers HTTP for all of them,
and passes signals on: the first SIGTERM or SIGINT stops them in order, a second one without draining, SIGHUP reloads them. If it is
killed, its processes stop: their control channels break.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import signal
from collections.abc import Sequence

from pinlater.domain.clock import SystemClock
from pinlater.server.config.errors import SettingsError
from pinlater.server.config.settings import Settings
from pinlater.server.http.server import HttpServer
from pinlater.server.main.app import listening
from pinlater.server.main.console_process import ConsoleProcess, this_program
from pinlater.server.main.listener_files import ListenerFiles
from pinlater.server.main.processes.child import WRONG_SETTINGS
from pinlater.server.main.processes.combined_pages import Joined
from pinlater.server.main.processes.control_channel import ProcessPlan, plan_frame
from pinlater.server.main.processes.ports import reserved
from pinlater.server.main.processes.server_slot import ServerSlot, Timeouts
from pinlater.server.main.run import at_end_of_stdin
from pinlater.server.main.socket_folder import SocketFolder, socket_folder
from pinlater.server.telemetry.metrics import TICK_S, Metrics
from pinlater.supervision.process_group import ProcessGroup
from pinlater.supervision.signals import handled
from pinlater.supervision.start_signals import STOP_SIGNALS
from pinlater.version import __version__

logger = logging.getLogger(__name__)

# How long a process may take to end, beyond its own time to drain.
_EXTRA_S = 15.0
_FAILED = 1


class ServerSupervisor:
    """Runs `settings.processes` of `command`, each with the option `--control-channel`."""

    def __init__(self, settings: Settings, command: Sequence[str] = (), timeouts: Timeouts | None = None) -> None:
        self._settings = settings
        self._command = command or _command()
        self._timeouts = timeouts or Timeouts()
        self._clock = SystemClock()
        self._metrics = Metrics()
        self._slots: list[ServerSlot] = []
        self._stopping = asyncio.Event()
        self._code = 0
        self._failure: str | None = None
        self._processes = ProcessGroup(self._slots, self._stopping, lambda: settings.drain_timeout_s + _EXTRA_S)
        self._pages = Joined(self._slots, self._metrics, self._clock, self._state)
        self._listener_files = ListenerFiles(settings, self._clock)
        certificate = self._listener_files.certificate
        self._console = ConsoleProcess(settings, self._stopping, certificate=certificate)
        self._http = HttpServer(
            settings.http,
            self._metrics,
            self._pages,
            queue_series_max=settings.telemetry.queue_series_max,
            access=self._listener_files.access,
            certificate=certificate,
        )

    async def run(self, *, stop_with_stdin: bool = False) -> int:
        """Runs until a signal comes, or the first process can't start. Returns the exit status.

        Raises OSError if it can't listen; if the first process can't start, OSError or `SettingsError` with its reason.
        """
        thrift, http = self._settings.thrift, self._settings.http
        if stop_with_stdin:
            at_end_of_stdin(self._processes.signalled)
        with contextlib.ExitStack() as stack:
            with listening("Thrift", thrift.host, thrift.port, "thrift.port"):
                port = stack.enter_context(reserved(thrift.host, thrift.port))
            with listening("HTTP", http.host, http.port, "http.port"):
                await self._http.start()
            stop = dict.fromkeys(STOP_SIGNALS, self._processes.signalled)
            stack.enter_context(handled({**stop, signal.SIGHUP: self._reload}))
            sockets = stack.enter_context(socket_folder())
            try:
                await self._keep_all(port, sockets)
            finally:
                await self._http.stop()
        if self._failure is not None:
            raise SettingsError([self._failure]) if self._code == WRONG_SETTINGS else OSError(self._failure)
        logger.info("stopped")
        return self._code

    async def _keep_all(self, port: int, sockets: SocketFolder) -> None:
        settings = dataclasses.replace(
            self._settings,
            thrift=dataclasses.replace(self._settings.thrift, port=port),
            http=dataclasses.replace(self._settings.http, port=self._http.port),
        )
        for number in range(settings.processes):
            plan = plan_frame(ProcessPlan(number, settings, sockets))
            slot = ServerSlot(number, self._command, plan, self._pages.ended, self._stopping, self._timeouts)
            self._slots.append(slot)
        background = [asyncio.create_task(self._watch()), asyncio.create_task(self._say_ready(port))]
        try:
            await self._processes.keep(self._gave_up)
        finally:
            for task in background:
                task.cancel()
            await self._console.end()

    def _gave_up(self, slot: ServerSlot, code: int) -> None:
        self._code = code if code >= 0 else _FAILED
        self._failure = slot.failure

    def _reload(self) -> None:
        for slot in self._slots:
            slot.reload()

    async def _say_ready(self, port: int) -> None:
        for slot in self._slots:
            await slot.served.wait()
        logger.info(
            "all processes are ready",
            extra={
                "version": __version__,
                "processes": len(self._slots),
                "thrift_port": port,
                "http_port": self._http.port,
            },
        )
        self._console.start(port)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            await asyncio.gather(*(slot.replace_if_stuck() for slot in self._slots))
            await self._listener_files.look()

    def _state(self) -> str:
        if self._stopping.is_set():
            return "draining"
        return "ready" if any(slot.served.is_set() for slot in self._slots) else "starting"


def serve(settings: Settings, *, stop_with_stdin: bool = False) -> int:
    """Serves until a signal comes. Returns the exit status. Raises OSError if it can't listen."""
    return asyncio.run(ServerSupervisor(settings).run(stop_with_stdin=stop_with_stdin))


def _command() -> list[str]:
    return [*this_program(), "serve"]
