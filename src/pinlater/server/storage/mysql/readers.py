"""A few connections for reads, each statement committed by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from asyncmy import errors as driver

from pinlater.domain.errors import TooManyWaiting
from pinlater.server.storage.mysql.connection import MysqlConnection, MysqlConnectionLost
from pinlater.server.storage.mysql.errors import is_ours, translate
from pinlater.server.storage.mysql.settings import MysqlEndpoint, MysqlSettings
from pinlater.server.storage.mysql.stats import Stats

T = TypeVar("T")


class Readers:
    """A bounded number of connections; a read that finds none free waits, and the number of waiting reads is bounded."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[MysqlConnection]],
        endpoint: MysqlEndpoint,
        settings: MysqlSettings,
        stats: Stats,
    ) -> None:
        self._connect = connect
        self._stats = stats
        self._endpoint = endpoint
        self._free = asyncio.Semaphore(settings.reader_connections)
        self._idle: list[MysqlConnection] = []
        self._waiting = 0
        self._waiting_max = settings.waiting_reads_max
        self._limit_s = settings.statement_timeout_ms / 1000
        self.connections = 0

    async def read(self, look: Callable[[MysqlConnection], Awaitable[T]]) -> T:
        """What `look` finds. It runs again if an idle connection turns out to be dead, but not if its time is up."""
        if self._waiting >= self._waiting_max:
            raise TooManyWaiting(f"{self._waiting} look-ups wait for {self._endpoint} already", retry_after_ms=100)
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        try:
            return await self._read(look)
        except (MysqlConnectionLost, driver.MySQLError) as error:
            if is_ours(error):
                raise translate(error, self._endpoint) from error
            raise
        finally:
            self._free.release()

    async def _read(self, look: Callable[[MysqlConnection], Awaitable[T]]) -> T:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self._limit_s
        while self._idle:
            connection = self._idle.pop()
            if not connection.alive:
                await connection.quit()
                continue
            try:
                return await self._with(connection, look)
            except MysqlConnectionLost:
                if loop.time() >= give_up_at:
                    raise
        return await self._with(await self._connect(), look)

    async def _with(self, connection: MysqlConnection, look: Callable[[MysqlConnection], Awaitable[T]]) -> T:
        self.connections += 1
        try:
            return await look(connection)
        except MysqlConnectionLost:
            self._stats.lost_connections += 1
            raise
        finally:
            self.connections -= 1
            if connection.open:
                self._idle.append(connection)

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().quit()
