"""Runs one attempt of one queue's tasks: on the loop, in a thread or in a process, with the middleware around it."""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from pinlater.client.values import AckResult, Checkpoint
from pinlater.domain.clock import Clock
from pinlater.worker._attempts.calling import Attempt, Ended, call, call_async, context_of
from pinlater.worker._attempts.endings import Kind, ending_of, failure
from pinlater.worker._attempts.threads import Threads
from pinlater.worker._children.pool import Processes
from pinlater.worker.context import Channel, JobContext, set_current
from pinlater.worker.errors import ProcessDied
from pinlater.worker.middleware import Middleware
from pinlater.worker.retries import delay_of
from pinlater.worker.tasks import Place, Task
from pinlater.worker.tracing import with_trace

_log = logging.getLogger("pinlater.worker")
Checkpoints = Callable[[Checkpoint], Awaitable[AckResult]]


class Runner:
    """Belongs to one queue and one event loop."""

    def __init__(
        self, queue: str, checkpoint: Checkpoints, middleware: Sequence[Middleware], processes: Processes, clock: Clock
    ) -> None:
        self._checkpoint = checkpoint
        self._middleware = middleware
        self._clock = clock
        self.threads = Threads(f"pinlater-{queue}")
        self.processes = processes

    async def run(self, task: Task[..., Any], attempt: Attempt, stopped: Callable[[], Ended | None]) -> Ended:
        """How it ended. Cancelling this stops a coroutine and a process, and leaves a thread running.

        `stopped`: how an attempt ended that was stopped from outside, whatever its handler made of that; None for any other.
        """
        context = context_of(task, attempt, self._channel(task.options.place))
        set_current(context)  # for what hooks log
        try:
            ended = await self._call_after_hooks(task, attempt, context)
        except asyncio.CancelledError:
            from_outside = stopped()
            if from_outside is None:
                raise
            ended = from_outside
        else:
            ended = stopped() or ended
        if self._middleware:
            await self._tell(context, ended)
        return ended

    async def _call_after_hooks(self, task: Task[..., Any], attempt: Attempt, context: JobContext) -> Ended:
        try:
            for middleware in self._middleware:
                await _done(middleware.before(context))
        except Exception as error:  # noqa: BLE001 - a hook may refuse the job as its handler may
            spread = random.random()  # noqa: S311 - spreads retries, guards nothing
            return Ended(ending_of(error, context, attempt.retry_of(task), spread), error)
        return await self._call(task, attempt, context)

    async def _call(self, task: Task[..., Any], attempt: Attempt, context: JobContext) -> Ended:
        place = task.options.place
        if place is Place.LOOP:
            return await call_async(task, attempt, context)
        if place is Place.THREAD:
            return await self.threads.run(partial(call, task, attempt, context))
        try:
            attempt = attempt._replace(trace=with_trace({}))
            return Ended(await self.processes.run(task, attempt, self._checkpoint))
        except ProcessDied as error:
            spread = random.random()  # noqa: S311 - see above
            return Ended(failure(error, delay_of(attempt.retry_of(task), context.attempt, error, spread)), error)

    def _channel(self, place: Place) -> Channel:
        if place is Place.LOOP:
            return Channel(self._clock.now_ms, None, self._checkpoint)
        loop = asyncio.get_running_loop()

        def ask(item: Checkpoint) -> AckResult:
            return asyncio.run_coroutine_threadsafe(_awaited(self._checkpoint(item)), loop).result()

        return Channel(self._clock.now_ms, ask)

    async def _tell(self, context: JobContext, ended: Ended) -> None:
        failed = ended.ending.kind in (Kind.FAILED, Kind.GIVEN_UP)
        for middleware in reversed(self._middleware):
            try:
                if failed:
                    await _done(middleware.on_failure(context, ended.ending, ended.error))
                await _done(middleware.after(context, ended.ending))
            except Exception:  # noqa: BLE001 - the job has ended; a hook must not change that
                _log.exception("job %s: middleware %s failed", context.descriptor, type(middleware).__name__)

    def close(self) -> None:
        """Ends threads that are idle, and all processes."""
        self.threads.close()
        self.processes.close()


async def _done(hook: Awaitable[None] | None) -> None:
    if inspect.isawaitable(hook):
        await hook


async def _awaited(answer: Awaitable[AckResult]) -> AckResult:
    return await answer
