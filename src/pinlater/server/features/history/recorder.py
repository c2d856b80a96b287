"""Summarizes the counts of a minute into samples, one for each queue in which something happened, and stores them.

A batch belongs to one shard from its first attempt on: if the outcome is unknown, only a repeat on that shard replaces it. Weakness: a
server that is killed loses the minute that it had not stored, and the minutes that wait for an unreachable shard.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

from pinlater.domain.clock import Clock
from pinlater.domain.errors import PinLaterError
from pinlater.domain.history import MINUTE_MS, MINUTE_S
from pinlater.domain.queue import PriorityCounts, QueueCounts
from pinlater.server.features.history.buckets import coarsened
from pinlater.server.features.history.sample import UNKNOWN, QueueSample, pack
from pinlater.server.features.history.settings import HistorySettings
from pinlater.server.sharding.shards import ShardLanes, Shards
from pinlater.server.storage.commands import SaveSamples
from pinlater.server.storage.values import StoredSample
from pinlater.server.telemetry.metrics import OVERFLOW, Metrics
from pinlater.server.telemetry.snapshots import QueueReading, Snapshot, changed_queues

logger = logging.getLogger(__name__)

# How long after the end of a minute it is summarized: servers that started together do so at different times.
_SPREAD_MS = 10_000
_BATCHES_MAX = 10
_STOP_S = 2.0
_QUEUES_A_TURN = 200
_ACTIVITY = ("enqueue", "dequeue", "ack_succeeded", "ack_failed", "timeout_retry", "timeout_done", "expired")


class Depth:
    """The unfinished jobs of one queue, over all shards and priorities."""

    __slots__ = ("due", "oldest_due_ms", "running", "scheduled")

    def __init__(self) -> None:
        self.due = self.scheduled = self.running = 0
        self.oldest_due_ms: int | None = None

    def add(self, counts: PriorityCounts) -> None:
        """Adds the counters of one priority."""
        self.due += max(0, counts.pending - counts.future)
        self.scheduled += counts.future
        self.running += counts.in_progress
        due_ms = counts.oldest_due_at_ms
        if due_ms is not None and (self.oldest_due_ms is None or due_ms < self.oldest_due_ms):
            self.oldest_due_ms = due_ms

    @property
    def jobs(self) -> int:
        return self.due + self.scheduled + self.running


@dataclass(slots=True)
class _MinuteBatch:
    """A minute's samples that are not stored yet, and the shard that may have them."""

    samples: Sequence[StoredSample]
    shard: str | None = None


