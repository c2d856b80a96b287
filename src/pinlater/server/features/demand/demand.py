"""The slots that each queue can use, for `/metrics` and `/demand`, without a call to any shard.

All servers report the same numbers, even one that has just started, since they depend only on what is in the shards: the jobs by state
and the number of claims, which each server counts every few seconds anyway, and the run times and enqueues of the last minutes, which all
servers store in the history. The history is read at most once a minute for each queue, and only while it has jobs that wait or run. A
server has no numbers until it has counted all shards for ten seconds, nor while a shard is unreachable or has not been counted for half a
minute. It must never report a smaller number instead: that would end workers.

Weaknesses: the history of a minute is available only when the minute is over. Until then a queue with its first jobs gets a slot for each
of them, unless workers take many a second; so does a queue without a history (`history.max_queues`). The rate of enqueues is some minutes
old. A run time is the mean time from a claim to its ack: workers prefetch jobs of a few milliseconds, so these seem to run for up to 50
ms longer. A few long jobs among very many short ones of one queue may be cut: they are given back. Put such long jobs into a queue of
their own. Acks without a claim token give no run time, and of a request with many acks only four do.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from pinlater.domain.clock import Clock
from pinlater.domain.history import HOUR_S, MINUTE_MS, MINUTE_S, TEN_MINUTES_S
from pinlater.domain.queue import Queue
from pinlater.domain.rate_limit import lower_limit
from pinlater.server.features.demand.formula import QueueWork, slots_wanted
from pinlater.server.features.demand.settings import DemandSettings
from pinlater.server.features.history.buckets import middle_of
from pinlater.server.features.history.sample import unpack
from pinlater.server.maintenance.rates import RateSampler
from pinlater.server.maintenance.settings import MaintenanceSettings
from pinlater.server.operations.service import Service
from pinlater.server.sharding.shards import Shards
from pinlater.server.storage.commands import ListSamples
from pinlater.server.storage.values import SampleRange

_KEPT_MS = 30_000  # how long a sample counts, or a few intervals if these are longer
_ROWS_A_TURN = 500
_QUEUES_A_READ = 100
_READ_EVERY_S = 60.0
_ENQUEUES_MS = 5 * MINUTE_MS
_CLAIMS_S = 10.0
# How far back samples are read, by step: minutes until they are surely part of ten minutes, and these until they are part of an hour.
_RECENT_MS = {MINUTE_S: 15 * MINUTE_MS, TEN_MINUTES_S: 150 * MINUTE_MS}
# For a queue without recent runs: more than a week, for a queue that works once a week.
_LONG_AGO_MS = {HOUR_S: 8 * 24 * 60 * MINUTE_MS}


class Demand:
    """Keeps the numbers of one server."""

    def __init__(self, service: Service) -> None:
        self._shards = service.shards
        self._queues = service.queue_cache
        self._limits = service.dispatcher.limits
        self._clock = service.clock
        self._rates = service.of(RateSampler)
        self._drain_target_s = service.of(DemandSettings).drain_target_s
        self._kept_ms = max(_KEPT_MS, 3 * service.of(MaintenanceSettings).sample_interval_ms)
        self._past = _PastReader(service.shards, service.clock)
        self._complete_since_s = math.inf
        self._sampled_s = 0.0
        self._slots: Mapping[str, int] = {}

    async def look(self) -> None:
        """Takes a new sample of the counts, if there is one. Raises the `Unavailable` of a shard that did not return its history."""
        sampled_s = self._rates.sampled_s
        if not self._is_complete():
            # If a shard is counted again, its jobs look as if they had been claimed just now.
            self._complete_since_s = math.inf
        elif sampled_s != self._sampled_s:
            self._complete_since_s = min(self._complete_since_s, sampled_s)
            if sampled_s - self._complete_since_s >= _CLAIMS_S:
                self._slots = await self._wanted()
                self._sampled_s = sampled_s

    def slots(self) -> Mapping[str, int]:
        """Returns the slots that each queue can use; empty while they are not known."""
        is_fresh = self._clock.monotonic() - self._sampled_s <= self._kept_ms / 1000
        return self._slots if is_fresh and self._is_complete() else {}

    def _is_complete(self) -> bool:
        """Returns whether each shard is in use and has recently reported its counts."""
        since_ms = self._clock.now_ms() - self._kept_ms
        said = [self._rates.jobs_of(shard.name) if shard.healthy else None for shard in self._shards]
        return all(jobs is not None and jobs.at_ms >= since_ms for jobs in said)

    async def _wanted(self) -> Mapping[str, int]:
        in_hand, runnable = Counter[str](), Counter[str]()
        for number, (queue, counts) in enumerate(self._rates.counts):
            if number % _ROWS_A_TURN == _ROWS_A_TURN - 1:
                await asyncio.sleep(0)
            if counts.pending or counts.in_progress:
                in_hand[queue] += counts.in_progress
                runnable[queue] += max(0, counts.pending - counts.future)
        queues = self._queues.queues
        past = await self._past.of([queues[name] for name in in_hand if name in queues])
        slots = dict.fromkeys(queues, 0)
        for number, name in enumerate(in_hand):
            if number % _ROWS_A_TURN == _ROWS_A_TURN - 1:
                await asyncio.sleep(0)
            if name in queues:
                load = self._load(queues[name], in_hand[name], runnable[name], past.get(name, _Past()))
                slots[name] = slots_wanted(load, self._drain_target_s)
        return slots

    def _load(self, queue: Queue, in_hand: int, runnable: int, past: _Past) -> QueueWork:
        limit = lower_limit(self._limits.of_file(queue.name), queue.config.max_jobs_per_second)
        claimed = self._rates.per_second(queue.name, _CLAIMS_S).claimed
        return QueueWork(in_hand, runnable, claimed, past.enqueued, past.run_s, limit, queue.paused)


class _Past(NamedTuple):
    """The past of a queue: jobs enqueued a second, and the mean run time of a job in seconds, None if it is not known."""

    enqueued: float = 0.0
    run_s: float | None = None


class _PastReader:
    """Reads the samples of all servers. Run times of the last minutes have more weight than those of the last hours."""

    def __init__(self, shards: Shards, clock: Clock) -> None:
        self._shards = shards
        self._clock = clock
        self._read_s = -math.inf
        self._past: dict[str, _Past] = {}

    async def of(self, queues: Collection[Queue]) -> Mapping[str, _Past]:
        """Returns the past of these queues, and perhaps of others. Reads each at most once a minute."""
        now_s = self._clock.monotonic()
        if now_s - self._read_s >= _READ_EVERY_S:
            self._read_s, self._past = now_s, {}
        unread = [queue for queue in queues if queue.name not in self._past]
        for start in range(0, len(unread), _QUEUES_A_READ):
            part = unread[start : start + _QUEUES_A_READ]
            found = await self._read(part, _RECENT_MS)
            if quiet := [queue for queue in part if queue.name not in found]:
                found |= await self._read(quiet, _LONG_AGO_MS)
            self._past |= {queue.name: found.get(queue.name, _Past()) for queue in part}
        return self._past

    async def _read(self, queues: Sequence[Queue], steps: Mapping[int, int]) -> dict[str, _Past]:
        """Returns the past of each queue that has run times in the samples of these steps, which cover that many milliseconds."""
        now_ms = self._clock.now_ms()
        made_ms = {queue.name: queue.life.made_ms for queue in queues}
        ranges = [SampleRange(step_s, now_ms - back_ms, now_ms, list(made_ms)) for step_s, back_ms in steps.items()]
        answers = await asyncio.gather(*(shard.store.submit(ListSamples(ranges)) for shard in self._shards))
        stored_by_ms = now_ms - now_ms % MINUTE_MS - MINUTE_MS
        enqueued, runs, run_ms = Counter[str](), Counter[str](), Counter[str]()
        for number, row in enumerate(row for rows in answers for row in rows):
            if number % _ROWS_A_TURN == _ROWS_A_TURN - 1:
                await asyncio.sleep(0)
            if row.at_ms + row.step_s * 1000 <= made_ms[row.queue]:
                continue  # of a former queue with this name
            sample = unpack(row.data)
            if row.step_s == MINUTE_S and stored_by_ms - _ENQUEUES_MS <= row.at_ms < stored_by_ms:
                enqueued[row.queue] += sample.enqueued
            for bucket, count in zip(sample.runs[::2], sample.runs[1::2], strict=True):
                runs[row.queue] += count
                run_ms[row.queue] += middle_of(bucket) * count
        return {
            name: _Past(enqueued[name] * 1000 / _ENQUEUES_MS, run_ms[name] / jobs / 1000) for name, jobs in runs.items()
        }
