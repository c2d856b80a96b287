"""Rates of the last minute, from the store's running totals, so that they speak of all servers together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pinlater.domain.clock import Clock
from pinlater.domain.queue import CountsByKind, QueueCounts, Rates
from pinlater.server.sharding.shards import Shards

_WINDOW_SECONDS = 60.0
_ROWS_A_TURN = 2_000


class QueueTotals(NamedTuple):
    """A queue's totals since it was made, all priorities together."""

    enqueued: int = 0
    claimed: int = 0
    succeeded: int = 0
    failed: int = 0
    retried: int = 0


_NOTHING = QueueTotals()


class RateSampler:
    """Keeps a minute of samples of every queue's totals."""

    def __init__(self, shards: Shards, clock: Clock) -> None:
        self._shards = shards
        self._clock = clock
        self._samples: deque[tuple[float, Mapping[str, QueueTotals]]] = deque()
        self._newest: dict[str, Sequence[QueueCounts]] = {}  # of each shard
        self.counts: list[QueueCounts] = []

    async def sample(self) -> float | None:
        """Takes one. What an unreachable shard said last still counts, so that totals don't fall and rise by all it holds.

        Raises the `Unavailable` of a shard that failed, when the sample is taken.
        """
        shards = self._shards.in_reach()
        answers = await asyncio.gather(*(shard.store.count_jobs() for shard in shards), return_exceptions=True)
        failure: BaseException | None = None
        for shard, answer in zip(shards, answers, strict=True):
            if isinstance(answer, BaseException):
                failure = failure or answer
            else:
                self._newest[shard.name] = answer
        self._newest = {shard.name: self._newest.get(shard.name, ()) for shard in self._shards}
        await self._keep(list(self._newest.values()))
        if failure is not None:
            raise failure
        return None

    def of_shards(self) -> dict[str, Sequence[QueueCounts]]:
        """What each shard said last."""
        return self._newest

    async def _keep(self, found: Sequence[Sequence[QueueCounts]]) -> None:
        """In pieces between which others get their turn: there may be thousands of queues."""
        merged = CountsByKind()
        for rows in found:
            for start in range(0, len(rows), _ROWS_A_TURN):
                merged.add(rows[start : start + _ROWS_A_TURN])
                await asyncio.sleep(0)
        counts = merged.rows()
        totals: dict[str, QueueTotals] = {}
        for start in range(0, len(counts), _ROWS_A_TURN):
            for row in counts[start : start + _ROWS_A_TURN]:
                before = totals.get(row.queue, _NOTHING)
                totals[row.queue] = QueueTotals(
                    before.enqueued + row.enqueued_total,
                    before.claimed + row.claimed_total,
                    before.succeeded + row.succeeded_total,
                    before.failed + row.failed_total,
                    before.retried + row.retried_total,
                )
            await asyncio.sleep(0)
        now = self._clock.monotonic()
        self._samples.append((now, totals))
        while len(self._samples) > 2 and self._samples[1][0] <= now - _WINDOW_SECONDS:
            self._samples.popleft()
        self.counts = counts

    def per_second(self, queue: str) -> Rates:
        """Rates since the oldest sample kept, at most a minute ago; zeros before the second sample."""
        if len(self._samples) < 2:
            return Rates()
        (start, before), (end, after) = self._samples[0], self._samples[-1]
        seconds = max(0.001, end - start)
        old, new = before.get(queue, QueueTotals()), after.get(queue, QueueTotals())
        return Rates(*(max(0, b - a) / seconds for a, b in zip(old, new, strict=True)))
