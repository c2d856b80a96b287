"""Rates of the last minute, from the store's running totals, so that they cover all servers. A shard that reports no change is not counted
again, unless jobs in it become due by time alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable, Mapping, Sequence, Set
from typing import NamedTuple

from msgspec.structs import replace

from pinlater.domain.clock import Clock
from pinlater.domain.queue import CountsByKind, QueueCounts, Rates
from pinlater.server.maintenance.drains import Drains
from pinlater.server.sharding.shards import ShardLanes, Shards
from pinlater.server.storage.commands import AskState, CountJobs
from pinlater.wire.generated.structs import ShardJobs

_WINDOW_SECONDS = 60.0
_ROWS_A_TURN = 2_000
# A count also reveals jobs that a shard lost by other means than a change.
_UNCHANGED_S_MAX = 1_800.0


class QueueTotals(NamedTuple):
    """A queue's totals since it was made, all priorities together."""

    enqueued: int = 0
    claimed: int = 0
    succeeded: int = 0
    failed: int = 0
    retried: int = 0


_NOTHING = QueueTotals()


class _Counted(NamedTuple):
    """The answer of a shard, when it was asked, its state before that, and the sums of the rows; `jobs.at_ms`: until when they are known
    to be right. None: the shard was never asked. `unfinished`: the queues with jobs that wait or run."""

    rows: Sequence[QueueCounts]
    state: Hashable | None
    asked_s: float
    jobs: ShardJobs | None
    unfinished: Set[str] = frozenset()

    @property
    def lasts(self) -> bool:
        """Whether it is still right as long as the state is the same."""
        return self.state is not None and not any(row.counts.future for row in self.rows)


_NOT_COUNTED = _Counted((), None, 0.0, None)


def _live(jobs: ShardJobs) -> int:
    """Returns how many jobs wait or run."""
    return jobs.due + jobs.scheduled + jobs.in_progress


class RateSampler:
    """Keeps a minute of samples of every queue's totals."""

    def __init__(self, shards: Shards, clock: Clock) -> None:
        self._shards = shards
        self._clock = clock
        self._samples: deque[tuple[float, Mapping[str, QueueTotals]]] = deque()
        self._newest: dict[str, _Counted] = {}  # of each shard
        self.counts: list[QueueCounts] = []
        self.drains = Drains(clock)

    async def sample(self) -> float | None:
        """Takes a sample. The latest counts of an unreachable shard still apply, so that totals don't fall and rise by all its jobs.

        Raises the `Unavailable` of a shard that failed, when the sample is taken.
        """
        shards = self._shards.in_reach()
        answers = await asyncio.gather(*map(self._count, shards), return_exceptions=True)
        failure: BaseException | None = None
        live: dict[str, int] = {}
        for shard, answer in zip(shards, answers, strict=True):
            if isinstance(answer, BaseException):
                failure = failure or answer
            else:
                self._newest[shard.name] = answer
                live[shard.name] = 0 if answer.jobs is None else _live(answer.jobs)
        self.drains.look(self._shards, live)
        self._newest = {shard.name: self._newest.get(shard.name, _NOT_COUNTED) for shard in self._shards}
        await self._keep([counted.rows for counted in self._newest.values()])
        if failure is not None:
            raise failure
        return None

    @property
    def sampled_s(self) -> float:
        """The time of the last sample (monotonic); 0.0 before the first."""
        return self._samples[-1][0] if self._samples else 0.0

    def of_shards(self) -> dict[str, Sequence[QueueCounts]]:
        """Returns the latest counts of each shard."""
        return {name: counted.rows for name, counted in self._newest.items()}

    def jobs_of(self, shard: str) -> ShardJobs | None:
        """Returns the latest counts of a shard by state, or None before the first."""
        return self._newest.get(shard, _NOT_COUNTED).jobs

    async def _count(self, shard: ShardLanes) -> _Counted:
        now_s = self._clock.monotonic()
        state = None if shard.shared is None else await shard.store.submit(AskState())
        before = self._newest.get(shard.name, _NOT_COUNTED)
        same = before.lasts and before.state == state and now_s - before.asked_s < _UNCHANGED_S_MAX
        if same and before.jobs is not None:
            self._shards.strays.counted(shard.name, before.unfinished, now_s)
            return before._replace(jobs=replace(before.jobs, at_ms=self._clock.now_ms()))
        rows = await shard.store.submit(CountJobs())
        jobs, unfinished = await self._summed(rows)
        self._shards.strays.counted(shard.name, unfinished, now_s)
        return _Counted(rows, state, now_s, jobs, unfinished)

    async def _summed(self, rows: Sequence[QueueCounts]) -> tuple[ShardJobs, Set[str]]:
        """The jobs of all queues and priorities, and the queues with unfinished ones. In pieces between which other tasks run."""
        unfinished = set[str]()
        pending = future = in_progress = succeeded = failed = 0
        oldest_ms: int | None = None
        for start in range(0, len(rows), _ROWS_A_TURN):
            for queue, counts in rows[start : start + _ROWS_A_TURN]:
                if counts.pending or counts.in_progress:
                    unfinished.add(queue)
                pending += counts.pending
                future += counts.future
                in_progress += counts.in_progress
                succeeded += counts.succeeded
                failed += counts.failed
                due_ms = counts.oldest_due_at_ms
                if due_ms is not None and (oldest_ms is None or due_ms < oldest_ms):
                    oldest_ms = due_ms
            await asyncio.sleep(0)
        now_ms = self._clock.now_ms()
        jobs = ShardJobs(now_ms, pending - future, future, in_progress, succeeded, failed, oldest_ms)
        return jobs, unfinished

    async def _keep(self, found: Sequence[Sequence[QueueCounts]]) -> None:
        """Keeps the counts in pieces between which other tasks run: there may be thousands of queues."""
        merged = CountsByKind()
        for rows in found:
            for start in range(0, len(rows), _ROWS_A_TURN):
                merged.add(rows[start : start + _ROWS_A_TURN])
                await asyncio.sleep(0)
        counts = merged.rows()
        totals: dict[str, QueueTotals] = {}
        for start in range(0, len(counts), _ROWS_A_TURN):
            for queue, counted in counts[start : start + _ROWS_A_TURN]:
                before = totals.get(queue, _NOTHING)
                totals[queue] = QueueTotals(
                    before.enqueued + counted.enqueued_total,
                    before.claimed + counted.claimed_total,
                    before.succeeded + counted.succeeded_total,
                    before.failed + counted.failed_total,
                    before.retried + counted.retried_total,
                )
            await asyncio.sleep(0)
        now = self._clock.monotonic()
        self._samples.append((now, totals))
        while len(self._samples) > 2 and self._samples[1][0] <= now - _WINDOW_SECONDS:
            self._samples.popleft()
        self.counts = counts

    def per_second(self, queue: str, seconds: float = _WINDOW_SECONDS) -> Rates:
        """Returns the rates over this time before the last sample, at most a minute; zeros before the second sample."""
        if len(self._samples) < 2:
            return Rates()
        end, after = self._samples[-1]
        start, before = next((one for one in reversed(self._samples) if one[0] <= end - seconds), self._samples[0])
        seconds = max(0.001, end - start)
        old, new = before.get(queue, QueueTotals()), after.get(queue, QueueTotals())
        return Rates(*(max(0, b - a) / seconds for a, b in zip(old, new, strict=True)))
