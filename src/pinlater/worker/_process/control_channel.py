"""The line between a supervisor and one of its workers: a socket pair, one message of JSON a line.

The worker says hello once it runs, and answers `report`. The supervisor orders `stop` and `hurry`. A line that breaks means that the
supervisor is gone, however it died: the worker stops in order, so that it is never an orphan. Orders are read in a thread of their own,
and a worker that can't obey any more (a blocked loop) is ended from there after its grace time.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple

import msgspec

from pinlater.worker._process.health import Report

_log = logging.getLogger("pinlater.worker")
REPORT, STOP, HURRY = b"report\n", b"stop\n", b"hurry\n"
LINE_BYTES_MAX = 16 * 1024 * 1024
# What a worker may take, beyond its grace time, from the order to stop until it has ended.
_EXTRA_S = 20.0
STUCK_EXIT_CODE = 70


class Hello(msgspec.Struct, frozen=True, tag=True):
    """A worker's first message: it runs. Where its probes are wanted is for the supervisor to serve."""

    health_host: str
    health_port: int | None
    grace_ms: int


class Orders(NamedTuple):
    """What the worker does at its supervisor's word. Called in the line's thread; `stop` twice is `stop` once."""

    report: Callable[[], Report]
    stop: Callable[[], object]
    hurry: Callable[[], object]


class Line:
    """The worker's end. `descriptor` is the inherited socket, `number` tells this worker from its siblings."""

    def __init__(self, descriptor: int, number: int) -> None:
        self._descriptor = descriptor
        self.number = number

    async def obey(self, hello: Hello, orders: Orders, ready: Future[None]) -> None:
        """Says hello, then does what is ordered until the line breaks; then stops."""
        opened = socket.socket(fileno=self._descriptor)
        opened.setblocking(False)
        os.set_inheritable(self._descriptor, False)
        reader, writer = await asyncio.open_unix_connection(sock=opened)
        writer.write(msgspec.json.encode(hello) + b"\n")
        ready.set_result(None)
        try:
            while order := await reader.readline():
                if order == REPORT:
                    writer.write(msgspec.json.encode(orders.report()) + b"\n")
                    await writer.drain()
                elif order == HURRY:
                    orders.hurry()
                else:
                    _end_anyway(hello.grace_ms)
                    orders.stop()
        except OSError:
            pass
        finally:
            writer.close()
        _log.warning("the supervisor is gone: stopping")
        _end_anyway(hello.grace_ms)
        orders.stop()


def _end_anyway(grace_ms: int) -> None:
    asyncio.get_running_loop().call_later(grace_ms / 1000 + _EXTRA_S, _end)


def _end() -> None:
    _log.error("the worker did not stop in time and is ended")
    os._exit(STUCK_EXIT_CODE)
