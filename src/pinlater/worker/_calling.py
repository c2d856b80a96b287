"""Carries out one attempt where it is: opens the body, calls the function, says how it ended. The same on the loop, in a thread and
in a process.

Whatever the function raises is its job's failure and not the worker's, SystemExit and KeyboardInterrupt included.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Mapping
from typing import Any, NamedTuple

from pinlater.client.values import ClaimedJob
from pinlater.worker._arguments import OCTETS
from pinlater.worker._endings import Ending, ending_of
from pinlater.worker.codecs import Codec, JsonCodec, MessagePackCodec
from pinlater.worker.context import Channel, JobContext, set_current
from pinlater.worker.errors import CantDecode
from pinlater.worker.retries import Retry
from pinlater.worker.tasks import Task

CODECS: Mapping[str, Codec] = {codec.content_type: codec for codec in (JsonCodec(), MessagePackCodec())}


class Attempt(NamedTuple):
    """A job in hand, out of its envelope. `job.body` and `job.headers` are the producer's own."""

    job: ClaimedJob
    content_type: str
    deadline_ms: int | None
    default_retry: Retry

    def retry_of(self, task: Task[..., Any]) -> Retry:
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
    set_current(context)
    try:
        task.function(**_arguments(task, attempt, context))
    except BaseException as error:  # noqa: BLE001 - see above
        return _ended(error, task, attempt, context)
    return _ended(None, task, attempt, context)


async def call_async(task: Task[..., Any], attempt: Attempt, context: JobContext) -> Ended:
    """Awaits a coroutine. Whether a cancellation was its own or came from outside is for the caller to know."""
    set_current(context)
    try:
        awaitable: Awaitable[Any] = task.function(**_arguments(task, attempt, context))
        await awaitable
    except BaseException as error:  # noqa: BLE001 - see above
        return _ended(error, task, attempt, context)
    return _ended(None, task, attempt, context)


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
