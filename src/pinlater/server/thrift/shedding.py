"""Which requests give way when the bytes in flight are used up: a caller that sends slowly, or much, must not keep others out.

Only requests that no operation works on yet can give way: incomplete frames, and frames behind a long poll. Each is answered with
an error in its turn, and its connection stays; but a connection with many small requests behind a long poll is closed if its address
holds more than its share.

Weakness: an address stands for a caller. Callers behind one proxy share what one address may hold, and a caller with many addresses
has many shares.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

# A connection that holds less is not worth the search, if the limit is large enough for as many connections as there may be.
HELD_BYTES_MAX = 64 * 1024
HELD_BYTES_LEAST = 1024
# Bytes that are held for longer than this, and than their transfer takes at this rate, are slow.
SLOW_S = 1.0
SLOW_BYTES_A_S = 8 * 1024 * 1024
# Each search sheds this share of the limit more than it needs to, so that searches are rare.
SHED_SHARE = 16


class HoldingConnection(Protocol):
    """A connection, as far as this module needs it."""

    @property
    def held_bytes(self) -> int: ...  # bytes of requests that are not begun

    @property
    def held_since_s(self) -> float: ...  # since when it holds the oldest of them

    @property
    def host(self) -> str: ...  # the address of its peer


Some = TypeVar("Some", bound=HoldingConnection)


def held_bytes_min(limit_bytes: int, max_connections: int) -> int:
    """From how many bytes on a connection may have to give way. Connections that hold less have at most half of the limit together."""
    return max(HELD_BYTES_LEAST, min(HELD_BYTES_MAX, limit_bytes // (2 * max_connections)))


def is_slow(holder: HoldingConnection, now_s: float) -> bool:
    """Whether it holds its bytes for longer than a caller at the lowest rate needs."""
    held_bytes = holder.held_bytes
    return held_bytes > 0 and now_s - holder.held_since_s > SLOW_S + held_bytes / SLOW_BYTES_A_S


def slow_ones(holders: Iterable[Some], now_s: float, bytes_wanted: int) -> list[Some]:
    """The largest of the slow holders, until they free that many bytes."""
    chosen: list[Some] = []
    for holder in sorted(holders, key=lambda each: each.held_bytes, reverse=True):
        if bytes_wanted <= 0:
            break
        if is_slow(holder, now_s):
            chosen.append(holder)
            bytes_wanted -= holder.held_bytes
    return chosen


def beyond_their_share(holders: Sequence[Some], asker: Some, bytes_wanted: int, limit_bytes: int) -> list[Some]:
    """The largest holders at addresses that hold more than their share, for a request from an address that holds less than its own.

    The addresses that hold anything have equal shares of the limit. None gives way below its share.
    """
    held: Counter[str] = Counter()
    at: defaultdict[str, list[Some]] = defaultdict(list)
    for holder in sorted(holders, key=lambda each: each.held_bytes):
        held[holder.host] += holder.held_bytes
        at[holder.host].append(holder)
    share_bytes = limit_bytes // len(held | {asker.host: 1})
    if held[asker.host] >= share_bytes:
        return []
    chosen: list[Some] = []
    while bytes_wanted > 0 and held:
        host = max(held, key=held.__getitem__)
        if held[host] <= share_bytes or not at[host]:
            break
        largest = at[host].pop()
        chosen.append(largest)
        held[host] -= largest.held_bytes
        bytes_wanted -= largest.held_bytes
    return chosen
