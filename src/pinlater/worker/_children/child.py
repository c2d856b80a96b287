"""What runs in a worker's child process: one job at a time, as the parent hands them down.

The child ends when its parent does, however that ends. It must not depend on anything that a handler may break: a handler that
closes file descriptors or exits takes this process with it, and the parent notices.
"""

from __future__ import annotations

import importlib
import os
import pickle
import resource
import signal
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from pinlater.client.values import AckResult, Checkpoint
from pinlater.domain.clock import SystemClock
from pinlater.worker._attempts.calling import Attempt, call, context_of
from pinlater.worker._attempts.endings import Ending, failure
from pinlater.worker._consumer.decisions import attempts_so_far
from pinlater.worker.context import Channel
from pinlater.worker.retries import delay_of, linear
from pinlater.worker.tasks import Task
from pinlater.worker.tracing import going_on

# Ctrl-C, and a stop by who signals all of a service's processes, reach children too. It is for the parent to drain, and to kill them.
LEFT_TO_PARENT = (signal.SIGINT, signal.SIGTERM)


class ToRun(NamedTuple):
    """Parent to child: run this. `module` and `name` say where the task is."""

    module: str
    name: str
    attempt: Attempt


class Finished(NamedTuple):
    """Child to parent: how it ended, and how much memory (bytes) the child has held at most."""

    ending: Ending
    memory_bytes: int


def main(jobs: Connection, lifeline: Connection, setups: Sequence[Callable[[], None]]) -> None:
    """Runs `setups`, then jobs until the parent closes its end."""
    for number in LEFT_TO_PARENT:
        signal.signal(number, _leave_it)  # and not SIG_IGN, which programs that a handler starts would inherit
    signal.pthread_sigmask(signal.SIG_UNBLOCK, LEFT_TO_PARENT)
    threading.Thread(target=_end_with_parent, args=(lifeline,), daemon=True).start()
    for setup in setups:
        setup()
    clock, process = SystemClock(), os.getpid()

    def ask(item: Checkpoint) -> AckResult:
        if os.getpid() != process:
            raise RuntimeError("this process was forked from the job's: only the job's own can reach the server")
        jobs.send(item)
        answer = jobs.recv()
        if isinstance(answer, BaseException):
            raise answer
        return answer  # type: ignore[no-any-return]

    channel = Channel(clock.now_ms, ask)
    while True:
        try:
            ordered = jobs.recv_bytes()
        except EOFError:
            return
        ending = _carry_out(ordered, channel)
        jobs.send(Finished(ending, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024))


def _leave_it(number: int, frame: object) -> None: ...


def _carry_out(ordered: bytes, channel: Channel) -> Ending:
    """What can't even be begun (a module that isn't there, say) is a failure with its reason, and no death of a process."""
    retry, attempt = linear(1), 1
    try:
        order: ToRun = pickle.loads(ordered)  # noqa: S301 - from the parent
        retry, attempt = order.attempt.default_retry, attempts_so_far(order.attempt.job)
        task = _find(order)
    except Exception as error:  # noqa: BLE001 - importing runs users' code
        return failure(error, delay_of(retry, attempt, error, 0.5))
    with going_on(order.attempt.trace):
        return call(task, order.attempt, context_of(task, order.attempt, channel)).ending


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
