"""Calls a task's function for one attempt: on the event loop, in a thread, and in a child process alike.

An exception of the function is a failure of its job and not of the worker, SystemExit and KeyboardInterrupt included. A function may
fork; a forked child that returns from the function exits at once.
"""

from __future__ import annotations

import os
import types
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from functools import partial
from typing import Any

from pinlater.worker._attempts.attempt import AttemptInput, AttemptResult
from pinlater.worker._attempts.bodies import codec_of
from pinlater.worker._attempts.endings import ending_of
from pinlater.worker.context import RUNNING, JobContext
from pinlater.worker.errors import CantDecode, Reject, Retry, Snooze
from pinlater.worker.tasks import RunsIn, Task

_ENDINGS = (Reject, Retry, Snooze)


def call(task: Task[..., Any], attempt: AttemptInput, context: JobContext) -> AttemptResult:
    """Calls a plain function."""
    process = os.getpid()
    RUNNING.set(context)
    try:
        returned = task.function(**_arguments(task, attempt, context))
        _check_has_run(task, returned)
        ended = _ending_in(returned)
    except BaseException as error:  # noqa: BLE001 - see above
        _exit_if_forked(process)
        return _result(error, task, attempt, context)
    _exit_if_forked(process)
    return _result(ended, task, attempt, context)


async def call_async(task: Task[..., Any], attempt: AttemptInput, context: JobContext) -> AttemptResult:
    """Awaits a coroutine. A cancellation is a failure here; the caller knows whether it came from outside."""
    RUNNING.set(context)
    try:
        returned = await _in_this_process(task.function(**_arguments(task, attempt, context)))
        _check_has_run(task, returned)
        ended = _ending_in(returned)
    except BaseException as error:  # noqa: BLE001 - see above
        return _result(error, task, attempt, context)
    return _result(ended, task, attempt, context)


@types.coroutine
def _in_this_process(coroutine: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Awaits a coroutine, and exits after a step that returns in a forked child.

    A forked child that returned to the event loop would use its parent's connections and run its parent's jobs.
    """
    process = os.getpid()
    step: Callable[[], Any] = partial(coroutine.send, None)
    while True:
        try:
            waits_for = step()
        except StopIteration as returned:
            _exit_if_forked(process)
            return returned.value
        except BaseException:
            _exit_if_forked(process)
            raise
        _exit_if_forked(process)
        try:
            sent = yield waits_for
        except GeneratorExit:
            coroutine.close()
            raise
        except BaseException as error:  # noqa: BLE001 - usually a cancellation, which the coroutine handles
            step = partial(coroutine.throw, error)
        else:
            step = partial(coroutine.send, sent)


def _exit_if_forked(process: int) -> None:
    if os.getpid() != process:
        os._exit(0)


def _ending_in(returned: object) -> BaseException | None:
    """Returns what the function has returned, if it is one of the values that a task raises or returns to decide how its job continues.

    It is not raised: one value for all jobs would keep the frames of each, with their bodies.
    """
    if isinstance(returned, type) and issubclass(returned, _ENDINGS):
        kind: type[BaseException] = returned
        return kind()
    return returned if isinstance(returned, _ENDINGS) else None


def _check_has_run(task: Task[..., Any], returned: object) -> None:
    """Raises TypeError if the function has returned a coroutine or a generator, of which no line has run."""
    if isinstance(returned, Coroutine):
        returned.close()  # or it would warn
        instead = "" if task.options.runs_in is RunsIn.LOOP else "write the task as `async def`, and "
        raise TypeError(f"task {task.name} returned a coroutine, which no worker awaits: {instead}await it there")
    if isinstance(returned, Generator | AsyncGenerator):
        raise TypeError(f"task {task.name} returned a generator, and no worker runs its lines: call it in a loop")


def _arguments(task: Task[..., Any], attempt: AttemptInput, context: JobContext) -> dict[str, Any]:
    codec = codec_of(task, attempt.content_type)
    try:
        return task.parameters.decode(codec, attempt.job.body, attempt.job, context, attempt.content_type)
    except Exception as error:
        raise CantDecode(f"the body does not fit task {task.name}: {error}") from error


def _result(
    error: BaseException | None, task: Task[..., Any], attempt: AttemptInput, context: JobContext
) -> AttemptResult:
    return AttemptResult(ending_of(error, context, attempt.retry_of(task)), error)
