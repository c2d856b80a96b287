"""Rates of the last minute, from the store's running totals, so that they speak of all servers together."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from pinlater.domain.clock import Clock
from pinlater.domain.queue import QueueCounts, Rates
from pinlater.sharding.shards import Shards

_WINDOW_SECONDS = 60.0


class Totals(NamedTuple):
    """A queue's totals since it was made, all priorities together."""

    enqueued: int = 0
    claimed: int = 0
    succeeded: int = 0
    failed: int = 0
    retried: int = 0


class RateSampler:
    """Keeps a minute of samples of every queue's totals."""

    def __init__(self, shards: Shards, clock: Clock) -> None:
        self._shards = shards
        self._clock = clock
        self._samples: deque[tuple[float, Mapping[str, Totals]]] = deque()
        self.counts: list[QueueCounts] = []

    async def sample(self) -> float | None:
        """Takes one."""
        counts = [row for shard in self._shards if shard.healthy for row in await shard.shard.count_jobs()]
        totals: dict[str, Totals] = {}
        for row in counts:
            before = totals.get(row.queue, Totals())
            totals[row.queue] = Totals(
                before.enqueued + row.enqueued_total,
                before.claimed + row.claimed_total,
                before.succeeded + row.succeeded_total,
                before.failed + row.failed_total,
                before.retried + row.retried_total,
            )
        now = self._clock.monotonic()
        self._samples.append((now, totals))
        while len(self._samples) > 2 and self._samples[1][0] <= now - _WINDOW_SECONDS:
            self._samples.popleft()
        self.counts = counts
        return None

    def per_second(self, queue: str) -> Rates:
        """Rates since the oldest sample kept, at most a minute ago; zeros before the second sample."""
        if len(self._samples) < 2:
            return Rates()
        (start, before), (end, after) = self._samples[0], self._samples[-1]
        seconds = max(0.001, end - start)
        old, new = before.get(queue, Totals()), after.get(queue, Totals())
        return Rates(*(max(0, b - a) / seconds for a, b in zip(old, new, strict=True)))
