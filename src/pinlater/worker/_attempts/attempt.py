"""One attempt of a job, as values that can be sent to a child process."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from pinlater.client.values import ClaimedJob
from pinlater.worker._attempts.bodies import next_body
from pinlater.worker._attempts.endings import Ending
from pinlater.worker.context import JobContext, ServerCalls
from pinlater.worker.retries import RetryPolicy
from pinlater.worker.tasks import Task


class AttemptInput(NamedTuple):
    """`job.body` and `job.headers` are the producer's own, without the envelope. `trace` is for a child process."""

    job: ClaimedJob
    content_type: str
    deadline_ms: int | None
    default_retry: RetryPolicy
    trace: Mapping[str, str] | None = None

    def retry_of(self, task: Task[..., Any]) -> RetryPolicy:
        """The task's policy, or the worker's."""
        return task.options.retry or self.default_retry

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
