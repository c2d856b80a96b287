"""A worker's end of the control channel to its supervisor.

The worker says hello when it runs, answers asks for its health, and stops when ordered to. If the channel breaks, the supervisor has died,
and the worker stops in order, so that it never runs without one. Orders are read on the loop of the heartbeats, which ends the process if
the worker can't stop within its grace time.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import NamedTuple

import msgspec

from pinlater.supervision.channel import SupervisorOrder, frame, read_frame
from pinlater.worker._outbox.heartbeat_log import log_apart
from pinlater.worker._process.health import HealthReport

_log = logging.getLogger("pinlater.worker")
# How long a worker may take to end after an order to stop, beyond its grace time.
_EXTRA_S = 20.0
# How long the last log line may take, whose handler may hang.
_LOG_S = 1.0
STUCK_EXIT_CODE = 70


class WorkerHello(msgspec.Struct, frozen=True, tag="Hello"):
    """Worker to supervisor: I run. The supervisor serves the probes, at this address."""

    health_host: str
    health_port: int | None
    grace_ms: int


class HealthRequest(msgspec.Struct, frozen=True, tag="Ask"):
    """Supervisor to worker: report your health."""

    number: int


class HealthAnswer(msgspec.Struct, frozen=True, tag="Answer"):
    """Worker to supervisor: the answer to the ask of that number."""

    number: int
    report: HealthReport


from_supervisor: msgspec.msgpack.Decoder[SupervisorOrder | HealthRequest] = msgspec.msgpack.Decoder(
    SupervisorOrder | HealthRequest
)
from_worker: msgspec.msgpack.Decoder[WorkerHello | HealthAnswer] = msgspec.msgpack.Decoder(WorkerHello | HealthAnswer)


class Orders(NamedTuple):
    """What the worker does for its supervisor. Called on the loop of the heartbeats; `stop` may be called twice, `report` with whether the
    page of metrics is wanted."""

    report: Callable[[bool], Awaitable[HealthReport]]
    stop: Callable[[], object]
    stop_now: Callable[[], object]


class ControlChannel:
    """`descriptor` is the inherited socket, `number` the worker's slot."""

    def __init__(self, descriptor: int, number: int) -> None:
        self._descriptor = descriptor
        self.number = number

    async def obey(self, hello: WorkerHello, orders: Orders, ready: Future[None]) -> None:
        """Says hello, then obeys until the channel breaks; then stops the worker."""
        opened = socket.socket(fileno=self._descriptor)
        opened.setblocking(False)
        os.set_inheritable(self._descriptor, False)
        reader, writer = await asyncio.open_unix_connection(sock=opened)
        writer.write(frame(hello))
        ready.set_result(None)
        try:
            while (body := await read_frame(reader)) is not None:
                message = from_supervisor.decode(body)
                if isinstance(message, HealthRequest):
                    writer.write(frame(HealthAnswer(message.number, await orders.report(True))))
                    await writer.drain()
                elif message.what == "stop now":
                    orders.stop_now()
                elif message.what == "stop":
                    _exit_if_stuck(hello.grace_ms)
                    orders.stop()
        except OSError:
            pass
        finally:
            writer.close()
        _exit_if_stuck(hello.grace_ms)
        orders.stop()
        log_apart(_log, logging.WARNING, "the supervisor is gone: stopping")


def _exit_if_stuck(grace_ms: int) -> None:
    asyncio.get_running_loop().call_later(grace_ms / 1000 + _EXTRA_S, _exit)


def _exit() -> None:
    log_apart(_log, logging.ERROR, "the worker did not stop in time; exiting")
    asyncio.get_running_loop().call_later(_LOG_S, os._exit, STUCK_EXIT_CODE)
