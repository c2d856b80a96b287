"""What the memberships of all shared stores have in common: slots, their leases, and the time that the servers of a shard agree on.

`interface.SharedStore` says what a lease promises.
"""

from __future__ import annotations

from collections.abc import Iterable

from pinlater.domain.clock import CLOCK_JUMP_MS
from pinlater.domain.errors import ShardConnectionFailed
from pinlater.domain.ids import SLOTS
from pinlater.server.storage.values import Member

COMPARED_WITHIN_MS = 500
"""A heartbeat that takes longer says too little about the difference between the server's clock and the store's."""


def is_alive(seen_ms: int, now_ms: int, lease_ms: int) -> bool:
    """Whether the lease still holds. A heartbeat from the future is from before the clock was set back."""
    return abs(now_ms - seen_ms) < lease_ms


def no_free_slot() -> ShardConnectionFailed:
    """The error of a server that finds every slot leased."""
    return ShardConnectionFailed(f"All {SLOTS} slots for servers are taken; wait until those that are gone lapse")


def each_once(alive: Iterable[Member]) -> list[Member]:
    """Each server once, by slot: after a failover a server has two slots until the lease of the old one lapses."""
    # A server without an address may be any of them.
    newest = {(one.name, one.address or one.slot): one for one in sorted(alive, key=lambda one: one.started_at_ms)}
    return sorted(newest.values(), key=lambda one: one.slot)


def agreed_ms(now_ms: int, ahead_ms: Iterable[int]) -> int:
    """The time of the servers that are `ahead_ms` of the store's time `now_ms`; the latter if there are none or they agree with it."""
    ahead = sorted(ahead_ms)
    if not ahead or abs(ahead[len(ahead) // 2]) < CLOCK_JUMP_MS:
        return now_ms
    return now_ms + ahead[len(ahead) // 2]
