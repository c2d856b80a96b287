"""One shard on a real Redis, with a proxy in between: what the tests of failures work on."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from pinlater.server.storage.redis import membership, migration
from pinlater.server.storage.redis.scripts import names, script
from pinlater.server.storage.redis.settings import RedisEndpoint, RedisSettings
from pinlater.server.storage.redis.shard import RedisShard
from tests.databases.proxy import Proxy
from tests.databases.redis import RedisServer
from tests.redis.consistency import inconsistencies
from tests.shared_shards.proxied_database import ProxiedDatabase

FRONT = b"pinlater{1}:"

# Short, so that a test of a limit ends soon; long enough for a slow machine.
LIMITS: dict[str, Any] = {
    "command_timeout_ms": 3_000,
    "connect_timeout_ms": 5_000,
    "retries": 3,
    "retry_pause_ms": 5,
}


# The script that carries a change out.
_SCRIPTS = {"insert": "insert_jobs", "claim": "claim_jobs", "finish": "finish_jobs"}
_OTHER_CHANGES = "change_jobs"


class ProxiedRedis(ProxiedDatabase[RedisServer, RedisShard]):
    """A Redis with the shard `1`."""

    limits = LIMITS
    time_limit = "command_timeout_ms"
    claim_read_again = script("claim_jobs").sha
    counts_settled_as_lost = True

    def shard(
        self, *, direct: bool = False, monotonic: Callable[[], float] = time.monotonic, **settings: Any
    ) -> RedisShard:
        port = self.server.port if direct else self.proxy.port
        endpoint = RedisEndpoint("127.0.0.1", port)
        shard = RedisShard(endpoint, RedisSettings(**{**LIMITS, **settings}), monotonic=monotonic)
        self._stack.push_async_callback(shard.close)
        return shard

    @property
    def url(self) -> str:
        return f"redis://{self.server.address}/0"

    def packet_of(self, change: str) -> bytes:
        return script(_SCRIPTS.get(change, _OTHER_CHANGES)).sha

    async def expire_leases(self) -> None:
        for slot in self.server.execute("HKEYS", FRONT + b"servers"):
            server = self.server.execute("HGET", FRONT + b"servers", slot)
            self.server.execute("HSET", FRONT + b"servers", slot, server[:24] + bytes(8) + server[32:])

    async def make_older(self, slot: int) -> None:
        self.server.execute("HDEL", FRONT + b"meta", f"p{slot}")
        self.server.execute("HSET", FRONT + b"meta", "schema", migration.AT_ONCE)

    async def schema(self) -> int:
        return int(self.server.execute("HGET", FRONT + b"meta", "schema"))

    def become_older(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for module in (migration, membership):
            monkeypatch.setattr(module, "NEWEST", migration.ORDERED - 2)

    async def ahead_ms(self, slot: int) -> int | None:
        server: bytes = self.server.execute("HGET", FRONT + b"servers", slot)
        ahead_ms: int | None = json.loads(server[32:])[-1]
        return ahead_ms

    async def clock_s(self) -> int:
        return int(self.server.execute("TIME")[0])

    async def assert_consistent(self, *, deleted: bool = False, lost: bool = False) -> None:
        """`lost`: records of jobs were deleted past the store."""
        assert inconsistencies(self.server, FRONT, lost=lost) == []


@asynccontextmanager
async def proxied(server: RedisServer) -> AsyncIterator[ProxiedRedis]:
    """A database on a running Redis, with an empty shard. All scripts are known to it, so that a call is one packet."""
    with server.session() as ask:
        ask("FLUSHALL")
        for name in names():
            ask("SCRIPT", "LOAD", script(name).text)
    async with AsyncExitStack() as stack:
        yield ProxiedRedis(server, await stack.enter_async_context(Proxy(server.address)), stack)
