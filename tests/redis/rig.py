"""One shard on a real Redis, with a proxy in between: what the tests of failures work on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from pinlater.server.storage.redis.scripts import names, script
from pinlater.server.storage.redis.settings import RedisEndpoint, RedisSettings
from pinlater.server.storage.redis.shard import RedisShard
from pinlater.server.storage.redis.stats import Stats
from tests.contract.desk import Desk
from tests.redis.consistency import inconsistencies
from tests.servers.proxy import Proxy
from tests.servers.redis import RedisServer

QUEUE = "emails"
FRONT = b"pinlater{1}:"
PATIENCE_S = 30.0

# Short, so that a test of a limit ends soon; long enough for a slow machine.
LIMITS: dict[str, Any] = {
    "command_timeout_ms": 3_000,
    "connect_timeout_ms": 2_000,
    "retries": 3,
    "retry_pause_ms": 5,
}


class Rig:
    """A Redis with one empty shard, reached through `proxy`. Shards and desks made here are closed with it."""

    def __init__(self, server: RedisServer, proxy: Proxy, stack: AsyncExitStack) -> None:
        self.server = server
        self.proxy = proxy
        self._stack = stack

    def shard(self, *, direct: bool = False, **settings: Any) -> RedisShard:
        """A shard that is not open yet. `direct`: past the proxy."""
        port = self.server.port if direct else self.proxy.port
        shard = RedisShard(RedisEndpoint("127.0.0.1", port), RedisSettings(**{**LIMITS, **settings}))
        self._stack.push_async_callback(shard.close)
        return shard

    async def open(self, *, direct: bool = False, **settings: Any) -> RedisShard:
        """An open one."""
        shard = self.shard(direct=direct, **settings)
        await shard.open(0)
        return shard

    async def desk(self, *, direct: bool = False, **settings: Any) -> Desk:
        """An open desk with the queue `emails`."""
        desk = Desk(lambda: self.shard(direct=direct, **settings))
        await desk.open()
        await desk.shard.create_queues([QUEUE], desk.now)
        return desk

    def assert_consistent(self, *, lost: bool = False) -> None:
        assert inconsistencies(self.server, FRONT, lost=lost) == []


@asynccontextmanager
async def rig_on(server: RedisServer) -> AsyncIterator[Rig]:
    """A rig on a running Redis, with an empty shard. All scripts are known to it, so that a call is one packet."""
    with server.session() as ask:
        ask("FLUSHALL")
        for name in names():
            ask("SCRIPT", "LOAD", script(name).text)
    async with AsyncExitStack() as stack:
        yield Rig(server, await stack.enter_async_context(Proxy(server.address)), stack)


def stats_of(desk: Desk) -> Stats:
    """The figures of a desk's shard."""
    assert isinstance(desk.shard, RedisShard)
    return desk.shard.stats


async def until(condition: Callable[[], Awaitable[bool]], every_s: float = 0.01) -> None:
    """Polls until it is so; fails after `PATIENCE_S`."""
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():
            await asyncio.sleep(every_s)


async def gathered(calls: Iterable[Awaitable[Any]]) -> list[Any]:
    """What became of each, errors as values."""
    return await asyncio.gather(*calls, return_exceptions=True)
