"""Runs an `App` as a process: signals, exit status, and the few limits of the process that matter.

SIGTERM and SIGINT stop it in order; a second one hurries: what is in flight is cut off, and the store is closed all the same.
SIGHUP looks at the limits' files at once. Where it is wanted, the end of standard input counts as a SIGTERM: a program that starts a
server holds the other end of that pipe, and however it dies, no server stays behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable

import uvloop

from pinlater.app import App
from pinlater.config.settings import Settings

logger = logging.getLogger(__name__)

# The store's commits run in a thread; the loop must not wait for the interpreter lock longer than this.
_SWITCH_INTERVAL_S = 20e-6
# Millions of small tuples are made and dropped without cycles: look for cycles seldom, and never in what lives for ever.
_GC_THRESHOLDS = (50_000, 20, 50)


def serve(settings: Settings, *, stop_with_stdin: bool = False) -> int:
    """Serves until a signal comes; returns the exit status. Raises `WorldError` or OSError if it can't start."""
    _tune()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(settings, stop_with_stdin))


async def _serve(settings: Settings, stop_with_stdin: bool) -> int:
    app = App(settings)
    signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signals.put_nowait, number)
    loop.add_signal_handler(signal.SIGHUP, app.reload)
    if stop_with_stdin:
        _at_end_of_stdin(loop, lambda: signals.put_nowait(signal.SIGTERM))
    await app.start()
    gc.collect()
    gc.freeze()
    received = await signals.get()
    logger.info("signal received", extra={"signal": received.name})
    stopping = asyncio.create_task(app.stop(settings.drain_timeout_s))
    hurry = asyncio.create_task(signals.get())
    await asyncio.wait([stopping, hurry], return_when=asyncio.FIRST_COMPLETED)
    if not stopping.done():
        logger.warning("second signal: cutting off what is in flight")
        app.hurry()
    await stopping
    hurry.cancel()
    return 0


def _at_end_of_stdin(loop: asyncio.AbstractEventLoop, ended: Callable[[], None]) -> None:
    """Calls `ended` once nobody holds the other end any more; what comes before is thrown away. Raises OSError for a plain file."""
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


def _tune() -> None:
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    gc.set_threshold(*_GC_THRESHOLDS)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
