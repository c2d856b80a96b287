"""How long calls took, by what they did and by the shard that served them."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import NamedTuple

ENQUEUE, ACK, PICKUP = "enqueue", "ack", "pickup"
# Of a request whose key's home is another shard: it went there first, and its time is not only that of the shard that took it.
SENT_ON = "enqueue sent on"
# On the harmed shard, where claims wait for no locked job.
PICKUP_THERE = "pickup on the harmed shard"
KINDS = (ENQUEUE, ACK, PICKUP, SENT_ON)


class Took(NamedTuple):
    """One answered call. `ended` is a moment of `time.monotonic`."""

    ended: float
    kind: str
    shard: str
    ms: float


class Figures(NamedTuple):
    """Of the calls of one kind in one stretch of time."""

    calls: int
    p50_ms: float
    p99_ms: float


class Latencies:
    """All answered calls of a run."""

    def __init__(self) -> None:
        self._all: list[Took] = []
        self._aside = False

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Calls that end meanwhile don't count: this machine does what another would."""
        self._aside = True
        try:
            yield
        finally:
            self._aside = False

    def add(self, kind: str, shard: str, seconds: float) -> None:
        """It ended now."""
        if not self._aside:
            self._all.append(Took(time.monotonic(), kind, shard, seconds * 1000))

    def figures(self, kind: str, shards: Collection[str], since: float, until: float) -> Figures:
        """Of the calls that these shards served between two moments."""
        found = sorted(
            each.ms for each in self._all if each.kind == kind and each.shard in shards and since <= each.ended <= until
        )
        if not found:
            return Figures(0, 0.0, 0.0)
        return Figures(len(found), found[len(found) // 2], found[min(len(found) - 1, len(found) * 99 // 100)])
