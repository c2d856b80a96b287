"""Runs an `App` as a process: signals, exit status, and the few process limits that matter.

SIGTERM and SIGINT stop it in order; a second one closes connections under way, and the store is closed all the same.
SIGHUP rereads the files of limits and shards at once. If that is wanted, the end of standard input counts as a SIGTERM: a program that
starts a server holds the other end of that pipe, and however it dies, no server stays behind.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Protocol

import uvloop

from pinlater.server.config.settings import Settings
from pinlater.server.main.app import App
from pinlater.server.main.console_process import ConsoleProcess
from pinlater.server.main.front import FrontApp
from pinlater.server.main.until_event import ends_before
from pinlater.supervision.open_files import raise_open_files

logger = logging.getLogger(__name__)

# The store's commits run in a thread; the loop must not wait for the interpreter lock longer than this.
_SWITCH_INTERVAL_S = 20e-6
# Millions of small tuples are made and dropped without cycles: collect garbage seldom, and never among objects that live for ever.
_GC_THRESHOLDS = (50_000, 20, 50)


class SideProcess(Protocol):
    """A process that runs while the server serves."""

    def start(self, thrift_port: int) -> None:
        """Starts it and returns at once. `thrift_port`: where the server listens."""

    async def end(self) -> None:
        """Waits for its end. Called when the server has stopped."""


def serve(
    settings: Settings,
    *,
    stop_with_stdin: bool = False,
    more: Sequence[Callable[[Settings, asyncio.Event], SideProcess]] = (),
) -> int:
    """Serves until a signal comes; returns the exit status. Raises `Unavailable` or OSError if it can't start.

    `more`: makes side processes, from the settings and an event that is set when the server begins to stop.
    """
    tune()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(settings, stop_with_stdin, more))


class StopSignals:
    """Stops a server after a signal or an order. The first signal stops it in order, the second closes connections under way."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.cut_off = asyncio.Event()
        self._signals = 0

    def signalled(self, name: str) -> None:
        """A signal came, or an equivalent."""
        self._signals += 1
        if self._signals > 1:
            self.cut_off.set()
        else:
            logger.info("signal received", extra={"signal": name})
        self.stop.set()


async def _serve(
    settings: Settings, stop_with_stdin: bool, more: Sequence[Callable[[Settings, asyncio.Event], SideProcess]]
) -> int:
    app, stops = App(settings), StopSignals()
    console = ConsoleProcess(settings, stops.stop, certificate=app.certificate)
    processes: Sequence[SideProcess] = [console, *(make(settings, stops.stop) for make in more)]
    if stop_with_stdin:
        at_end_of_stdin(lambda: stops.signalled("SIGTERM"))

    def started() -> None:
        for process in processes:
            process.start(app.thrift.port)

    await run_until_stopped(app, stops, started)
    for process in processes:
        await process.end()
    return 0


async def run_until_stopped(app: App | FrontApp, stops: StopSignals, started: Callable[[], None]) -> None:
    """Serves until `stops` requests the end. Raises `Unavailable` or OSError if it can't start."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stops.signalled, number.name)
    loop.add_signal_handler(signal.SIGHUP, app.reload)
    if not await _started(app, stops.stop):
        return
    gc.collect()
    gc.freeze()
    started()
    await stops.stop.wait()
    stopping = asyncio.create_task(app.stop(app.settings.drain_timeout_s))
    if not await ends_before(stopping, stops.cut_off):
        logger.warning("second signal: cutting off what is in flight")
        app.cut_off()
    await stopping


async def _started(app: App | FrontApp, stop: asyncio.Event) -> bool:
    """Returns whether the server has started, or False if it was stopped first. Raises the errors of `start`."""
    starting = asyncio.create_task(app.start())
    if await ends_before(starting, stop):
        starting.result()
        return True
    logger.info("stopped before the start was over")
    starting.cancel()
    await asyncio.wait([starting])
    return False


def at_end_of_stdin(ended: Callable[[], None]) -> None:
    """Calls `ended` once the other end is closed; input before that is discarded. Raises OSError for a plain file."""
    loop = asyncio.get_running_loop()
    descriptor = 0

    def readable() -> None:
        try:
            more = os.read(descriptor, 65_536)
        except BlockingIOError:
            return
        except OSError:
            more = b""
        if not more:
            loop.remove_reader(descriptor)
            ended()

    try:
        loop.add_reader(descriptor, readable)
    except PermissionError:
        raise OSError("standard input is a file, which has no other end to wait for: give a pipe") from None


def tune() -> None:
    """Adjusts the interpreter and the limits of the process for a server."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    gc.set_threshold(*_GC_THRESHOLDS)
    raise_open_files()
