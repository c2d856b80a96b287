"""Rereads the shard file when a caller needs it: servers read it one after the other, and a server may be asked about jobs that another
has stored on a new shard.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)

_INTERVAL_S = 1.0
_WAIT_S = 2.0


class MapReader:
    """Joins the calls of one server. `read`: reads the file, and applies its changes. `monotonic`: seconds."""

    def __init__(self, read: Callable[[], Awaitable[None]], monotonic: Callable[[], float]) -> None:
        self._read = read
        self._monotonic = monotonic
        self._began_s: float | None = None
        self._reading: asyncio.Task[bool] | None = None
        self._next: asyncio.Task[bool] | None = None  # the read after that, which has not begun

    async def look(self) -> bool:
        """Reads the file at most once a second, however many callers ask. Returns whether a read has ended that began after this call.

        Waits for at most two seconds: opening a shard may take longer, and continues then.
        """
        if self._next is None:
            self._next = asyncio.create_task(self._read_next(), name="read the shard file")
        task = self._next
        await asyncio.wait({task}, timeout=_WAIT_S)
        return task.done() and not task.cancelled() and task.result()

    async def close(self) -> None:
        """Ends the reads under way."""
        tasks = [task for task in (self._reading, self._next) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _read_next(self) -> bool:
        """A read after the one under way. Returns whether the file could be read."""
        if self._reading is not None:
            await asyncio.wait({self._reading})
        if self._began_s is not None:
            await asyncio.sleep(max(0.0, self._began_s + _INTERVAL_S - self._monotonic()))
        self._reading, self._next = self._next, None
        self._began_s = self._monotonic()
        try:
            await self._read()
        except Exception:
            logger.exception("the shard file could not be read again")
            return False
        finally:
            self._reading = None
        return True
