"""One time for all servers of the same shards: that of the databases, read once, at the start.

From then on a server continues by its own monotonic clock, so that a jump of a wall clock moves no claim. If a database's clock
has jumped since, the time of the running servers counts, which they store with their heartbeats. Then shards that know it count, and the
others do not. Databases whose clocks differ are equally good, so the median counts.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from pinlater.domain.clock import Clock
from pinlater.domain.errors import PinLaterError, ShardConnectionFailed
from pinlater.server.sharding.shards import Shards
from pinlater.server.storage.commands import AskShardTime
from pinlater.server.storage.interface import Store

_LOOKS = 3


async def ahead_ms(shards: Shards, clock: Clock) -> int:
    """Returns how far the shards' time is ahead of `clock` (less than 0: behind), or 0 if no other server can use them.

    Raises `ShardConnectionFailed` if none answers: the clock of this machine may be wrong.
    """
    if all(shard.shared is None for shard in shards):
        return 0
    stores = [shard.store for shard in shards.in_reach() if shard.shared is not None]
    found = await asyncio.gather(*(_look(store, clock) for store in stores))
    answers = [one for one in found if one is not None]
    if not answers:
        raise ShardConnectionFailed("No shard could be asked for the time by which the servers go")
    told = [one for one in answers if one.of_servers] or answers
    return sorted(one.ahead_ms for one in told)[len(told) // 2]


async def tell_time(shards: Shards, clock: Clock) -> None:
    """Stores at once which time this server uses, for servers that start later. A shard that fails gets it later."""
    shared = [shard for shard in shards.in_reach() if shard.shared is not None]
    answers = await asyncio.gather(*(shard.store.ping(clock.now_ms()) for shard in shared), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, PinLaterError):
            raise answer


class _ClockReading(NamedTuple):
    """How far a shard's time is ahead of this server's clock."""

    took_s: float
    ahead_ms: int
    of_servers: bool


async def _look(store: Store, clock: Clock) -> _ClockReading | None:
    """Returns the quickest of a few answers, which is the most accurate; prefers those with the time of servers. Returns None without an
    answer.
    """
    found: list[_ClockReading] = []
    for _ in range(_LOOKS):
        asked, asked_ms = clock.monotonic(), clock.now_ms()
        try:
            there = await store.submit(AskShardTime())
        except PinLaterError:
            continue
        took_s = clock.monotonic() - asked
        found.append(_ClockReading(took_s, round(there.ms - asked_ms - took_s * 500), there.of_servers))
    return min(found, key=lambda one: (not one.of_servers, one.took_s), default=None)
