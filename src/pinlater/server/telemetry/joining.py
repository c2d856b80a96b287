"""The numbers of several processes as those of one server. Pure arithmetic on values.

Counters and histograms add up, bucket by bucket, so that a percentile of the whole is one, not a mean of percentiles. The maker of a
gauge determines how it joins. Values that all processes read in the store are taken once, from the process that read last.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from pinlater.domain.queue import PriorityCounts, QueueCounts
from pinlater.server.telemetry.histogram import Distribution
from pinlater.server.telemetry.metrics import Gauge, GaugeReading, Join
from pinlater.server.telemetry.numbers import Numbers
from pinlater.server.telemetry.snapshots import MethodReading, QueueReading, Reading


def join(parts: Sequence[Numbers]) -> Numbers:
    """Returns the metrics of all processes together."""
    labels: dict[str, str] = {}
    for part in parts:
        labels.update(part.labels)
    return Numbers(
        join_readings([part.reading for part in parts]),
        join_gauges([gauge for part in parts for gauge in part.gauges]),
        labels,
        join_counts(row for part in parts for row in part.counts),
    )


# --- totals ---------------------------------------------------------------------------------------------------------------------


def join_readings(readings: Sequence[Reading]) -> Reading:
    """Returns the sums of what happened in any of them."""
    if len(readings) == 1:
        return readings[0]
    queues: dict[str, list[QueueReading]] = {}
    methods: dict[str, list[MethodReading]] = {}
    for reading in readings:
        for name, queue in reading.queues.items():
            queues.setdefault(name, []).append(queue)
        for name, method in reading.methods.items():
            methods.setdefault(name, []).append(method)
    return Reading(
        {name: join_queues(found) for name, found in queues.items()},
        {name: _join_method(found) for name, found in methods.items()},
        _add(reading.counters for reading in readings),
    )


def only_queues(reading: Reading, names: Collection[str]) -> Reading:
    """Returns the metrics of these queues only."""
    return reading._replace(queues={name: queue for name, queue in reading.queues.items() if name in names})


def join_queues(found: Sequence[QueueReading]) -> QueueReading:
    """Returns what happened in all of them together."""
    if len(found) == 1:
        return found[0]
    counts = tuple(map(sum, zip(*(queue.counts for queue in found), strict=True)))
    spreads = zip(*(queue.distributions for queue in found), strict=True)
    return QueueReading(counts, tuple(join_distributions(of_all) for of_all in spreads))


def _join_method(found: Sequence[MethodReading]) -> MethodReading:
    if len(found) == 1:
        return found[0]
    return MethodReading(
        sum(method.requests for method in found),
        join_distributions([method.msec for method in found]),
        _add(method.errors for method in found),
    )


def join_distributions(spreads: Sequence[Distribution]) -> Distribution:
    """Returns all records in one distribution. Their steps must be equal."""
    found = [spread for spread in spreads if spread.count]
    if len(found) <= 1:
        return found[0] if found else spreads[0]
    buckets: Counter[int] = Counter()
    for spread in found:
        for bucket, count in spread.buckets:
            buckets[bucket] += count
    return Distribution(
        sum(spread.count for spread in found),
        sum(spread.sum for spread in found),
        min(spread.minimum for spread in found),
        max(spread.maximum for spread in found),
        tuple(sorted(buckets.items())),
        found[0].steps_per_unit,
    )


def _add(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total = Counter[str]()
    for part in parts:
        total.update(part)
    return dict(total)


# --- present values -----------------------------------------------------------------------------------------------------------


_JOINS: Mapping[Join, Callable[[float, float], float]] = {"sum": operator.add, "max": max, "min": min}


def join_gauges(readings: Iterable[GaugeReading]) -> list[GaugeReading]:
    """Returns one reading for each gauge, with the members of all processes."""
    gauges: dict[str, Gauge] = {}
    values: dict[str, dict[str, float]] = {}
    for gauge, found in readings:
        gauges.setdefault(gauge.name, gauge)
        joined, both = values.setdefault(gauge.name, {}), _JOINS[gauge.join]
        for member, value in found.items():
            joined[member] = both(joined[member], value) if member in joined else value
    return [GaugeReading(gauge, values[name]) for name, gauge in gauges.items()]


def join_counts(rows: Iterable[QueueCounts]) -> list[QueueCounts]:
    """Returns one row for each queue and priority, from the process that read the store last: the totals show it, since they only grow."""
    newest: dict[tuple[str, int], QueueCounts] = {}
    for row in rows:
        kind = row.queue, row.counts.priority
        known = newest.get(kind)
        if known is None or _age(row.counts) > _age(known.counts):
            newest[kind] = row
    return [newest[key] for key in sorted(newest)]


def _age(counts: PriorityCounts) -> int:
    return (
        counts.enqueued_total
        + counts.claimed_total
        + counts.succeeded_total
        + counts.failed_total
        + counts.retried_total
    )
