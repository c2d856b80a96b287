"""What runs in a worker's child process: one job at a time, as the parent hands them down.

The child ends when its parent does, however that ends. It must not depend on anything that a handler may break: a handler that
closes file descriptors or exits takes this process with it, and the parent notices.
"""

from __future__ import annotations

import importlib
import os
import resource
import signal
import threading
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from pinlater.client.values import AckResult, Checkpoint
from pinlater.domain.clock import SystemClock
from pinlater.worker._calling import Attempt, call, context_of
from pinlater.worker._endings import Ending
from pinlater.worker.context import Channel
from pinlater.worker.tasks import Task


class ToRun(NamedTuple):
    """Parent to child: run this. `module` and `name` say where the task is."""

    module: str
    name: str
    attempt: Attempt


class Finished(NamedTuple):
    """Child to parent: how it ended, and how much memory (bytes) the child has held at most."""

    ending: Ending
    memory_bytes: int


def main(jobs: Connection, lifeline: Connection) -> None:
    """Runs jobs until the parent closes its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, args=(lifeline,), daemon=True).start()
    clock = SystemClock()

    def ask(item: Checkpoint) -> AckResult:
        jobs.send(item)
        answer = jobs.recv()
        if isinstance(answer, BaseException):
            raise answer
        return answer  # type: ignore[no-any-return]

    channel = Channel(clock.now_ms, ask)
    while True:
        try:
            order: ToRun = jobs.recv()
        except EOFError:
            return
        task = _find(order)
        ended = call(task, order.attempt, context_of(task, order.attempt, channel))
        jobs.send(Finished(ended.ending, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024))


def _find(order: ToRun) -> Task[..., Any]:
    found: Any = importlib.import_module(order.module)
    for part in order.name.split("."):
        found = getattr(found, part)
    if not isinstance(found, Task):
        raise TypeError(f"{order.module}:{order.name} is no task there: does something wrap the decorated function?")
    return found


def _end_with_parent(lifeline: Connection) -> None:
    try:
        lifeline.recv()
    except (EOFError, OSError):
        os._exit(0)
