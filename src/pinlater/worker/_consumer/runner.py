"""Runs one attempt where its task wants to run (event loop, thread or child process), with the middleware's hooks around it."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from pinlater.client.values import AckResult, Checkpoint
from pinlater.domain.clock import Clock
from pinlater.worker._attempts.calling import AttemptInput, AttemptResult, call, call_async
from pinlater.worker._attempts.endings import Kind, ending_of, failure
from pinlater.worker._attempts.threads import Threads
from pinlater.worker._children.pool import ChildPool
from pinlater.worker._consumer.held_jobs import HeldJob
from pinlater.worker._consumer.job_stopper import JobStopper
from pinlater.worker.context import RUNNING, JobContext, ServerCalls
from pinlater.worker.errors import ProcessDied, TimeLimitExceeded
from pinlater.worker.middleware import Middleware
from pinlater.worker.tasks import RunsIn, Task
from pinlater.worker.tracing import with_trace

_log = logging.getLogger("pinlater.worker")
SendCheckpoint = Callable[[Checkpoint], Awaitable[AckResult]]


class AttemptRunner:
    """Belongs to one queue and one event loop."""

    def __init__(
        self,
        queue: str,
        checkpoint: SendCheckpoint,
        middleware: Sequence[Middleware],
        children: ChildPool,
        clock: Clock,
    ) -> None:
        self._checkpoint = checkpoint
        self._middleware = middleware
        self._clock = clock
        self._calls_on_loop = ServerCalls(clock.now_ms, None, checkpoint)
        self.threads = Threads(f"pinlater-{queue}")
        self.children = children

    async def run(
        self,
        task: Task[..., Any],
        attempt: AttemptInput,
        held: HeldJob,
        stopper: JobStopper,
        result_of_stop: Callable[[HeldJob], AttemptResult | None],
    ) -> AttemptResult:
        """How the attempt ended. Cancelling this stops a coroutine and kills a child process; a thread goes on.

        Its time limit runs; a child process begins it anew when it begins the function.

        `result_of_stop` overrides the function's own result if the worker stopped the attempt; else it returns None.
        """
        on_loop = task.options.runs_in is RunsIn.LOOP
        context = attempt.context_of(task, self._calls_on_loop if on_loop else self._calls_from_a_thread())
        RUNNING.set(context)
        try:
            result = await self._call_start_hooks(task, attempt, context) if self._middleware else None
            if result is None:
                ran = (
                    call_async(task, attempt, context) if on_loop else self._call(task, attempt, context, held, stopper)
                )
                result = await ran
        except asyncio.CancelledError:
            stopped = result_of_stop(held)
            if stopped is None:
                raise
            result = stopped
        else:
            if held.stopped is not None:
                result = result_of_stop(held) or result
        finally:
            context.is_over = True
        if self._middleware:
            await self._call_end_hooks(context, result)
        return result

    async def _call_start_hooks(
        self, task: Task[..., Any], attempt: AttemptInput, context: JobContext
    ) -> AttemptResult | None:
        try:
            for middleware in self._middleware:
                await _completed(middleware.before(context))
        except Exception as error:  # noqa: BLE001 - a hook may reject the job as its function may
            return AttemptResult(ending_of(error, context, task.options.retry or attempt.default_retry), error)
        return None

    async def _call(
        self, task: Task[..., Any], attempt: AttemptInput, context: JobContext, held: HeldJob, stopper: JobStopper
    ) -> AttemptResult:
        if task.options.runs_in is RunsIn.THREAD:
            return await self.threads.run(partial(call, task, attempt, context))
        try:
            attempt = attempt._replace(trace=with_trace({}))
            limit_ms = task.options.time_limit_ms
            stopper.suspend_limit(held, limit_ms, self.children.start_ms)
            begin = partial(stopper.begin_limit, held, limit_ms)
            return AttemptResult(await self.children.run(task, attempt, self._checkpoint, begin))
        except (ProcessDied, TimeLimitExceeded) as error:
            return AttemptResult(failure(error, context.attempt, task.options.retry or attempt.default_retry), error)

    def _calls_from_a_thread(self) -> ServerCalls:
        loop = asyncio.get_running_loop()

        def checkpoint(item: Checkpoint) -> AckResult:
            return asyncio.run_coroutine_threadsafe(_awaited(self._checkpoint(item)), loop).result()

        return ServerCalls(self._clock.now_ms, checkpoint)

    async def _call_end_hooks(self, context: JobContext, result: AttemptResult) -> None:
        failed = result.ending.kind in (Kind.FAILED, Kind.GIVEN_UP)
        for middleware in reversed(self._middleware):
            try:
                if failed:
                    await _completed(middleware.on_failure(context, result.ending, result.error))
                await _completed(middleware.after(context, result.ending))
            except Exception:  # noqa: BLE001 - the job has ended; a hook must not change that
                _log.exception("job %s: middleware %s failed", context.descriptor, type(middleware).__name__)

    def close(self) -> None:
        """Ends idle threads, and all child processes."""
        self.threads.close()
        self.children.close()


async def _completed(hook: Awaitable[None] | None) -> None:
    if inspect.isawaitable(hook):
        await hook


async def _awaited(answer: Awaitable[AckResult]) -> AckResult:
    return await answer
