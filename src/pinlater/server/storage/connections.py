"""One server's connections to a shard that several servers use, on a database server."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from random import Random
from typing import Generic, NamedTuple, Protocol, TypeVar

from pinlater.domain.errors import TooManyWaiting, Unavailable
from pinlater.server.storage.database_settings import DatabaseSettings

WRITERS = 4
# Pauses between attempts grow to at most 16 times the first: a database that restarts becomes reachable within seconds.
_DOUBLINGS_MAX = 4


class DatabaseConnectionLost(Exception):
    """The connection is lost, or was given up because it took too long. What was sent may or may not be executed."""


class PooledConnection(Protocol):
    """The methods of a connection, whatever its database."""

    @property
    def open(self) -> bool: ...
    @property
    def alive(self) -> bool: ...
    def close(self) -> None: ...
    async def quit(self) -> None: ...


T = TypeVar("T")
C = TypeVar("C", bound=PooledConnection)
Readers = TypeVar("Readers")
Writer = TypeVar("Writer")


class Connections(NamedTuple, Generic[Readers, Writer]):
    """The connections of a shard: for reads, and one for each kind of change, so that none waits for another."""

    readers: Readers
    inserting: Writer
    claiming: Writer
    finishing: Writer
    other: Writer

    @property
    def writers(self) -> tuple[Writer, ...]:
        """All `WRITERS` writers, in the order of their numbers."""
        return self.inserting, self.claiming, self.finishing, self.other


class ReaderPool(ABC, Generic[C]):
    """A bounded number of connections for reads; a read that finds none free waits, and the number of waiting reads is bounded."""

    def __init__(
        self, connect: Callable[[], Awaitable[C]], where: object, settings: DatabaseSettings, limit_ms: int
    ) -> None:
        """`where`: the name of the shard, for errors. `limit_ms`: how long an answer may take."""
        self._connect = connect
        self._where = where
        self._free = asyncio.Semaphore(settings.reader_connections)
        self._idle: list[C] = []
        self._waiting = 0
        self._waiting_max = settings.waiting_reads_max
        self._limit_s = limit_ms / 1000

    @abstractmethod
    def _translated(self, error: Exception) -> Exception | None:
        """Returns the error for callers, or None for an error that is not the database's."""

    def _leads_elsewhere(self, error: Exception) -> bool:
        """Returns whether a new connection may lead to another server, which would not give this error."""
        return False

    async def read(self, look: Callable[[C], Awaitable[T]]) -> T:
        """Returns the result of `look`. It runs again if an idle connection turns out to be dead, but not after its time limit."""
        if self._waiting >= self._waiting_max:
            raise TooManyWaiting(f"{self._waiting} look-ups wait for {self._where} already", retry_after_ms=100)
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        try:
            return await self._read(look)
        except Exception as error:
            translated = None if isinstance(error, Unavailable) else self._translated(error)
            if translated is None:
                raise
            raise translated from error
        finally:
            self._free.release()

    async def _read(self, look: Callable[[C], Awaitable[T]]) -> T:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self._limit_s
        while self._idle:
            connection = self._idle.pop()
            if not connection.alive:
                await connection.quit()
                continue
            try:
                return await self._with(connection, look)
            except DatabaseConnectionLost:
                if loop.time() >= give_up_at:
                    raise
            except Exception as error:
                if not self._leads_elsewhere(error):
                    raise
        return await self._with(await self._connect(), look)

    async def _with(self, connection: C, look: Callable[[C], Awaitable[T]]) -> T:
        try:
            return await look(connection)
        except Exception as error:
            if self._leads_elsewhere(error):
                connection.close()
            raise
        finally:
            if connection.open:
                self._idle.append(connection)

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().quit()


class OneConnection(Generic[C]):
    """The connection of a writer, which makes one change after the other, and its pauses before retries."""

    def __init__(self, connect: Callable[[], Awaitable[C]], settings: DatabaseSettings) -> None:
        self._connect = connect
        self._pause_s = settings.retry_pause_ms / 1000
        self._settle_s = settings.connect_timeout_ms / 1000
        self._random = Random()  # noqa: S311 spreads retries, guards nothing
        self._turn = asyncio.Lock()
        self._connection: C | None = None

    async def close(self) -> None:
        """Waits for the change that is under way."""
        async with self._turn:
            if self._connection is not None:
                await self._connection.quit()

    async def _pause(self, attempt: int) -> None:
        await asyncio.sleep(self._pause_s * 2 ** min(attempt, _DOUBLINGS_MAX) * self._random.random())

    def _settle_until(self) -> float:
        """Returns until when the outcome of a change is queried: a database that refuses connections may be restarting."""
        return now() + self._settle_s


def level(attempt: int) -> int:
    """Returns the log level of a failed attempt: the first one is a warning, and those a few milliseconds later are not."""
    return logging.DEBUG if attempt else logging.WARNING


def now() -> float:
    return asyncio.get_running_loop().time()
