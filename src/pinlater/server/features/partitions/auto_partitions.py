"""Lets queues grow and shrink: the owner of the first partition of each queue samples it every few seconds, and applies the decision of
`growth`.

Owners report to each other how busy they are. The share of each queue follows from the counts of the shards, which each server takes every
few seconds anyway. A server that is not busy and owns no queue that has grown only reads its own load.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from pinlater.domain.errors import PinLaterError
from pinlater.domain.queue import Queue, QueueCounts
from pinlater.domain.wording import counted
from pinlater.server.features.history.queries import HistoryQueries
from pinlater.server.features.partitions.growth import (
    BUSY,
    PART,
    Growth,
    NumberChange,
    OwnerLoad,
    PartitionLoad,
    WatchedQueue,
)
from pinlater.server.maintenance.rates import RateSampler
from pinlater.server.operations.service import Service

logger = logging.getLogger(__name__)

_RATE_S = 10.0
_ROWS_A_TURN = 2_000

LoadOf = Callable[[str, str], OwnerLoad | None]
"""For a shard and a queue: how busy the owner of the queue there is; None if that is not known."""


class _JobsDone(NamedTuple):
    """Jobs that were stored since the last sample, and those that were claimed, which count twice because their acks follow.

    `of_queues`: by shard and queue.
    `of_lanes`: by the owner of the queues and the shard.
    `of_loops`: by owner.
    """

    of_queues: Counter[tuple[str, str]]
    of_lanes: Counter[tuple[str, str]]
    of_loops: Counter[str]


class AutoPartitions:
    """Changes the numbers of queues for one server. It does nothing before `join`, and with one shard."""

    def __init__(self, service: Service) -> None:
        self._shards = service.shards
        self._queues = service.queues
        self._cache = service.queue_cache
        self._rates = service.of(RateSampler)
        self._history = service.of(HistoryQueries)
        self._metrics = service.metrics
        self._clock = service.clock
        self._growth = Growth()
        self._before: Mapping[tuple[str, str], int] = {}
        self._sampled_s = 0.0
        self._own_loads: Callable[[], Mapping[str, float]] = dict
        self._load_of: LoadOf = lambda _shard, _queue: None

    def join(self, own_loads: Callable[[], Mapping[str, float]], load_of: LoadOf) -> None:
        """Prepares for other servers that share the shards. `own_loads()`: the load of this server, by shard."""
        self._own_loads, self._load_of = own_loads, load_of

    async def look(self) -> None:
        """Reads a new sample of the counts, if there is one, and makes at most one step."""
        if len(self._shards) == 1 or self._rates.sampled_s == self._sampled_s:
            return
        self._sampled_s = self._rates.sampled_s
        queues = list(self._cache.queues.values())
        grown = [queue for queue in queues if queue.auto_partitions > 1]
        samples: Sequence[WatchedQueue] = ()
        if grown or max(self._own_loads().values(), default=0.0) >= BUSY:
            work = await self._work()
            found = {queue.name: queue for queue in (*grown, *self._busiest(work)) if self._decides_on(queue)}
            samples = [self._sample(queue, work) for queue in found.values()]
        else:
            self._before = {}
        now_ms = self._clock.now_ms()
        step = self._growth.decide(samples, [queue.auto_changed_ms for queue in queues], now_ms)
        if step is not None:
            await self._make(step)

    async def _work(self) -> _JobsDone:
        """Decides about all queues, but not at the first look. Works in pieces, since there may be thousands of queues."""
        before, now = self._before, dict[tuple[str, str], int]()
        for shard, rows in self._rates.of_shards().items():
            for start in range(0, len(rows), _ROWS_A_TURN):
                _add(now, shard, rows[start : start + _ROWS_A_TURN])
                await asyncio.sleep(0)
        self._before = now
        work = _JobsDone(Counter(), Counter(), Counter())
        for number, ((shard, queue), total) in enumerate(now.items() if before else ()):
            if number % _ROWS_A_TURN == _ROWS_A_TURN - 1:
                await asyncio.sleep(0)
            done = total - before.get((shard, queue), 0)
            owner = self._load_of(shard, queue) if done > 0 else None
            if owner is not None:
                work.of_queues[shard, queue] = done
                work.of_lanes[owner.server, shard] += done
                work.of_loops[owner.server] += done
        return work

    def _busiest(self, work: _JobsDone) -> Sequence[Queue]:
        """The queues that may be the reason why this server is busy."""
        busy = {shard for shard, load in self._own_loads().items() if load >= BUSY}
        found: list[Queue] = []
        for (shard, name), done in work.of_queues.items():
            queue = self._cache.queues.get(name)
            load = self._load_of(shard, name) if shard in busy else None
            if queue is not None and load is not None and done >= PART * work.of_lanes[load.server, shard]:
                found.append(queue)
        return found

    def _decides_on(self, queue: Queue) -> bool:
        """Returns whether no operator has set a number, and this server owns the queue on its first partition."""
        order = self._shards.partitions.order(queue.name)
        return queue.config.partitions is None and len(order) > 1 and next(iter(order)).owns(queue.name)

    def _sample(self, queue: Queue, work: _JobsDone) -> WatchedQueue:
        name = queue.name
        shards = [shard.name for shard in self._shards.partitions.order(name)]
        loads = [self._load_of(shard, name) for shard in shards]
        by_server = Counter[str]()  # the work of its owners for the queue
        for shard, load in zip(shards, loads, strict=True):
            if load is not None:
                by_server[load.server] += work.of_queues[shard, name]
        rates = self._rates.per_second(name, _RATE_S)
        return WatchedQueue(
            name,
            min(queue.auto_partitions, len(shards)),
            [
                load
                and PartitionLoad(
                    load.lanes,
                    load.loop,
                    _part(work.of_queues[shard, name], work.of_lanes[load.server, shard]),
                    _part(by_server[load.server], work.of_loops[load.server]),
                )
                for shard, load in zip(shards, loads, strict=True)
            ],
            rates.enqueued + rates.claimed,
            queue.auto_changed_ms,
        )

    async def _make(self, step: NumberChange) -> None:
        try:
            await self._queues.set_auto_partitions(step.queue, step.after)
        except PinLaterError as error:
            reason = {"queue": step.queue, "reason": error.message}
            logger.info("the number of partitions could not be changed", extra=reason)
            return
        self._growth.made(step, self._clock.now_ms())
        self._metrics.count("partitions_changed")
        logger.info(
            "the number of partitions of a queue was changed",
            extra={"queue": step.queue, "before": step.before, "after": step.after, "reason": step.reason.value},
        )
        text = f"{counted(step.after, 'partition')} instead of {step.before}: {step.reason.value}"
        with contextlib.suppress(PinLaterError):  # there may be too many marks
            await self._history.add_mark(text, queue=step.queue)


def _add(totals: dict[tuple[str, str], int], shard: str, rows: Sequence[QueueCounts]) -> None:
    for queue, counts in rows:
        key = (shard, queue)
        totals[key] = totals.get(key, 0) + counts.enqueued_total + 2 * counts.claimed_total


def _part(done: int, of: int) -> float:
    return done / of if of else 0.0
