"""A few connections for reads. Each script is one read of an unchanged shard."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from pinlater.domain.errors import TooManyWaiting
from pinlater.server.storage.redis.connection import Address, Connection
from pinlater.server.storage.redis.errors import ELSEWHERE, RedisConnectionLost, Refused, StaleQueues, translate
from pinlater.server.storage.redis.scripts import script
from pinlater.server.storage.redis.settings import RedisEndpoint, RedisSettings
from pinlater.server.storage.redis.stats import Stats


class Readers:
    """A bounded number of connections; a read that finds none free waits, and the number of waiting reads is bounded."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[Connection]],
        endpoint: RedisEndpoint,
        settings: RedisSettings,
        stats: Stats,
    ) -> None:
        self._connect = connect
        self.stats = stats
        self.endpoint = endpoint
        self._free = asyncio.Semaphore(settings.reader_connections)
        self._idle: list[Connection] = []
        self._waiting = 0
        self._waiting_max = settings.waiting_reads_max
        self._limit_s = settings.command_timeout_ms / 1000

    async def run(self, name: str, *arguments: bytes | int | str) -> Any:
        """What the script of that name answers. Raises `StaleQueues` and `Unavailable`."""
        return await self._read(lambda connection: connection.run(script(name), *arguments))

    async def command(self, *words: bytes | int | str) -> Any:
        """What a plain command answers."""
        return await self._read(lambda connection: connection.command(*words))

    async def _read(self, look: Callable[[Connection], Awaitable[Any]]) -> Any:
        if self._waiting >= self._waiting_max:
            raise TooManyWaiting(f"{self._waiting} look-ups wait for {self.endpoint} already", retry_after_ms=100)
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        try:
            return await self._try(look)
        except (RedisConnectionLost, Refused) as error:
            if isinstance(error, Refused) and error.code == "STALEQUEUE":
                raise StaleQueues from error
            raise translate(error, self.endpoint) from error
        finally:
            self._free.release()

    async def _try(self, look: Callable[[Connection], Awaitable[Any]]) -> Any:
        """Again if an idle connection turns out to be dead, or one to a replica, but not if its time is up."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self._limit_s
        while self._idle:
            connection = self._idle.pop()
            if not connection.alive:
                connection.close()
                continue
            try:
                return await self._with(connection, look)
            except RedisConnectionLost:
                if loop.time() >= give_up_at:
                    raise
            except Refused as refused:
                if refused.code not in ELSEWHERE:
                    raise
        return await self._with(await self._connect(), look)

    async def _with(self, connection: Connection, look: Callable[[Connection], Awaitable[Any]]) -> Any:
        try:
            return await look(connection)
        except Refused as refused:
            if refused.code in ELSEWHERE:
                connection.close()
            raise
        finally:
            if connection.open:
                self._idle.append(connection)

    def leave(self, address: Address) -> int:
        """Cuts the idle connections to any other address; how many there were."""
        elsewhere = [connection for connection in self._idle if connection.address != address]
        for connection in elsewhere:
            self._idle.remove(connection)
            connection.close()
        return len(elsewhere)

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().quit()
