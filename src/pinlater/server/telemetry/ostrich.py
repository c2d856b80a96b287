"""The statistics in the format of the original's admin port: /stats.txt and /stats.json.

Names and layout are a contract with users' scripts: four sections, names sorted, whole numbers in the metrics. So a method
faster than half a millisecond shows 0 here; /metrics has it to the microsecond.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter

from pinlater.server.telemetry.catalogue import (
    METHOD_ERRORS,
    METHOD_MSEC,
    METHOD_REQUESTS,
    QUEUE_COUNTERS,
    QUEUE_HISTOGRAMS,
)
from pinlater.server.telemetry.histogram import Distribution
from pinlater.server.telemetry.metrics import GaugeReading
from pinlater.server.telemetry.numbers import Numbers
from pinlater.server.telemetry.snapshots import Reading

_QUANTILES = (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999), ("p9999", 0.9999))
Sections = Mapping[str, Mapping[str, object]]


def sections(numbers: Numbers) -> Sections:
    """The four sections with their names sorted. Histograms without records are left out, as in the original."""
    return {
        "counters": dict(sorted(_counters(numbers.reading))),
        "gauges": dict(sorted(_gauges(numbers.gauges))),
        "labels": dict(sorted(numbers.labels.items())),
        "metrics": {
            name: summary(spread)
            for name, spread in sorted(_metrics(numbers.reading), key=itemgetter(0))
            if spread.count
        },
    }


def summary(spread: Distribution) -> dict[str, int]:
    """A distribution in whole units, in the original's order of names."""
    quantiles = spread.quantiles(share for _, share in _QUANTILES)
    return {
        "average": round(spread.average),
        "count": spread.count,
        "maximum": round(spread.maximum),
        "minimum": round(spread.minimum),
        **{name: round(value) for (name, _), value in zip(_QUANTILES, quantiles, strict=True)},
        "sum": round(spread.sum),
    }


def text(content: Sections) -> str:
    """Returns one `name: value` per line, each section under its own name."""
    lines: list[str] = []
    for section, entries in content.items():
        lines.append(f"{section}:")
        lines.extend(f"  {name}: {_value(value)}" for name, value in entries.items())
    return "\n".join(lines) + "\n"


def as_json(content: Sections) -> str:
    """The same as one JSON object."""
    return json.dumps(content) + "\n"


def _value(value: object) -> str:
    if isinstance(value, dict):
        return "(" + ", ".join(f"{name}={number}" for name, number in value.items()) + ")"
    return str(value)


def _counters(reading: Reading) -> Iterator[tuple[str, int]]:
    suffixes = tuple(f"_{counter.attribute}" for counter in QUEUE_COUNTERS)
    for queue, queue_reading in reading.queues.items():
        for suffix, count in zip(suffixes, queue_reading.counts, strict=True):
            yield queue + suffix, count
    for method, method_reading in reading.methods.items():
        yield METHOD_REQUESTS.ostrich.format(method=method), method_reading.requests
        for code, count in method_reading.errors.items():
            yield METHOD_ERRORS.ostrich.format(method=method, code=code), count
    yield from reading.counters.items()


def _gauges(gauges: Sequence[GaugeReading]) -> Iterator[tuple[str, float]]:
    for gauge, values in gauges:
        for member, value in values.items():
            yield gauge.name + member, value


def _metrics(reading: Reading) -> Iterator[tuple[str, Distribution]]:
    for queue, queue_reading in reading.queues.items():
        for histogram, spread in zip(QUEUE_HISTOGRAMS, queue_reading.distributions, strict=True):
            yield histogram.ostrich.format(queue=queue), spread
    for method, method_reading in reading.methods.items():
        yield METHOD_MSEC.ostrich.format(method=method), method_reading.msec
