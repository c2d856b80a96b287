"""Calls a task's function for one attempt: on the event loop, in a thread, and in a child process alike.

An exception of the function is a failure of its job and not of the worker, SystemExit and KeyboardInterrupt included. A function may
fork; a forked child that returns from the function exits at once.
"""

from __future__ import annotations

import os
import types
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping
from functools import partial
from typing import Any, NamedTuple

from pinlater.client.values import ClaimedJob
from pinlater.worker._attempts.endings import Ending, Kind, ending_of
from pinlater.worker._enqueueing.arguments import OCTETS
from pinlater.worker.codecs import Codec, JsonCodec, MessagePackCodec
from pinlater.worker.context import RUNNING, JobContext, ServerCalls
from pinlater.worker.errors import CantDecode, Reject, Retry, Snooze
from pinlater.worker.retries import RetryPolicy
from pinlater.worker.tasks import RunsIn, Task

_ENDINGS = (Reject, Retry, Snooze)
CODECS: Mapping[str, Codec] = {codec.content_type: codec for codec in (JsonCodec(), MessagePackCodec())}


class AttemptInput(NamedTuple):
    """`job.body` and `job.headers` are the producer's own, without the envelope. `trace` is for a child process."""

    job: ClaimedJob
    content_type: str
    deadline_ms: int | None
    default_retry: RetryPolicy
    trace: Mapping[str, str] | None = None

    def beginning_at(self, now_ms: int, task: Task[..., Any]) -> AttemptInput:
        """With the deadline of a function that begins now."""
        limit_ms = task.options.time_limit_ms
        return self._replace(deadline_ms=None if limit_ms is None else now_ms + limit_ms)

    def context_of(self, task: Task[..., Any], server: ServerCalls) -> JobContext:
        """The job as its function sees it."""
        return JobContext(self.job, task.name, server, partial(next_body, task, self.content_type), self.deadline_ms)


class AttemptResult(NamedTuple):
    """How an attempt ended, with the exception if it is in this process."""

    ending: Ending
    error: BaseException | None = None


_SUCCEEDED = AttemptResult(Ending(Kind.SUCCEEDED))


def call(task: Task[..., Any], attempt: AttemptInput, context: JobContext) -> AttemptResult:
    """Calls a plain function."""
    process = os.getpid()
    RUNNING.set(context)
    ended: BaseException | None = None
    try:
        if (returned := task.function(**_arguments(task, attempt, context))) is not None:
            ended = _ending_in(task, returned)
    except BaseException as error:  # noqa: BLE001 - see above
        ended = error
    if os.getpid() != process:
        os._exit(0)
    try:
        return _result(ended, task, attempt, context)
    finally:
        del ended  # or the frame and the error would hold each other, and with them the job's body


async def call_async(task: Task[..., Any], attempt: AttemptInput, context: JobContext) -> AttemptResult:
    """Awaits a coroutine. A cancellation is a failure here; the caller knows whether it came from outside."""
    ended: BaseException | None = None
    try:
        if (returned := await _in_this_process(task.function(**_arguments(task, attempt, context)))) is not None:
            ended = _ending_in(task, returned)
    except BaseException as error:  # noqa: BLE001 - see above
        ended = error
    try:
        return _result(ended, task, attempt, context)
    finally:
        del ended  # or the frame and the error would hold each other, and with them the job's body


def _result(
    ended: BaseException | None, task: Task[..., Any], attempt: AttemptInput, context: JobContext
) -> AttemptResult:
    if ended is None and context.rescheduling is None and not context.why_lost:
        return _SUCCEEDED  # as most do
    return AttemptResult(ending_of(ended, context, task.options.retry or attempt.default_retry), ended)


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
        except BaseException as ended:
            if os.getpid() != process:
                os._exit(0)
            if isinstance(ended, StopIteration):
                return ended.value
            raise
        if os.getpid() != process:
            os._exit(0)
        try:
            sent = yield waits_for
        except GeneratorExit:
            coroutine.close()
            raise
        except BaseException as error:  # noqa: BLE001 - usually a cancellation, which the coroutine handles
            step = partial(coroutine.throw, error)
        else:
            step = partial(coroutine.send, sent)


def _ending_in(task: Task[..., Any], returned: object) -> BaseException | None:
    """Returns what the function has returned, if it is one of the values that a task raises or returns to decide how its job continues.

    It is not raised: one value for all jobs would keep the frames of each, with their bodies.
    Raises TypeError if the function has returned a coroutine or a generator, of which no line has run.
    """
    if isinstance(returned, Coroutine):
        returned.close()  # or it would warn
        instead = "" if task.options.runs_in is RunsIn.LOOP else "write the task as `async def`, and "
        raise TypeError(f"task {task.name} returned a coroutine, which no worker awaits: {instead}await it there")
    if isinstance(returned, Generator | AsyncGenerator):
        raise TypeError(f"task {task.name} returned a generator, and no worker runs its lines: call it in a loop")
    if isinstance(returned, type) and issubclass(returned, _ENDINGS):
        kind: type[BaseException] = returned
        return kind()
    return returned if isinstance(returned, _ENDINGS) else None


def _arguments(task: Task[..., Any], attempt: AttemptInput, context: JobContext) -> dict[str, Any]:
    codec, content_type = task.options.codec, attempt.content_type
    if content_type and content_type != codec.content_type:
        codec = codec_of(task, content_type)
    try:
        return task.parameters.decode(codec, attempt.job.body, attempt.job, context, content_type)
    except Exception as error:
        raise CantDecode(f"the body does not fit task {task.name}: {error}") from error


def codec_of(task: Task[..., Any], content_type: str) -> Codec:
    """The codec of a job's content type; the task's own if the job names none. Raises `CantDecode`."""
    codec = task.options.codec
    if not content_type or content_type in (codec.content_type, OCTETS):
        return codec
    known = CODECS.get(content_type)
    if known is None:
        raise CantDecode(f"task {task.name} can't decode content-type {content_type!r}")
    return known


def next_body(task: Task[..., Any], content_type: str, value: Any, method: str) -> bytes:
    """The body for a job's next attempt: `value` itself if it is bytes, else its encoding in the job's content type.

    Raises TypeError if the task can't be called with it: the next attempt would fail the job for good.
    """
    codec = codec_of(task, content_type)
    try:
        body = value if isinstance(value, bytes) else codec.encode(value)
    except Exception as error:
        raise TypeError(f"task {task.name}: {method}() argument 'body' can't be encoded: {error}") from error
    try:
        task.parameters.decode_body(codec, body, content_type)
    except Exception as error:
        raise TypeError(f"task {task.name}: {method}() argument 'body' does not fit the task: {error}") from error
    return body
