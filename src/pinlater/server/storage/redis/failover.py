"""Leaves a master that the Sentinels have replaced.

A master that stood still, or was cut off from the Sentinels, accepts changes until it is told that it is a replica now, and all of these
are lost. So the Sentinels are asked once a second, and not only if a connection is made. Weakness: changes of that second are lost all
the same; with `min-replicas-to-write` the master itself refuses them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from pinlater.server.storage.connections import DatabaseConnectionLost
from pinlater.server.storage.redis.connection import Address, master_address
from pinlater.server.storage.redis.errors import Refused
from pinlater.server.storage.redis.settings import RedisEndpoint, RedisSettings

logger = logging.getLogger(__name__)

_EVERY_S = 1.0


class MasterWatch:
    """`leave` closes the connections to any address but the one that it gets, and returns how many there were. `monotonic` in seconds."""

    def __init__(
        self,
        endpoint: RedisEndpoint,
        settings: RedisSettings,
        leave: Callable[[Address], int],
        monotonic: Callable[[], float],
    ) -> None:
        self._endpoint = endpoint
        self._settings = settings
        self._leave = leave
        self._monotonic = monotonic
        self._asked_at: float | None = None
        self._asking: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Begins to ask, at most once a second. The caller doesn't wait: a Sentinel that hangs must not delay the shard."""
        now = self._monotonic()
        if not self._endpoint.sentinels or (self._asking is not None and not self._asking.done()):
            return
        if self._asked_at is None or now - self._asked_at >= _EVERY_S:
            self._asked_at = now
            self._asking = asyncio.create_task(self._ask())

    async def close(self) -> None:
        """Stops asking."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])

    async def _ask(self) -> None:
        """Asks the Sentinels. Without an answer, connections stay: the master is not wrong because the Sentinels are unreachable."""
        with contextlib.suppress(DatabaseConnectionLost, Refused):
            address = await master_address(self._endpoint, self._settings)
            if left := self._leave(address):
                logger.warning(
                    "the Sentinels name another master; connections to the old one are cut",
                    extra={"shard": str(self._endpoint), "master": f"{address[0]}:{address[1]}", "connections": left},
                )
