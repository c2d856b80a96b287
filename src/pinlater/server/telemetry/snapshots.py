"""All numbers at one moment, as values; and the differences between two such moments.

A snapshot is taken on the event loop, in 1 to 3 µs a queue, and ten times that for a queue that changed; everything after that
(differences, text) uses values and may run in any thread. Values that did not change since the previous snapshot are shared with it, so
idle queues cost one reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter, is_
from typing import NamedTuple

from pinlater.server.telemetry.catalogue import QUEUE_COUNTERS, QUEUE_HISTOGRAMS, MethodMetrics, QueueMetrics
from pinlater.server.telemetry.histogram import Distribution, Histogram, Mark

_queue_counts = attrgetter(*(counter.attribute for counter in QUEUE_COUNTERS))
_queue_histograms = attrgetter(*(histogram.attribute for histogram in QUEUE_HISTOGRAMS))

COUNTER_INDEX = {counter.attribute: index for index, counter in enumerate(QUEUE_COUNTERS)}
_HISTOGRAM_INDEX = {histogram.attribute: index for index, histogram in enumerate(QUEUE_HISTOGRAMS)}


class QueueMark(NamedTuple):
    """A queue's counters in the order of the catalogue, and the states of its histograms."""

    source: QueueMetrics
    counts: tuple[int, ...]
    histograms: tuple[Mark, ...]


class MethodMark(NamedTuple):
    """The same for a method."""

    requests: int
    msec: Mark
    errors: Mapping[str, int]


class Snapshot(NamedTuple):
    """All values that only grow, at one moment (seconds of the monotonic clock)."""

    at_s: float
    queues: Mapping[str, QueueMark]
    methods: Mapping[str, MethodMark]
    counters: Mapping[str, int]


class QueueReading(NamedTuple):
    """The counts of a queue, in the order of the catalogue."""

    counts: tuple[int, ...]
    distributions: tuple[Distribution, ...]

    def count(self, attribute: str) -> int:
        """Returns the value of a counter, by its attribute of `QueueMetrics`."""
        return self.counts[COUNTER_INDEX[attribute]]

    def distribution(self, attribute: str) -> Distribution:
        """Returns the distribution of a histogram, by its attribute of `QueueMetrics`."""
        return self.distributions[_HISTOGRAM_INDEX[attribute]]


class MethodReading(NamedTuple):
    """The counts of a method."""

    requests: int
    msec: Distribution
    errors: Mapping[str, int]


class Reading(NamedTuple):
    """The counts of a period."""

    queues: Mapping[str, QueueReading]
    methods: Mapping[str, MethodReading]
    counters: Mapping[str, int]


def mark_queues(queues: Iterable[tuple[str, QueueMetrics]], before: Snapshot | None) -> dict[str, QueueMark]:
    """Returns the present states of some of the queues."""
    old_queues = before.queues if before else {}
    return {name: _mark_queue(queue, old_queues.get(name)) for name, queue in queues}


def take_snapshot(
    at_s: float,
    queues: Mapping[str, QueueMark],
    methods: Mapping[str, MethodMetrics],
    counters: Mapping[str, int],
    before: Snapshot | None,
) -> Snapshot:
    """Returns a snapshot of everything now, with queues that `mark_queues` marked. `before`: any earlier snapshot, to share values with."""
    old_methods = before.methods if before else {}
    return Snapshot(
        at_s,
        queues,
        {name: _mark_method(method, old_methods.get(name)) for name, method in methods.items()},
        dict(counters),
    )


def _mark_queue(queue: QueueMetrics, before: QueueMark | None) -> QueueMark:
    if before is not None and before.source is not queue:
        before = None  # deleted and made again under its old name
    counts = _queue_counts(queue)
    histograms = _queue_histograms(queue)
    if before is None:
        return QueueMark(queue, counts, tuple(histogram.mark() for histogram in histograms))
    marks = tuple(map(Histogram.mark, histograms, before.histograms))
    if counts == before.counts and all(map(is_, marks, before.histograms)):
        return before
    return QueueMark(queue, counts, marks)


def _mark_method(method: MethodMetrics, before: MethodMark | None) -> MethodMark:
    return MethodMark(method.requests, method.msec.mark(before.msec if before else None), dict(method.errors))


def difference(newer: Snapshot, older: Snapshot | None = None) -> Reading:
    """Returns the counts from `older` (None: the start) to `newer`."""
    old_queues = older.queues if older else {}
    old_methods = older.methods if older else {}
    old_counters = older.counters if older else {}
    return Reading(
        {name: _read_queue(mark, old_queues.get(name)) for name, mark in newer.queues.items()},
        {name: _read_method(mark, old_methods.get(name)) for name, mark in newer.methods.items()},
        {name: count - old_counters.get(name, 0) for name, count in newer.counters.items()},
    )


def changed_queues(newer: Snapshot, older: Snapshot | None) -> Iterable[tuple[str, QueueReading]]:
    """Yields the counts of the queues whose numbers changed. An idle one costs a comparison of two references."""
    old_queues = older.queues if older else {}
    for name, mark in newer.queues.items():
        before = old_queues.get(name)
        if mark is not before:
            yield name, _read_queue(mark, before)


def _read_queue(mark: QueueMark, before: QueueMark | None) -> QueueReading:
    if before is None or before.source is not mark.source:
        return QueueReading(mark.counts, tuple(histogram.since(None) for histogram in mark.histograms))
    return QueueReading(
        tuple(new - old for new, old in zip(mark.counts, before.counts, strict=True)),
        tuple(new.since(old) for new, old in zip(mark.histograms, before.histograms, strict=True)),
    )


def _read_method(mark: MethodMark, before: MethodMark | None) -> MethodReading:
    if before is None:
        return MethodReading(mark.requests, mark.msec.since(None), mark.errors)
    errors = {code: count - before.errors.get(code, 0) for code, count in mark.errors.items()}
    return MethodReading(mark.requests - before.requests, mark.msec.since(before.msec), errors)
