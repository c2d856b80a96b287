"""Carries out one attempt where it is: opens the body, calls the function, says how it ended. The same on the loop, in a thread and
in a process.

Whatever the function raises is its job's failure and not the worker's, SystemExit and KeyboardInterrupt included. A handler may fork;
a child that comes back from it ends there and then.
"""

from __future__ import annotations

import os
import random
import types
from collections.abc import Callable, Coroutine, Generator, Mapping
from functools import partial
from typing import Any, NamedTuple

from pinlater.client.values import ClaimedJob
from pinlater.worker._arguments import OCTETS
from pinlater.worker._endings import Ending, ending_of
from pinlater.worker.codecs import Codec, JsonCodec, MessagePackCodec
from pinlater.worker.context import Channel, JobContext, set_current
from pinlater.worker.errors import CantDecode
from pinlater.worker.retries import RetryPolicy
from pinlater.worker.tasks import Task

CODECS: Mapping[str, Codec] = {codec.content_type: codec for codec in (JsonCodec(), MessagePackCodec())}


class Attempt(NamedTuple):
    """A job in hand, out of its envelope. `job.body` and `job.headers` are the producer's own; `trace` is for another process."""

    job: ClaimedJob
    content_type: str
    deadline_ms: int | None
    default_retry: RetryPolicy
    trace: Mapping[str, str] | None = None

    def retry_of(self, task: Task[..., Any]) -> RetryPolicy:
        """The task's policy, or the worker's."""
        return task.options.retry or self.default_retry


class Ended(NamedTuple):
    """The ending, and the exception itself where it is at hand."""

    ending: Ending
    error: BaseException | None = None


def context_of(task: Task[..., Any], attempt: Attempt, channel: Channel) -> JobContext:
    """What the function may ask of its job."""
    return JobContext(attempt.job, task.name, channel, task.options.codec.encode, attempt.deadline_ms)


def call(task: Task[..., Any], attempt: Attempt, context: JobContext) -> Ended:
    """Calls a plain function."""
    process = os.getpid()
    set_current(context)
    try:
        task.function(**_arguments(task, attempt, context))
    except BaseException as error:  # noqa: BLE001 - see above
        _end_a_fork(process)
        return _ended(error, task, attempt, context)
    _end_a_fork(process)
    return _ended(None, task, attempt, context)


async def call_async(task: Task[..., Any], attempt: Attempt, context: JobContext) -> Ended:
    """Awaits a coroutine. Whether a cancellation was its own or came from outside is for the caller to know."""
    set_current(context)
    try:
        await _in_this_process(task.function(**_arguments(task, attempt, context)))
    except BaseException as error:  # noqa: BLE001 - see above
        return _ended(error, task, attempt, context)
    return _ended(None, task, attempt, context)


@types.coroutine
def _in_this_process(coroutine: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Awaits a coroutine and looks after each of its steps whether this is still the process in which it began.

    A forked child that came back to the event loop would go on with the worker's connections and jobs, beside its parent.
    """
    process = os.getpid()
    step: Callable[[], Any] = partial(coroutine.send, None)
    while True:
        try:
            waits_for = step()
        except StopIteration as returned:
            _end_a_fork(process)
            return returned.value
        except BaseException:
            _end_a_fork(process)
            raise
        _end_a_fork(process)
        try:
            sent = yield waits_for
        except GeneratorExit:
            coroutine.close()
            raise
        except BaseException as error:  # noqa: BLE001 - a cancellation, most likely: the coroutine's to deal with
            step = partial(coroutine.throw, error)
        else:
            step = partial(coroutine.send, sent)


def _end_a_fork(process: int) -> None:
    """A handler forked, and this is the child, which came back: the job is its parent's."""
    if os.getpid() != process:
        os._exit(0)


def _arguments(task: Task[..., Any], attempt: Attempt, context: JobContext) -> dict[str, Any]:
    codec, content_type = task.options.codec, attempt.content_type
    if content_type and content_type not in (codec.content_type, OCTETS):
        known = CODECS.get(content_type)
        if known is None:
            raise CantDecode(f"content-type {content_type!r} is none that task {task.name} takes")
        codec = known
    try:
        return task.parameters.decode(codec, attempt.job.body, attempt.job, context)
    except Exception as error:
        raise CantDecode(f"the body is not what task {task.name} takes: {error}") from error


def _ended(error: BaseException | None, task: Task[..., Any], attempt: Attempt, context: JobContext) -> Ended:
    spread = random.random()  # noqa: S311 - spreads retries, guards nothing
    return Ended(ending_of(error, context, attempt.retry_of(task), spread), error)
