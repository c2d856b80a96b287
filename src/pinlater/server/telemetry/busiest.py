"""The queues that /metrics shows by name: with thousands of them the page would have many megabytes.

The busiest keep their names; all others are added up under the one name that no queue can have. Works on values, in any thread.

Weakness: a queue that becomes one of the busiest leaves the sum, whose counters fall by its values; Prometheus takes that for a restart.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pinlater.domain.queue import CountsByKind, QueueCounts
from pinlater.server.telemetry.catalogue import QUEUE_COUNTERS
from pinlater.server.telemetry.joining import join_queues
from pinlater.server.telemetry.metrics import OVERFLOW, GaugeReading
from pinlater.server.telemetry.numbers import Numbers
from pinlater.server.telemetry.snapshots import QueueReading

_WORK = [index for index, counter in enumerate(QUEUE_COUNTERS) if counter.attribute in {"enqueue", "dequeue"}]
_LABEL = "queue"


def only_busiest(numbers: Numbers, queues_max: int) -> Numbers:
    """Returns the metrics with at most `queues_max` queues by name."""
    queues, counts = numbers.reading.queues, numbers.counts
    names = {*queues, *(row.queue for row in counts)} - {OVERFLOW}
    if len(names) <= queues_max:
        return numbers
    busiest = set(_busiest(names, queues, counts, queues_max))
    return numbers._replace(
        reading=numbers.reading._replace(queues=_fold_readings(queues, busiest)),
        gauges=[_fold_gauge(gauge, busiest) for gauge in numbers.gauges],
        counts=_fold_counts(counts, busiest),
    )


def _busiest(
    names: Iterable[str], queues: Mapping[str, QueueReading], counts: Iterable[QueueCounts], most: int
) -> list[str]:
    """Returns the busiest queues by jobs stored and handed out: on all servers according to the store, or else on this one. Then by name,
    so that the choice is the same each time.
    """
    work: Counter[str] = Counter()
    for row in counts:
        work[row.queue] += row.counts.enqueued_total + row.counts.claimed_total
    for name, reading in queues.items():
        if name not in work:
            work[name] = sum(reading.counts[index] for index in _WORK)
    return heapq.nsmallest(most, names, key=lambda name: (-work[name], name))


def _fold_readings(queues: Mapping[str, QueueReading], busiest: set[str]) -> dict[str, QueueReading]:
    kept = {name: reading for name, reading in queues.items() if name in busiest}
    others = [reading for name, reading in queues.items() if name not in busiest]
    return {**kept, OVERFLOW: join_queues(others)} if others else kept


def _fold_counts(counts: Sequence[QueueCounts], busiest: set[str]) -> list[QueueCounts]:
    folded = CountsByKind()
    folded.add(row if row.queue in busiest else row._replace(queue=OVERFLOW) for row in counts)
    return folded.rows()


def _fold_gauge(reading: GaugeReading, busiest: set[str]) -> GaugeReading:
    if reading.gauge.label != _LABEL:
        return reading
    values: dict[str, float] = {}
    for queue, value in reading.values.items():
        name = queue if queue in busiest else OVERFLOW
        values[name] = values.get(name, 0) + value
    return reading._replace(values=values)