class Recorder:
    """Records for one server. `counts()`: the latest counts of all shards. `origin`: a unique name of this run of the server."""

    def __init__(
        self,
        shards: Shards,
        metrics: Metrics,
        counts: Callable[[], Sequence[QueueCounts]],
        clock: Clock,
        origin: str,
        settings: HistorySettings,
    ) -> None:
        self._shards = shards
        self._metrics = metrics
        self._counts = counts
        self._clock = clock
        self._origin = origin
        self._max_queues = settings.max_queues
        self._before: Snapshot | None = None
        self._last_ms = self._minute_ms() - MINUTE_MS
        self._after_ms = shards.random.randrange(_SPREAD_MS)
        self._deep: Set[str] = frozenset()  # queues that had unfinished jobs a minute before
        self._waiting: deque[_MinuteBatch] = deque()
        self.swept_by_others: Callable[[], Set[str]] = frozenset
        """The names of the shards that another server sweeps, which then reports the depths of the queues."""

    def _minute_ms(self) -> int:
        return self._clock.now_ms() // MINUTE_MS * MINUTE_MS

    async def record(self) -> float:
        """Records the past minute, if it is over, and stores what is not stored yet. Returns the seconds until the next minute ends."""
        over_ms = self._minute_ms() - MINUTE_MS
        if over_ms > self._last_ms:
            self._last_ms = over_ms
            await self._fold(over_ms)
        await self._store_batches()
        return (self._minute_ms() + MINUTE_MS + self._after_ms - self._clock.now_ms()) / 1000

    async def stop(self) -> None:
        """Stores the minute that has begun, within two seconds or not at all."""
        with contextlib.suppress(TimeoutError, PinLaterError):
            async with asyncio.timeout(_STOP_S):
                if self._minute_ms() > self._last_ms:
                    self._last_ms = self._minute_ms()
                    await self._fold(self._last_ms)
                await self._store_batches()

    # --- summarizing ----------------------------------------------------------------------------------------------------

    async def _fold(self, at_ms: int) -> None:
        before, now = self._before, await self._metrics.snapshot_in_turns(self._clock.monotonic())
        self._before = now
        target = self._target()
        depths: Mapping[str, Depth] = {}
        if target is not None and target.name not in self.swept_by_others():
            depths = await self._depths()
        changed = {
            name: reading for name, reading in changed_queues(now, before) if name != OVERFLOW and is_active(reading)
        }
        names = self._chosen(changed, depths)
        samples: list[StoredSample] = []
        for number, name in enumerate(names):
            if number % _QUEUES_A_TURN == _QUEUES_A_TURN - 1:
                await asyncio.sleep(0)
            sample = sample_of(changed.get(name), depths.get(name), self._clock.now_ms())
            samples.append(StoredSample(MINUTE_S, at_ms, name, self._origin, pack(sample)))
        self._deep = {name for name, depth in depths.items() if depth.jobs}
        if samples:
            self._waiting.append(_MinuteBatch(samples))

    async def _depths(self) -> Mapping[str, Depth]:
        """Returns the depths of queues with unfinished jobs now or a minute ago, by name."""
        depths: dict[str, Depth] = {}
        for number, (queue, counts) in enumerate(self._counts()):
            if number % _QUEUES_A_TURN == _QUEUES_A_TURN - 1:
                await asyncio.sleep(0)
            if counts.pending or counts.in_progress or queue in self._deep:
                if queue not in depths:
                    depths[queue] = Depth()
                depths[queue].add(counts)
        return depths

    def _chosen(self, changed: Mapping[str, QueueReading], depths: Mapping[str, Depth]) -> Sequence[str]:
        """The queues that get a sample: if there are too many, those with the most jobs."""
        names = sorted(changed.keys() | depths.keys())
        left_out = len(names) - self._max_queues
        if left_out <= 0:
            return names
        self._metrics.count("history_queues_left_out", left_out)

        def jobs(name: str) -> int:
            depth, reading = depths.get(name), changed.get(name)
            return (depth.jobs if depth else 0) + (
                reading.count("enqueue") + reading.count("dequeue") if reading else 0
            )

        return sorted(sorted(names, key=jobs, reverse=True)[: self._max_queues])

    # --- storing --------------------------------------------------------------------------------------------------------

    def _target(self) -> ShardLanes | None:
        """Returns the shard for new batches: the first reachable shard that accepts enqueues, else the first reachable one."""
        shards = sorted(self._shards.in_reach(), key=lambda shard: (not shard.takes_enqueues, shard.name))
        return shards[0] if shards else None

    async def _store_batches(self) -> None:
        while len(self._waiting) > _BATCHES_MAX:
            self._drop(self._waiting.popleft())
        for batch in list(self._waiting):
            shard = self._shard_of(batch)
            if shard is None:
                continue
            batch.shard = shard.name
            try:
                await shard.store.submit(SaveSamples(batch.samples))
            except PinLaterError as error:
                logger.info("samples of the history wait", extra={"shard": shard.name, "reason": error.message})
                continue
            self._waiting.remove(batch)

    def _shard_of(self, batch: _MinuteBatch) -> ShardLanes | None:
        """Returns the shard for the batch, or None while it has to wait."""
        if batch.shard is None:
            return self._target()
        return next((shard for shard in self._shards.in_reach() if shard.name == batch.shard), None)

    def _drop(self, batch: _MinuteBatch) -> None:
        self._metrics.count("history_samples_dropped", len(batch.samples))


def is_active(reading: QueueReading) -> bool:
    """Returns whether anything happened to jobs: workers that poll an empty queue are no activity."""
    return any(map(reading.count, _ACTIVITY))


def sample_of(reading: QueueReading | None, depth: Depth | None, now_ms: int) -> QueueSample:
    """Returns a sample of one queue's numbers of a minute."""
    due = scheduled = running = oldest_ms = UNKNOWN
    if depth is not None:
        due, scheduled, running = depth.due, depth.scheduled, depth.running
        oldest_ms = 0 if depth.oldest_due_ms is None else max(0, min(now_ms, now_ms - depth.oldest_due_ms))
    if reading is None:
        return QueueSample(due=due, scheduled=scheduled, running=running, oldest_ms=oldest_ms)
    return QueueSample(
        reading.count("enqueue"),
        reading.count("dequeue"),
        reading.count("ack_succeeded"),
        reading.count("ack_failed"),
        reading.count("timeout_retry") + reading.count("timeout_done"),
        reading.count("expired"),
        due,
        scheduled,
        running,
        oldest_ms,
        coarsened(reading.distribution("dequeue_delay_ms").buckets),
        coarsened(reading.distribution("run_ms").buckets),
    )
