"""Runs a coroutine without a task, which would cost as much as a sixth of a small call.

For coroutines that never ask in which task they run, as `asyncio.timeout` and `TaskGroup` do, and that are never cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Stepping:
    """Calls `done(result, error)` at its end, maybe at once. `begin` starts it."""

    __slots__ = ("_coroutine", "_done")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], done: Callable[[Any, BaseException | None], None]) -> None:
        self._coroutine = coroutine
        self._done = done

    def begin(self, awaited: asyncio.Future[Any] | None = None) -> None:
        """Goes on until the coroutine ends or waits. `awaited` is what it waited for, and is done."""
        del awaited  # the coroutine asks it for its result
        try:
            waits_for = self._coroutine.send(None)
        except StopIteration as end:
            self._done(end.value, None)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 it is the caller's
            self._done(None, error)
        else:
            if waits_for is None:  # it lets others have their turn
                asyncio.get_running_loop().call_soon(self.begin)
            else:
                waits_for._asyncio_future_blocking = False  # noqa: SLF001 what a task says, too, to the future that calls it back
                waits_for.add_done_callback(self.begin)
