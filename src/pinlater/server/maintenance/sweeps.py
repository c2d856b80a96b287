"""The sweeps: of claims past their deadline, jobs past their expiry, finished jobs past their time to live, and jobs that became due.

Each sweep works in short transactions with pauses of the same length between them, so that no request waits for it and the store is free
for others at least half of the time. A dead worker's thousand jobs come back over about a second: a sweep that found a full batch runs
again after a tenth of its interval, with twice the batch, so that a longer list does not take for ever.

Of the servers of a shard one sweeps it, as far as they agree (`swept_by_others`). The others also sweep it now and then, since that
server may fail in a way that they don't see.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial

from pinlater.domain.clock import Clock
from pinlater.server.dispatch.dispatcher import Dispatcher
from pinlater.server.maintenance.runner import Periodic
from pinlater.server.maintenance.settings import MaintenanceSettings
from pinlater.server.sharding.shard_lanes import ShardLanes
from pinlater.server.sharding.shards import Shards
from pinlater.server.storage.commands import (
    AdvanceDue,
    CollectGarbage,
    ExpireJobs,
    TimeOutClaims,
)
from pinlater.server.storage.values import JobKey, Swept, TimeToLive
from pinlater.server.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)

_PAUSE_SECONDS_MIN = 0.005
# A shard is left to another server for this number of intervals of the work; then this one sweeps it, too.
_LEFT_INTERVALS_MAX = 30
# Does a bounded part of one piece of work on a shard: at most that number of rows; 0 for work that no other server can do for this one.
Sweep = Callable[[ShardLanes, int], Awaitable[int]]


@dataclass(eq=False)
class Sweeps:
    """The bounded pieces of work that `MaintenanceRunner` runs."""

    shards: Shards
    dispatcher: Dispatcher
    ttls: Callable[[], Sequence[TimeToLive]]
    metrics: Metrics
    clock: Clock
    settings: MaintenanceSettings
    quarantine_after: int
    lost_claims: Callable[[str, Mapping[str, str]], None] = lambda queue, sources: None
    """Called with claims that timed out: a queue, and their sources by the descriptor of the job."""
    swept_by_others: Callable[[], Set[str]] = frozenset
    """The names of the shards that another server sweeps."""

    def __post_init__(self) -> None:
        self._batch = self.settings.sweep_batch
        self._swept_s: dict[tuple[str, str], float] = {}  # by kind of work and shard

    async def time_out_claims(self) -> float | None:
        """Puts jobs with claims past their deadline back, or fails them."""

        async def sweep(shard: ShardLanes, limit: int) -> int:
            swept = await shard.store.submit(TimeOutClaims(self.clock.now_ms(), limit, self.quarantine_after))
            for row in swept:
                self._count_timeouts(shard.name, row)
            return sum(row.retried + row.failed + row.lost for row in swept)

        interval_ms = self.settings.sweep_interval_ms
        if await self._most_on_a_shard("claim-timeouts", interval_ms, sweep, self._batch) < self._batch:
            self._batch = self.settings.sweep_batch
            return None
        self._batch = min(self._batch * 2, self.settings.batch_max)
        return interval_ms / 10_000

    def _count_timeouts(self, shard: str, row: Swept) -> None:
        metrics = self.metrics.queue(row.queue)
        metrics.timeout_retry += row.retried
        metrics.timeout_done += row.failed
        metrics.timeout_evict += row.lost
        logger.info("claims timed out", extra={"queue": row.queue, "retried": row.retried, "failed": row.failed})
        if row.ended:
            ended = {JobKey(row.queue, row.priority, id_).on(shard): source for id_, source in row.ended.items()}
            self.lost_claims(row.queue, ended)
        if row.retried:
            self.dispatcher.wakeups.jobs_ready(row.queue, row.retried, past_owner=True)

    async def expire_jobs(self) -> float | None:
        """Fails waiting jobs past their expiry, with status `expired`."""

        async def sweep(shard: ShardLanes, limit: int) -> int:
            swept = await shard.store.submit(ExpireJobs(self.clock.now_ms(), limit))
            for row in swept:
                self.metrics.queue(row.queue).expired += row.failed
            return sum(row.failed for row in swept)

        return await self._pause_after("expiry", self.settings.expiry_interval_ms, sweep, self.settings.batch_max)

    async def advance_due(self) -> float | None:
        """Counts jobs that became due as due."""

        async def sweep(shard: ShardLanes, limit: int) -> int:
            return await shard.store.submit(AdvanceDue(self.clock.now_ms(), limit))

        return await self._pause_after("due", self.settings.due_interval_ms, sweep, self.settings.batch_max * 10)

    async def collect_garbage(self) -> float | None:
        """Deletes finished jobs past their time to live, old keys, and the rows of deleted queues."""
        ttls = self.ttls()
        known = {ttl.queue for ttl in ttls}

        async def sweep(shard: ShardLanes, limit: int) -> int:
            swept = await shard.store.submit(CollectGarbage(ttls, self.clock.now_ms(), limit))
            for row in swept:
                if row.queue in known:
                    metrics = self.metrics.queue(row.queue)
                    metrics.succeeded_gc += row.deleted_succeeded
                    metrics.failed_gc += row.deleted_failed
            return sum(row.deleted_succeeded + row.deleted_failed + row.freed for row in swept)

        return await self._pause_after("garbage", self.settings.garbage_interval_ms, sweep, self.settings.batch_max)

    def periodic(self, work: str, interval_ms: int, sweep: Sweep) -> Periodic:
        """The periodic work of a sweep on all shards."""
        return Periodic(
            work, interval_ms, partial(self._pause_after, work, interval_ms, sweep, self.settings.batch_max)
        )

    async def _pause_after(self, work: str, interval_ms: int, sweep: Sweep, limit: int) -> float | None:
        """Sweeps. Returns when to sweep again: soon if a shard had `limit` rows or more, or None for the usual interval."""
        began = self.clock.monotonic()
        if await self._most_on_a_shard(work, interval_ms, sweep, limit) < limit:
            return None
        return max(_PAUSE_SECONDS_MIN, self.clock.monotonic() - began)

    async def _most_on_a_shard(self, work: str, interval_ms: int, sweep: Sweep, limit: int) -> int:
        """Sweeps all reachable shards at once. Returns the largest number of rows that one of them had. A shard that fails keeps no other
        from being swept.
        """
        shards = self.shards.in_reach()
        left = self.swept_by_others()
        left_s_max = _LEFT_INTERVALS_MAX * interval_ms / 1000
        limits = [limit if self._is_swept_here(work, shard.name, left, left_s_max) else 0 for shard in shards]
        results = await asyncio.gather(
            *(sweep(shard, most) for shard, most in zip(shards, limits, strict=True)), return_exceptions=True
        )
        self._note_swept(work, shards, limits, results)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return max((result for result in results if isinstance(result, int)), default=0)

    def _is_swept_here(self, work: str, shard: str, left: Set[str], left_s_max: float) -> bool:
        now_s = self.clock.monotonic()
        return shard not in left or now_s - self._swept_s.setdefault((work, shard), now_s) >= left_s_max

    def _note_swept(
        self, work: str, shards: Sequence[ShardLanes], limits: Sequence[int], results: Sequence[int | BaseException]
    ) -> None:
        """Notes when these shards were last swept. A sweep that failed or reached its limit is not over."""
        now_s = self.clock.monotonic()
        for shard, limit, result in zip(shards, limits, results, strict=True):
            if isinstance(result, int) and result < limit:
                self._swept_s[work, shard.name] = now_s
