"""Where one queue's functions run, besides the event loop: threads and child processes; and the middleware's hooks around them."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol

from pinlater.client.values import AckResult, Checkpoint
from pinlater.domain.clock import Clock
from pinlater.worker._attempts.calling import AttemptInput, AttemptResult, call
from pinlater.worker._attempts.endings import Kind, ending_of, failure
from pinlater.worker._attempts.threads import Threads
from pinlater.worker._children.pool import ChildPool
from pinlater.worker.context import JobContext, ServerCalls
from pinlater.worker.errors import ProcessDied, TimeLimitExceeded
from pinlater.worker.middleware import Middleware
from pinlater.worker.tasks import RunsIn, Task
from pinlater.worker.tracing import with_trace

_log = logging.getLogger("pinlater.worker")
SendCheckpoint = Callable[[Checkpoint], Awaitable[AckResult]]


class LimitedJob(Protocol):
    """A job whose time limit begins anew when its process begins its function."""

    def suspend_limit(self, start_ms: int) -> None: ...

    def begin_limit(self) -> bool: ...


class Places:
    """Belongs to one queue and one event loop."""

    def __init__(
        self,
        queue: str,
        checkpoint: SendCheckpoint,
        middleware: Sequence[Middleware],
        children: ChildPool,
        clock: Clock,
    ) -> None:
        self.middleware = middleware
        self.calls_on_loop = ServerCalls(clock.now_ms, None, checkpoint)
        self.threads = Threads(f"pinlater-{queue}")
        self._checkpoint = checkpoint
        self._clock = clock
        self._children = children

    async def call(
        self, task: Task[..., Any], attempt: AttemptInput, context: JobContext, job: LimitedJob
    ) -> AttemptResult:
        """How the attempt ended. Cancelling this kills a child process; a thread continues."""
        if task.options.runs_in is RunsIn.THREAD:
            return await self.threads.run(partial(call, task, attempt, context))
        try:
            attempt = attempt._replace(trace=with_trace({}))
            job.suspend_limit(self._children.start_ms)
            return AttemptResult(await self._children.run(task, attempt, self._checkpoint, job.begin_limit))
        except (ProcessDied, TimeLimitExceeded) as error:
            return AttemptResult(failure(error, context.attempt, task.options.retry or attempt.default_retry), error)

    def calls_from_a_thread(self) -> ServerCalls:
        """How a function in a thread reaches the server: by way of the event loop."""
        loop = asyncio.get_running_loop()

        def checkpoint(item: Checkpoint) -> AckResult:
            return asyncio.run_coroutine_threadsafe(_awaited(self._checkpoint(item)), loop).result()

        return ServerCalls(self._clock.now_ms, checkpoint)

    # --- hooks ------------------------------------------------------------------------------------------------------------
    async def call_start_hooks(
        self, task: Task[..., Any], attempt: AttemptInput, context: JobContext
    ) -> AttemptResult | None:
        """How the attempt ended, if a hook rejects it before it begins."""
        try:
            for middleware in self.middleware:
                await _completed(middleware.before(context))
        except Exception as error:  # noqa: BLE001 - a hook may reject the job as its function may
            return AttemptResult(ending_of(error, context, task.options.retry or attempt.default_retry), error)
        return None

    async def call_end_hooks(self, context: JobContext, result: AttemptResult) -> None:
        """A hook that fails changes nothing."""
        failed = result.ending.kind in (Kind.FAILED, Kind.GIVEN_UP)
        for middleware in reversed(self.middleware):
            try:
                if failed:
                    await _completed(middleware.on_failure(context, result.ending, result.error))
                await _completed(middleware.after(context, result.ending))
            except Exception:  # noqa: BLE001 - the job has ended; a hook must not change that
                _log.exception("job %s: middleware %s failed", context.descriptor, type(middleware).__name__)

    def close(self) -> None:
        """Ends idle threads, and all child processes."""
        self.threads.close()
        self._children.close()


async def _completed(hook: Awaitable[None] | None) -> None:
    if inspect.isawaitable(hook):
        await hook


async def _awaited(answer: Awaitable[AckResult]) -> AckResult:
    return await answer
