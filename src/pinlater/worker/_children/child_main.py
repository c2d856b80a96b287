"""The main function of a child process: runs one job at a time for the parent.

The child leads a process group, which ends with it: what a task has started ends when the parent kills the child, or when the parent
itself ends, however that happens. A task that closes file descriptors or exits ends this process, and the parent notices.
"""

from __future__ import annotations

import importlib
import os
import pickle
import signal
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from pinlater.client.values import AckResult, Checkpoint
from pinlater.domain.clock import SystemClock
from pinlater.supervision.descendants import lead_group
from pinlater.supervision.resident_memory import resident_bytes
from pinlater.supervision.start_signals import STOP_SIGNALS
from pinlater.worker._attempts.calling import AttemptInput, call
from pinlater.worker._attempts.endings import Ending, failure
from pinlater.worker._attempts.tracebacks import text_of
from pinlater.worker._enqueueing.servers import Addresses
from pinlater.worker.context import ServerCalls, attempt_number
from pinlater.worker.retries import linear
from pinlater.worker.tasks import Task
from pinlater.worker.tracing import with_parent_span


class ToRun(NamedTuple):
    """Parent to child: run this. `module` and `name` locate the task. `servers`: where it enqueues, if not on its worker's own."""

    module: str
    name: str
    attempt: AttemptInput
    servers: Addresses = None


class Begun(NamedTuple):
    """Child to parent: the task is imported, and its function begins. Its time limit begins too."""


class Finished(NamedTuple):
    """Child to parent: how it ended, and the child's memory afterwards."""

    ending: Ending
    memory_bytes: int


def main(jobs: Connection, lifeline: Connection, setups: Sequence[Callable[[], None]]) -> None:
    """Runs `setups`, then jobs until the parent closes its end."""
    lead_group(lifeline)
    for number in (
        STOP_SIGNALS
    ):  # an init system may signal all of a service's processes; the parent drains this one, and kills it
        signal.signal(number, _ignore)  # not SIG_IGN, which programs that a task starts would inherit
    os.register_at_fork(after_in_child=_obey_signals)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    for setup in setups:
        setup()
    clock, process = SystemClock(), os.getpid()

    def checkpoint(item: Checkpoint) -> AckResult:
        if os.getpid() != process:
            raise RuntimeError(
                "this process was forked from the job's: only the job's own process can reach the server"
            )
        jobs.send(item)
        answer = jobs.recv()
        if isinstance(answer, BaseException):
            raise answer
        return answer  # type: ignore[no-any-return]

    server = ServerCalls(clock.now_ms, checkpoint)
    while True:
        try:
            pickled = jobs.recv_bytes()
        except EOFError:
            return
        ending = _run(pickled, server, jobs)
        jobs.send(Finished(ending, resident_bytes()))


def _ignore(number: int, frame: object) -> None: ...


def _obey_signals() -> None:
    """In a process that a task forked: pools of `multiprocessing` end their processes by SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _run(pickled: bytes, server: ServerCalls, jobs: Connection) -> Ending:
    """A job that can't be started, for example because its module is missing, fails with the reason; the process continues."""
    retry, attempt = linear(1), 1
    try:
        to_run: ToRun = pickle.loads(pickled)  # noqa: S301 - from the parent
        retry, attempt = to_run.attempt.default_retry, attempt_number(to_run.attempt.job)
        task = _find(to_run)
        if to_run.servers is not None:
            task._enqueuer.use(to_run.servers)  # noqa: SLF001 - of all tasks of its worker, for this process alone
    except Exception as error:  # noqa: BLE001 - importing runs users' code
        return _with_traceback(failure(error, attempt, retry), error)
    jobs.send(Begun())
    attempt_input = to_run.attempt.beginning_at(server.now_ms(), task)
    with with_parent_span(attempt_input.trace):
        ending, raised = call(task, attempt_input, attempt_input.context_of(task, server))
    return _with_traceback(ending, raised)


def _with_traceback(ending: Ending, error: BaseException | None) -> Ending:
    """If it has an error."""
    return ending if error is None or not ending.error_type else ending._replace(traceback=text_of(error))


def _find(to_run: ToRun) -> Task[..., Any]:
    found: Any = importlib.import_module(to_run.module)
    for part in to_run.name.split("."):
        found = getattr(found, part)
    if not isinstance(found, Task):
        raise TypeError(f"{to_run.module}:{to_run.name} is not a task: does something wrap the decorated function?")
    return found
