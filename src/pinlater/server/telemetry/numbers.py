"""All data of the statistics pages, as one value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from pinlater.domain.queue import QueueCounts
from pinlater.server.telemetry.metrics import GaugeReading, Metrics
from pinlater.server.telemetry.snapshots import Reading, Snapshot, difference

NOTHING = Reading({}, {}, {})


class Numbers(NamedTuple):
    """The counts of one process or several (`reading`), their gauges and labels now, and the `counts` of jobs in the store."""

    reading: Reading = NOTHING
    gauges: Sequence[GaugeReading] = ()
    labels: Mapping[str, str] = {}
    counts: Sequence[QueueCounts] = ()


def look(metrics: Metrics, counts: Sequence[QueueCounts], *, last_minute: bool) -> Callable[[], Numbers]:
    """Reads everything now, on the event loop's thread. Call the result, in any thread: it does the expensive part."""
    newer, older = metrics.last_minute() if last_minute else (metrics.snapshot(), None)
    return _numbers(metrics, counts, newer, older)


async def look_in_turns(metrics: Metrics, counts: Sequence[QueueCounts], *, last_minute: bool) -> Callable[[], Numbers]:
    """The same for thousands of queues: in pieces between which other tasks run."""
    newer, older = metrics.last_minute() if last_minute else (await metrics.snapshot_in_turns(), None)
    return _numbers(metrics, counts, newer, older)


def _numbers(
    metrics: Metrics, counts: Sequence[QueueCounts], newer: Snapshot, older: Snapshot | None
) -> Callable[[], Numbers]:
    gauges, labels = metrics.read_gauges(), dict(metrics.labels)
    return lambda: Numbers(difference(newer, older), gauges, labels, counts)
