"""Runs several server processes and keeps them running: what `pinlater serve --processes N` is.

It serves no job, so it can hardly crash or grow. It keeps the Thrift port for its processes, answers HTTP for all of them, and passes
signals on: the first SIGTERM or SIGINT stops them in order, a second one hurries, SIGHUP reaches all. Killed by -9 it takes them along,
since each holds a line to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence

from pinlater.app import listening
from pinlater.config.settings import Settings
from pinlater.domain.clock import SystemClock
from pinlater.http_server.server import HttpServer
from pinlater.process import at_end_of_stdin
from pinlater.processes.joined import Joined
from pinlater.processes.line import Plan, plan_frame
from pinlater.processes.place import Patience, Place
from pinlater.processes.ports import reserved
from pinlater.telemetry.metrics import TICK_S, Metrics
from pinlater.version import __version__

logger = logging.getLogger(__name__)

# Beyond a process's own time to drain, and after a second signal.
_EXTRA_S, _HURRIED_S = 15.0, 10.0
_FAILED = 1


class Supervisor:
    """Runs `settings.processes` of `command`, each with the option `--line`."""

    def __init__(self, settings: Settings, command: Sequence[str] = (), patience: Patience | None = None) -> None:
        self._settings = settings
        self._command = command or _command()
        self._patience = patience or Patience()
        self._clock = SystemClock()
        self._metrics = Metrics()
        self._places: list[Place] = []
        self._stopping = asyncio.Event()
        self._hurrying = False
        self._code = 0
        self._failure: str | None = None
        self._pages = Joined(self._places, self._metrics, self._clock, self._state)
        self._http = HttpServer(
            settings.http, self._metrics, self._pages, queue_series_max=settings.telemetry.queue_series_max
        )

    async def run(self, *, stop_with_stdin: bool = False) -> int:
        """Until a signal comes, or the first process can't be started; the exit status.

        Raises OSError where it can't listen, and with what the first process says where that can't start.
        """
        thrift, http = self._settings.thrift, self._settings.http
        if stop_with_stdin:
            at_end_of_stdin(self._signalled)
        with contextlib.ExitStack() as stack:
            with listening("Thrift", thrift.host, thrift.port):
                port = stack.enter_context(reserved(thrift.host, thrift.port))
            with listening("HTTP", http.host, http.port):
                await self._http.start()
            stack.enter_context(self._signals())
            try:
                await self._keep_all(port)
            finally:
                await self._http.stop()
        if self._failure is not None:
            raise OSError(self._failure)
        logger.info("stopped")
        return self._code

    async def _keep_all(self, port: int) -> None:
        settings = dataclasses.replace(
            self._settings,
            thrift=dataclasses.replace(self._settings.thrift, port=port),
            http=dataclasses.replace(self._settings.http, port=self._http.port),
        )
        for number in range(settings.processes):
            plan = plan_frame(Plan(number, settings))
            self._places.append(Place(number, self._command, plan, self._pages.ended, self._stopping, self._patience))
        beside = [asyncio.create_task(self._watch()), asyncio.create_task(self._say_ready(port))]
        try:
            async with asyncio.TaskGroup() as group:
                first, *others = self._places
                group.create_task(self._keep(first))
                await first.settled.wait()  # what is wrong is found by one, and said once; and one migrates the store
                for place in others if first.serves and not self._stopping.is_set() else ():
                    group.create_task(self._keep(place))
        finally:
            for task in beside:
                task.cancel()

    async def _keep(self, place: Place) -> None:
        code = await place.keep()
        if code is not None:
            self._code = code if code >= 0 else _FAILED
            self._failure = place.failure
            self._stop()

    async def _say_ready(self, port: int) -> None:
        for place in self._places:
            await place.served.wait()
        logger.info(
            "all processes are ready",
            extra={
                "version": __version__,
                "processes": len(self._places),
                "thrift_port": port,
                "http_port": self._http.port,
            },
        )

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            await asyncio.gather(*(place.replace_if_stuck() for place in self._places))

    def _state(self) -> str:
        if self._stopping.is_set():
            return "draining"
        return "ready" if any(place.served.is_set() for place in self._places) else "starting"

    # --- signals ------------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        handlers = {
            signal.SIGTERM: self._signalled,
            signal.SIGINT: self._signalled,
            signal.SIGHUP: self._reload,
        }
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        try:
            yield
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)

    def _signalled(self) -> None:
        if not self._stopping.is_set():
            logger.info("signal received: stopping all processes")
            self._stop()
        elif not self._hurrying:
            self._hurrying = True
            logger.warning("second signal: cutting off what is in flight")
            for place in self._places:
                place.hurry()
            self._kill_in(_HURRIED_S)

    def _reload(self) -> None:
        for place in self._places:
            place.reload()

    def _stop(self) -> None:
        if self._stopping.is_set():
            return
        self._stopping.set()
        for place in self._places:
            place.stop()
            place.settled.set()
        self._kill_in(self._settings.drain_timeout_s + _EXTRA_S)

    def _kill_in(self, seconds: float) -> None:
        for place in self._places:
            asyncio.get_running_loop().call_later(seconds, place.kill)


def serve(settings: Settings, *, stop_with_stdin: bool = False) -> int:
    """Serves until a signal comes; returns the exit status. Raises OSError if it can't listen."""
    return asyncio.run(Supervisor(settings).run(stop_with_stdin=stop_with_stdin))


def _command() -> list[str]:
    """This program again. The working directory is no place to import from, unless it is for this process too."""
    safely = [] if sys.path[:1] in ([""], [os.getcwd()]) else ["-P"]  # noqa: PTH109 - sys.path holds strings
    return [sys.executable, *safely, "-m", "pinlater", "serve"]
