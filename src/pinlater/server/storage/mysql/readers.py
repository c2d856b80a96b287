"""A few connections for reads, each statement committed by itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from pinlater.server.storage.connections import DatabaseConnectionLost, ReaderPool
from pinlater.server.storage.mysql.connection import MysqlConnection
from pinlater.server.storage.mysql.errors import is_ours, translate
from pinlater.server.storage.mysql.settings import MysqlEndpoint, MysqlSettings
from pinlater.server.storage.mysql.stats import Stats

T = TypeVar("T")


class Readers(ReaderPool[MysqlConnection]):
    """Counts lost connections."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[MysqlConnection]],
        endpoint: MysqlEndpoint,
        settings: MysqlSettings,
        stats: Stats,
    ) -> None:
        super().__init__(connect, endpoint, settings, settings.statement_timeout_ms)
        self._endpoint = endpoint
        self._stats = stats

    def _translated(self, error: Exception) -> Exception | None:
        return translate(error, self._endpoint) if is_ours(error) else None

    async def _with(self, connection: MysqlConnection, look: Callable[[MysqlConnection], Awaitable[T]]) -> T:
        try:
            return await super()._with(connection, look)
        except DatabaseConnectionLost:
            self._stats.lost_connections += 1
            raise
