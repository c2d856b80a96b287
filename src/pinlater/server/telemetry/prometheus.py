"""The statistics for Prometheus: proper labels, base units (seconds, bytes), cumulative histograms.

A collector is made for one page from values that were already read, so rendering may run in a thread and registers nothing globally.
Empty histograms are left out: with thousands of idle queues they would be most of the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from pinlater.domain.queue import QueueCounts
from pinlater.server.telemetry import catalogue
from pinlater.server.telemetry.histogram import Distribution
from pinlater.server.telemetry.metrics import GaugeReading
from pinlater.server.telemetry.numbers import Numbers
from pinlater.server.telemetry.snapshots import Reading


class PinLaterCollector(Collector):
    """Gives one page's numbers as Prometheus' metric families."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers

    def collect(self) -> Iterator[Metric]:
        reading, gauges, _, counts = self._numbers
        yield from _queue_counters(reading)
        yield from _queue_histograms(reading)
        yield from _methods(reading)
        yield _events(reading)
        yield from _stored_jobs(counts)
        for gauge in gauges:
            yield _gauge(gauge)


def render(numbers: Numbers, processes: Collector | None = None, accept: str = "") -> tuple[bytes, str]:
    """The page and its content type: Prometheus' text, or OpenMetrics if the `Accept` header asks for it.

    `processes`: the metrics of the processes themselves; None shows those of this one.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(PinLaterCollector(numbers))
    registry.register(processes or _process_collector())
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


@cache
def _process_collector() -> Collector:
    return _ProcessCollectors(
        (ProcessCollector(registry=None), PlatformCollector(registry=None), GCCollector(CollectorRegistry()))
    )


class _ProcessCollectors(Collector):
    """The library's own collectors of the process, without its global registry."""

    def __init__(self, collectors: Iterable[Collector]) -> None:
        self._collectors = tuple(collectors)

    def collect(self) -> Iterator[Metric]:
        for collector in self._collectors:
            yield from collector.collect()


def _queue_counters(reading: Reading) -> Iterator[Metric]:
    for index, counter in enumerate(catalogue.QUEUE_COUNTERS):
        family = CounterMetricFamily(counter.prometheus, counter.help, labels=("queue",))
        for queue, found in reading.queues.items():
            family.add_metric((queue,), found.counts[index])
        yield family


def _queue_histograms(reading: Reading) -> Iterator[Metric]:
    for index, histogram in enumerate(catalogue.QUEUE_HISTOGRAMS):
        family = HistogramMetricFamily(histogram.prometheus, histogram.help, labels=("queue",))
        for queue, found in reading.queues.items():
            _add_histogram(family, (queue,), found.distributions[index], histogram.bounds, histogram.scale)
        yield family


def _methods(reading: Reading) -> Iterator[Metric]:
    requests = _counter(catalogue.METHOD_REQUESTS, ("method",))
    errors = _counter(catalogue.METHOD_ERRORS, ("method", "code"))
    spec = catalogue.METHOD_MSEC
    duration = HistogramMetricFamily(spec.prometheus, spec.help, labels=("method",))
    for method, found in reading.methods.items():
        requests.add_metric((method,), found.requests)
        for code, count in found.errors.items():
            errors.add_metric((method, code), count)
        _add_histogram(duration, (method,), found.msec, catalogue.REQUEST_BOUNDS_S, 0.001)
    yield from (requests, errors, duration)


def _events(reading: Reading) -> Metric:
    family = _counter(catalogue.EVENTS, ("name",))
    for name, count in reading.counters.items():
        family.add_metric((name,), count)
    return family


def _stored_jobs(rows: Sequence[QueueCounts]) -> Iterator[Metric]:
    jobs = _gauge_family(catalogue.QUEUE_JOBS, ("queue", "priority", "state"))
    behind = _gauge_family(catalogue.QUEUE_BEHIND_KEY, ("queue", "priority"))
    oldest = _gauge_family(catalogue.QUEUE_OLDEST_DUE, ("queue", "priority"))
    for queue, counts in rows:
        where = (queue, str(counts.priority))
        states = {
            "due": counts.pending - counts.future,
            "future": counts.future,
            "in_progress": counts.in_progress,
            "succeeded": counts.succeeded,
            "failed": counts.failed,
        }
        for state, number in states.items():
            jobs.add_metric((*where, state), number)
        if counts.behind_key:
            behind.add_metric(where, counts.behind_key)
        if counts.oldest_due_at_ms is not None:
            oldest.add_metric(where, counts.oldest_due_at_ms / 1000)
    yield from (jobs, behind, oldest)


def _gauge(reading: GaugeReading) -> Metric:
    gauge, values = reading
    name = gauge.prometheus or "pinlater_" + re.sub(r"[^A-Za-z0-9_]+", "_", gauge.name).strip("_")
    labelled = bool(gauge.label) or set(values) != {""}
    family = GaugeMetricFamily(name, gauge.help or gauge.name, labels=(gauge.label or "name",) if labelled else ())
    for member, value in values.items():
        family.add_metric((member,) if labelled else (), value)
    return family


def _counter(spec: catalogue.OtherMetric, labels: Sequence[str]) -> CounterMetricFamily:
    return CounterMetricFamily(spec.prometheus, spec.help, labels=labels)


def _gauge_family(spec: catalogue.OtherMetric, labels: Sequence[str]) -> GaugeMetricFamily:
    return GaugeMetricFamily(spec.prometheus, spec.help, labels=labels)


@cache
def _bound_texts(bounds: tuple[float, ...]) -> tuple[str, ...]:
    return tuple(str(float(bound)) for bound in bounds)


def _add_histogram(
    family: HistogramMetricFamily, labels: Sequence[str], spread: Distribution, bounds: tuple[float, ...], scale: float
) -> None:
    if not spread.count:
        return
    below = spread.at_most(round(bound / scale, 6) for bound in bounds)
    buckets = [*zip(_bound_texts(bounds), below, strict=True), ("+Inf", spread.count)]
    family.add_metric(labels, buckets, sum_value=spread.sum * scale)
