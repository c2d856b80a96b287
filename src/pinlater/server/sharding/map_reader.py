"""Reads the shard file again when a caller asks about a shard that this server does not know.

Servers read a changed file one after the other. Until then, one may be asked about a job that another has stored on a new shard.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)

_INTERVAL_S = 1.0
_WAIT_S = 1.0


class MapReader:
    """Joins the calls of one server. `read`: reads the file, and takes over what has changed in it. `monotonic`: seconds."""

    def __init__(self, read: Callable[[], Awaitable[None]], monotonic: Callable[[], float]) -> None:
        self._read = read
        self._monotonic = monotonic
        self._began_s: float | None = None
        self._reading: asyncio.Task[None] | None = None

    async def look(self) -> None:
        """Reads the file, once a second at most, however many callers ask.

        Waits for a second at most: to open a shard may take longer, and goes on then.
        """
        if self._reading is None:
            now_s = self._monotonic()
            if self._began_s is not None and now_s - self._began_s < _INTERVAL_S:
                return
            self._began_s = now_s
            self._reading = asyncio.create_task(self._read_once(), name="read the shard file")
        await asyncio.wait({self._reading}, timeout=_WAIT_S)

    async def close(self) -> None:
        """Ends a read that is under way."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})

    async def _read_once(self) -> None:
        try:
            await self._read()
        except Exception:
            logger.exception("the shard file could not be read again")
        finally:
            self._reading = None
