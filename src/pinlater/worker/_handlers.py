"""Handlers: which function runs the jobs of a queue, and how one is called. Knows nothing of claims and acks.

Weakness: a plain function runs in a thread, and a thread can't be stopped from outside.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from pinlater.client.values import ClaimedJob

AsyncFunction = Callable[[ClaimedJob], Awaitable[Any]]
SyncFunction = Callable[[ClaimedJob], Any]


@dataclass(frozen=True, slots=True)
class Handler:
    """A queue's function. `concurrency` None: the worker's."""

    queue: str
    function: Callable[[ClaimedJob], Any]
    concurrency: int | None = None

    @property
    def is_async(self) -> bool:
        """Whether it runs on the loop; else it runs in a thread."""
        return inspect.iscoroutinefunction(self.function) or inspect.iscoroutinefunction(
            getattr(self.function, "__call__", None)  # noqa: B004 - an object with an async __call__ counts too
        )


class Threads:
    """Threads for plain functions. `busy` has an entry for each function that runs now."""

    def __init__(self, count: int, name: str) -> None:
        self.busy: set[object] = set()
        self._pool = ThreadPoolExecutor(count, name)

    async def call(self, handler: Handler, job: ClaimedJob) -> BaseException | None:
        """Runs the function in a thread; returns what it raised. Cancelling this leaves the function running."""
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(self._pool, context.run, self._call, handler, job)

    def _call(self, handler: Handler, job: ClaimedJob) -> BaseException | None:
        entry = object()
        self.busy.add(entry)
        try:
            handler.function(job)
        except BaseException as error:  # noqa: BLE001 - a thread's StopIteration could not even travel through a future
            return error
        finally:
            self.busy.discard(entry)
        return None

    def close(self) -> None:
        """No more jobs; does not wait for those that run."""
        self._pool.shutdown(wait=False, cancel_futures=True)


async def call_handler(handler: Handler, job: ClaimedJob, threads: Threads | None) -> BaseException | None:
    """Runs the handler; returns what it raised, or None. Raises CancelledError only when it was cancelled from outside.

    Whatever the function raises is its job's failure and not the worker's, SystemExit and KeyboardInterrupt included.
    """
    if threads is not None:
        return await threads.call(handler, job)
    try:
        await handler.function(job)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return error
    except BaseException as error:  # noqa: BLE001 - see above
        return error
    return None
