"""A few connections for reads. Each script is one read of an unchanged shard."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from pinlater.server.storage.connections import DatabaseConnectionLost, ReaderPool
from pinlater.server.storage.redis.connection import Address, Connection
from pinlater.server.storage.redis.errors import ELSEWHERE, Refused, StaleQueues, translate
from pinlater.server.storage.redis.scripts import script
from pinlater.server.storage.redis.settings import RedisEndpoint, RedisSettings
from pinlater.server.storage.redis.stats import Stats


class Readers(ReaderPool[Connection]):
    """Runs scripts and commands on them."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[Connection]],
        endpoint: RedisEndpoint,
        settings: RedisSettings,
        stats: Stats,
    ) -> None:
        super().__init__(connect, endpoint, settings, settings.command_timeout_ms)
        self.stats = stats
        self.endpoint = endpoint

    async def run(self, name: str, *arguments: bytes | int | str) -> Any:
        """Returns the answer of the script of that name. Raises `StaleQueues` and `Unavailable`."""
        return await self.read(lambda connection: connection.run(script(name), *arguments))

    async def command(self, *words: bytes | int | str) -> Any:
        """Returns the answer to a plain command."""
        return await self.read(lambda connection: connection.command(*words))

    def _translated(self, error: Exception) -> Exception | None:
        if isinstance(error, Refused) and error.code == "STALEQUEUE":
            return StaleQueues()
        return translate(error, self.endpoint) if isinstance(error, DatabaseConnectionLost | Refused) else None

    def _leads_elsewhere(self, error: Exception) -> bool:
        return isinstance(error, Refused) and error.code in ELSEWHERE

    def leave(self, address: Address) -> int:
        """Closes the idle connections to any other address. Returns how many there were."""
        elsewhere = [connection for connection in self._idle if connection.address != address]
        for connection in elsewhere:
            self._idle.remove(connection)
            connection.close()
        return len(elsewhere)
