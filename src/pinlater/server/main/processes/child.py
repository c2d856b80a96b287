"""One of several server processes: a server with three differences, or a front process of the one that has the store.

It shares the Thrift port, answers no HTTP, and has a control channel to its supervisor, which sends it orders and requests for status.
If the channel breaks, the supervisor is gone: the process drains and stops, and if its event loop hangs, a thread ends the process. So
no process outlives its supervisor for long.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import msgspec
import uvloop

from pinlater.domain.errors import PinLaterError
from pinlater.domain.passwords import HashMalformed
from pinlater.server.config.errors import SettingsError
from pinlater.server.config.files import FileBroken
from pinlater.server.main.app import App
from pinlater.server.main.front import FrontApp
from pinlater.server.main.processes.control_channel import (
    Failed,
    OtherVersion,
    ProcessPlan,
    ServerHello,
    StatusAnswer,
    StatusRequest,
    Vitals,
    from_parent,
    receive_plan,
)
from pinlater.server.main.run import StopSignals, run_until_stopped, tune
from pinlater.server.telemetry.numbers import Numbers, look_in_turns
from pinlater.supervision.channel import SupervisorOrder, frame, read_frame
from pinlater.supervision.logs import setup

logger = logging.getLogger(__name__)

# How long after the drain timeout a thread ends a process that does not stop by itself.
_EXTRA_S = 20.0
FAILED, STUCK, WRONG_SETTINGS = 1, 70, 78


def run(descriptor: int) -> int:
    """Runs a server under the supervisor at the other end of that socket, until it orders a stop. Returns the exit status."""
    os.set_inheritable(descriptor, False)
    channel = socket.socket(fileno=descriptor)
    try:
        plan = receive_plan(channel)
    except (EOFError, OtherVersion) as error:
        with channel, contextlib.suppress(OSError):
            channel.sendall(frame(Failed(str(error))))
        return FAILED
    telemetry = plan.settings.telemetry
    setup(telemetry.log_format, telemetry.log_level, process_number=plan.number)
    tune()
    _end_after_the_supervisor(descriptor, plan.settings.drain_timeout_s + _EXTRA_S)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(plan, channel))


async def _serve(plan: ProcessPlan, channel: socket.socket) -> int:
    channel.setblocking(False)
    reader, writer = await asyncio.open_unix_connection(sock=channel)
    try:
        await _ServerProcess(plan).serve(reader, writer)
    except SettingsError as error:
        await _tell_failure(writer, "; ".join(error.problems))
        return WRONG_SETTINGS
    except (PinLaterError, FileBroken, HashMalformed, OSError) as error:
        await _tell_failure(writer, str(error))
        return FAILED
    finally:
        writer.close()
    return 0


async def _tell_failure(writer: asyncio.StreamWriter, reason: str) -> None:
    writer.write(frame(Failed(reason)))
    with contextlib.suppress(OSError):
        await writer.drain()


class _ServerProcess:
    """A server and its end of the control channel."""

    def __init__(self, plan: ProcessPlan) -> None:
        self._stop_signals = StopSignals()
        self._sockets = plan.sockets
        self._app = _server(plan)
        self._serves = False
        self._packer = ThreadPoolExecutor(1, thread_name_prefix="numbers")
        self._answers: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves until the supervisor orders a stop. Raises `Unavailable` or OSError if it can't start."""
        obeying = asyncio.create_task(self._obey(reader, writer))

        def started() -> None:
            self._serves = True
            writer.write(frame(ServerHello()))

        try:
            await run_until_stopped(self._app, self._stop_signals, started)
        finally:
            if obeying.done():
                self._sockets.remove()  # the supervisor, which would do it, is gone
            obeying.cancel()
            self._packer.shutdown(wait=False, cancel_futures=True)

    async def _obey(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (body := await read_frame(reader)) is not None:
            message = from_parent.decode(body)
            if isinstance(message, StatusRequest):
                task = asyncio.create_task(self._answer(message, writer))
                self._answers.add(task)
                task.add_done_callback(self._answers.discard)
            else:
                self._carry_out(message)
        logger.warning("the supervisor is gone: stopping")
        self._stop_signals.stop.set()

    def _carry_out(self, order: SupervisorOrder) -> None:
        if order.what == "reload":
            self._app.reload()
            return
        self._stop_signals.stop.set()
        if order.what == "stop now":
            self._stop_signals.cut_off.set()

    # --- status -------------------------------------------------------------------------------------------------------------

    async def _answer(self, ask: StatusRequest, writer: asyncio.StreamWriter) -> None:
        app, vitals = self._app, self._vitals()
        if ask.numbers == "none":
            answer = StatusAnswer(ask.number, vitals)
        else:
            numbers = await look_in_turns(app.metrics, app.queue_counts(), last_minute=ask.numbers == "last minute")
            packed = await asyncio.get_running_loop().run_in_executor(self._packer, _pack, numbers)
            answer = StatusAnswer(ask.number, vitals, ask.numbers == "all", msgspec.Raw(packed))
        writer.write(frame(answer))

    def _vitals(self) -> Vitals:
        app = self._app
        readiness = app.readiness()
        return Vitals(
            readiness.ok,
            list(readiness.reasons),
            dict(app.server_info()),
            app.metrics.requests,
            app.thrift.connections if self._serves else 0,
            gc.get_stats(),
        )


def _server(plan: ProcessPlan) -> App | FrontApp:
    """A store that only one process can open is opened by the first one, and the others are its fronts."""
    settings, store_path = plan.settings, plan.sockets.of_store
    if settings.store.is_sharded:
        return App(settings, one_of_many=True, sockets=plan.sockets)
    if plan.number == 0:
        return App(settings, one_of_many=True, fronts_path=store_path)
    return FrontApp(settings, store_path, plan.number)


def _pack(numbers: Callable[[], Numbers]) -> bytes:
    return msgspec.msgpack.encode(numbers())


def _end_after_the_supervisor(descriptor: int, seconds: float) -> None:
    """Starts a thread that ends this process some time after the supervisor is gone, even if the event loop hangs."""

    def wait() -> None:
        poll = select.poll()
        poll.register(descriptor, select.POLLRDHUP)
        poll.poll()
        time.sleep(seconds)
        logger.error("the process did not stop in time and is ended")
        os._exit(STUCK)

    threading.Thread(target=wait, name="after the supervisor", daemon=True).start()
