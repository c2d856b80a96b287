"""Hooks around every job of a worker: subclass `Middleware` and pass it to the worker.

    class Timing(Middleware):
        async def after(self, job, ending): ...

Hooks run on the worker's event loop, in the job's asyncio task: the function sees the context variables that they set, also in a
thread. A child process gets only the current span of `tracing`. Hooks are coroutines, or plain functions that don't block.
"""

from __future__ import annotations

from collections.abc import Awaitable

from pinlater.worker._attempts.endings import Ending as Ending
from pinlater.worker._attempts.endings import Kind as Kind
from pinlater.worker.context import JobContext


class Middleware:
    """Override the hooks that you need. An exception in `before` fails the job; in other hooks it is only logged."""

    def before(self, job: JobContext) -> Awaitable[None] | None:
        """Before the function. May raise `Reject` or `Snooze`."""

    def after(self, job: JobContext, ending: Ending) -> Awaitable[None] | None:
        """After the attempt, however it ended."""

    def on_failure(self, job: JobContext, ending: Ending, error: BaseException | None) -> Awaitable[None] | None:
        """After an attempt that failed, before `after`. `error` is None if it occurred in a child process."""
