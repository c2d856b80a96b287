"""Runs a coroutine without a task, which would cost up to a sixth of a small call.

For coroutines that never ask in which task they run, as `asyncio.timeout` and `TaskGroup` do, and that are never cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


def step(coroutine: Coroutine[Any, Any, Any], done: Callable[[Any, BaseException | None], None]) -> None:
    """Runs it, and calls `done(result, error)` at its end, possibly at once."""

    def proceed(awaited: asyncio.Future[Any] | None = None) -> None:
        """Runs until the coroutine ends or waits. `awaited`: the future for which it waited, which is done."""
        del awaited  # the coroutine gets its result from it
        try:
            waits_for = coroutine.send(None)
        except StopIteration as end:
            done(end.value, None)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 it is the caller's
            done(None, error)
        else:
            if waits_for is None:  # it yields to other tasks
                asyncio.get_running_loop().call_soon(proceed)
            else:
                waits_for._asyncio_future_blocking = False  # noqa: SLF001 what a task says, too, to the future that calls it back
                waits_for.add_done_callback(proceed)

    proceed()
