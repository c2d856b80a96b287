"""The values that a test sees: calls that were enqueued, attempts that were run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from pinlater.client.values import UniqueKey
from pinlater.testing._record import EnqueuedJob
from pinlater.worker import envelope
from pinlater.worker._attempts.calling import CODECS
from pinlater.worker.middleware import Kind
from pinlater.worker.tasks import Task


class EnqueuedCall(NamedTuple):
    """A call of a task as it was enqueued. `arguments` are decoded, by name, defaults included; `headers` the producer's own.

    Times are milliseconds since the epoch, by the service's clock. None: not given.
    """

    task: str
    arguments: Mapping[str, Any]
    descriptor: str
    queue: str
    body: bytes
    enqueued_at_ms: int
    priority: int = 1
    run_after_ms: int | None = None
    attempts_allowed: int | None = None
    headers: Mapping[str, str] = {}
    unique: UniqueKey | None = None
    claim_timeout_ms: int | None = None
    expires_at_ms: int | None = None
    ordering_key: str | None = None

    @property
    def delay(self) -> timedelta:
        """How long it was to wait when it was enqueued."""
        if self.run_after_ms is None:
            return timedelta(0)
        return timedelta(milliseconds=max(0, self.run_after_ms - self.enqueued_at_ms))


class Ran(NamedTuple):
    """One attempt that a worker made. `error` is the task's exception if there is one; `error_type` and `error_text` are the server's
    record of it."""

    task: str
    descriptor: str
    attempt: int
    kind: Kind
    error: BaseException | None = None
    error_type: str = ""
    error_text: str = ""

    @property
    def failed(self) -> bool:
        """Whether it cost the job an attempt, or its life."""
        return self.kind in (Kind.FAILED, Kind.GIVEN_UP)


def call_of(task: Task[..., Any], stored: EnqueuedJob) -> EnqueuedCall | None:
    """The call, or None if the job is another task's. Raises the errors of the task's codec."""
    job = stored.job
    opened = envelope.opened(job.body, job.headers or {})
    if stored.queue != task.queue or opened.task != task.name:
        return None
    return EnqueuedCall(
        task.name,
        arguments_of(task, opened.body, opened.content_type),
        stored.descriptor,
        stored.queue,
        opened.body,
        stored.at_ms,
        job.priority,
        job.run_after_ms,
        job.attempts_allowed,
        opened.headers,
        job.unique,
        job.claim_timeout_ms,
        job.expires_at_ms,
        job.ordering_key,
    )


def arguments_of(task: Task[..., Any], body: bytes, content_type: str) -> dict[str, Any]:
    """A body's arguments, and the defaults of those that it leaves out."""
    parameters, own = task.parameters, task.options.codec
    codec = own if content_type in ("", own.content_type) else CODECS.get(content_type, own)
    bound = parameters.signature.bind(**parameters.decode_body(codec, body, content_type))
    bound.apply_defaults()
    return dict(bound.arguments)
