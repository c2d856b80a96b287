"""One shard on a real database server, with a proxy in between. Each kind of store has a subclass."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from pinlater.server.storage.commands import create_queues
from pinlater.server.storage.interface import Shard
from tests.contract.desk import QUEUE, Desk
from tests.databases.proxy import Proxy

__all__ = ["DEADLINE_S", "QUEUE", "ProxiedDatabase", "gathered", "stats_of", "until"]

DEADLINE_S = 30.0

ServerT = TypeVar("ServerT")
ShardT = TypeVar("ShardT", bound=Shard)


class ProxiedDatabase(ABC, Generic[ServerT, ShardT]):
    """A database server with one empty shard, reached through `proxy`. Shards and desks made here are closed with it."""

    # The settings of shards made here: short time limits, so that a test of one ends soon.
    limits: ClassVar[dict[str, Any]]
    # The setting that bounds the time of one statement or command.
    time_limit: ClassVar[str]
    # What the packet contains by which a claim whose answer was lost is read again.
    claim_read_again: ClassVar[bytes]
    # Whether a change whose answer is lost counts as a lost connection even if its outcome is found out.
    counts_settled_as_lost: ClassVar[bool]

    def __init__(self, server: ServerT, proxy: Proxy, stack: AsyncExitStack) -> None:
        self.server = server
        self.proxy = proxy
        self._stack = stack

    def closes(self, shard: Shard) -> None:
        """Closes a shard that a test has made itself, too."""
        self._stack.push_async_callback(shard.close)

    @abstractmethod
    def shard(self, *, direct: bool = False, **settings: Any) -> ShardT:
        """A shard that is not open yet. `direct`: past the proxy."""

    async def open(self, *, direct: bool = False, **settings: Any) -> ShardT:
        """An open shard."""
        shard = self.shard(direct=direct, **settings)
        await shard.open(0)
        return shard

    async def desk(self, *, direct: bool = False, time_limit_ms: int | None = None, **settings: Any) -> Desk:
        """An open desk with the queue `emails`. `time_limit_ms` bounds one statement or command."""
        if time_limit_ms is not None:
            settings[self.time_limit] = time_limit_ms
        desk = Desk(lambda: self.shard(direct=direct, **settings))
        await desk.open()
        await desk.shard.submit(create_queues([QUEUE], desk.now))
        return desk

    @property
    @abstractmethod
    def url(self) -> str:
        """The setting `store` of a server on this shard, past the proxy."""

    @abstractmethod
    def packet_of(self, change: str) -> bytes:
        """Bytes that only the packet contains which makes a change final; for `Proxy.lose_answer`.

        `change`: insert, claim, finish, fail, checkpoint, extend or release.
        """

    @abstractmethod
    async def expire_leases(self) -> None:
        """The servers on the shard now have sent no heartbeat for longer than a lease."""

    @abstractmethod
    async def make_older(self, slot: int) -> None:
        """The server with this slot is of the version before ordering keys, and the shard has the schema of a new one."""

    @abstractmethod
    async def schema(self) -> int:
        """The schema that the shard has."""

    @abstractmethod
    def become_older(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """This program is of the version before ordering keys from now on, as far as its schema says it."""

    @abstractmethod
    async def ahead_ms(self, slot: int) -> int | None:
        """How far the server with this slot has said that its time is ahead of the database's; None if it has not."""

    @abstractmethod
    async def clock_s(self) -> int:
        """The time of the database server's clock, in seconds since the epoch."""

    @abstractmethod
    async def assert_consistent(self, *, deleted: bool = False) -> None:
        """All that is stored about each job agrees. `deleted`: jobs were deleted one by one."""


def stats_of(desk: Desk) -> Any:
    """The totals of a desk's shard."""
    shard: Any = desk.shard
    return shard.stats


async def until(condition: Callable[[], Awaitable[bool]], every_s: float = 0.01) -> None:
    """Polls until the condition holds; fails after `DEADLINE_S`."""
    async with asyncio.timeout(DEADLINE_S):
        while not await condition():
            await asyncio.sleep(every_s)


async def gathered(calls: Iterable[Awaitable[Any]]) -> list[Any]:
    """The result of each call; an exception is a result."""
    return await asyncio.gather(*calls, return_exceptions=True)
