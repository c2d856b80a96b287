"""What runs around every job of a worker: subclass `Middleware` and hand it to the worker.

    class Timing(Middleware):
        async def after(self, job, ending): ...

Hooks run on the worker's event loop, in the task that runs the job, so what they set in context variables the handler sees, also in
a thread (not in a process, where only the current span of `tracing` goes). They may be coroutines or plain functions that don't block.
"""

from __future__ import annotations

from collections.abc import Awaitable

from pinlater.worker._attempts.endings import Ending as Ending
from pinlater.worker._attempts.endings import Kind as Kind
from pinlater.worker.context import JobContext


class Middleware:
    """Does nothing; override what you need. An exception in a hook is the job's failure in `before`, and only logged later on."""

    def before(self, job: JobContext) -> Awaitable[None] | None:
        """Before the handler. May raise `Reject` or `Snooze` as a handler may."""

    def after(self, job: JobContext, ending: Ending) -> Awaitable[None] | None:
        """After the attempt, however it ended."""

    def on_failure(self, job: JobContext, ending: Ending, error: BaseException | None) -> Awaitable[None] | None:
        """After an attempt that failed, before `after`. `error` is None where it stayed in a child process."""
