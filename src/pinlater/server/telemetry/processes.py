"""Prometheus' metrics of each of several processes: memory, time, open files and collections, with the label `process`.

The process that answers reads them from the system; only the interpreter's own numbers must come from the process itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from prometheus_client import PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

_GARBAGE = (
    ("collected", "python_gc_objects_collected", "Objects collected during gc"),
    ("uncollectable", "python_gc_objects_uncollectable", "Uncollectable objects found during GC"),
    ("collections", "python_gc_collections", "Number of times this generation was collected"),
)


class ProcessVitals(NamedTuple):
    """A process by its label. `process_id` None is this one. `garbage`: its collector's numbers, a generation each."""

    label: str
    process_id: int | None
    garbage: Sequence[Mapping[str, int]]


class Processes(Collector):
    """Returns all of them, each family once."""

    def __init__(self, processes: Sequence[ProcessVitals]) -> None:
        self._processes = processes

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for process in self._processes:
            number = process.process_id or "self"
            for family in ProcessCollector(pid=partial(str, number), registry=None).collect():
                joined = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                for sample in family.samples:
                    joined.add_sample(sample.name, {**sample.labels, "process": process.label}, sample.value)
        yield from families.values()
        yield from self._collections()
        yield from PlatformCollector(registry=None).collect()

    def _collections(self) -> Iterator[Metric]:
        for key, name, text in _GARBAGE:
            family = CounterMetricFamily(name, text, labels=("generation", "process"))
            for process in self._processes:
                for generation, found in enumerate(process.garbage):
                    family.add_metric((str(generation), process.label), found[key])
            yield family
