"""One time for all servers of the same shards: that of the databases, asked for once, at the start.

From then on a server goes on by its own monotonic clock, so that a jump of a wall clock moves no claim. If a database's clock
has jumped since, the time of the running servers counts, which they store with their heartbeats. Databases whose
clocks differ from each other are each as good as the other, so the one in the middle counts.
"""

from __future__ import annotations

import asyncio

from pinlater.domain.clock import Clock
from pinlater.domain.errors import PinLaterError
from pinlater.server.sharding.shards import Shards
from pinlater.server.storage.interface import SharedStore

_LOOKS = 3


async def ahead_ms(shards: Shards, clock: Clock) -> int:
    """How far the shards' time is ahead of `clock` (less than 0: behind); 0 if they have none, or none answers."""
    stores = [shard.shared for shard in shards.in_reach() if shard.shared is not None]
    found = await asyncio.gather(*(_ahead_ms(store, clock) for store in stores))
    known = sorted(ahead for ahead in found if ahead is not None)
    return known[len(known) // 2] if known else 0


async def tell_time(shards: Shards, clock: Clock) -> None:
    """Says which time this server goes by, at once, for servers that start later. A shard that fails is told later."""
    shared = [shard for shard in shards.in_reach() if shard.shared is not None]
    answers = await asyncio.gather(*(shard.store.ping(clock.now_ms()) for shard in shared), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, PinLaterError):
            raise answer


async def _ahead_ms(store: SharedStore, clock: Clock) -> int | None:
    """By the quickest of a few answers, which is the nearest to the truth."""
    best: tuple[float, int] | None = None
    for _ in range(_LOOKS):
        asked, asked_ms = clock.monotonic(), clock.now_ms()
        try:
            there_ms = await store.time_ms()
        except PinLaterError:
            break
        took_s = clock.monotonic() - asked
        if best is None or took_s < best[0]:
            best = (took_s, round(there_ms - asked_ms - took_s * 500))
    return None if best is None else best[1]
