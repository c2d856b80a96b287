"""The measurements of a scenario while it runs: times of enqueues and starts, and the backlog."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import NamedTuple

from pinlater.domain.descriptor import parse_descriptor


class Percentiles(NamedTuple):
    """Percentiles in milliseconds."""

    p50_ms: int
    p95_ms: int
    p99_ms: int
    max_ms: int


class Sample(NamedTuple):
    """How many jobs waited at a time."""

    at_ms: int
    backlog: int


class TimeRange(NamedTuple):
    """A range of time, in milliseconds."""

    from_ms: int
    to_ms: int

    @property
    def length_ms(self) -> int:
        return self.to_ms - self.from_ms

    def overlaps(self, other: TimeRange) -> bool:
        return self.from_ms <= other.to_ms and other.from_ms <= self.to_ms


class Intervals:
    """When something began to wait and when it was served, as pairs, in the order in which they were served."""

    def __init__(self) -> None:
        self._began = array("q")
        self._ended = array("q")

    def __len__(self) -> int:
        return len(self._ended)

    def add(self, began_ms: int, ended_ms: int) -> None:
        """Records a wait that ends now."""
        self._began.append(began_ms)
        self._ended.append(ended_ms)

    def within(self, window: TimeRange) -> list[int]:
        """The lengths of those that overlap the window."""
        pairs = zip(self._began, self._ended, strict=True)
        return [ended - began for began, ended in pairs if began <= window.to_ms and ended >= window.from_ms]

    @property
    def last_ms(self) -> int:
        """When the last one was served, or 0 if there is none."""
        return self._ended[-1] if self._ended else 0

    def lengths(self) -> list[int]:
        """Returns how long each waited."""
        return [ended - began for began, ended in zip(self._began, self._ended, strict=True)]

    def gaps(self) -> list[TimeRange]:
        """The periods in which at least one waited and none was served; one for each that was served."""
        gaps: list[TimeRange] = []
        first_ms = 2**62  # the earliest beginning of those served from here on
        for number in range(len(self._ended) - 1, -1, -1):
            first_ms = min(first_ms, self._began[number])
            before_ms = self._ended[number - 1] if number else 0
            gaps.append(TimeRange(max(before_ms, first_ms), self._ended[number]))
        return gaps


class Measure:
    """All that is measured. Times are milliseconds since the epoch of the simulated world."""

    def __init__(self, began_at_ms: int) -> None:
        self._offset_ms = began_at_ms
        self.enqueues: dict[str, Intervals] = {}  # by queue: from the first try to the answer
        self.starts: dict[tuple[str, str], Intervals] = {}  # by queue and shard: from the due time to the first start
        self.samples: list[Sample] = []
        self.jobs_enqueued = 0

    def enqueued(self, queue: str, began_s: float, answered_s: float, jobs: int) -> None:
        """A request was answered. The times are the timeline's."""
        self.enqueues.setdefault(queue, Intervals()).add(round(began_s * 1000), round(answered_s * 1000))
        self.jobs_enqueued += jobs

    def started(self, descriptor: str, due_ms: int, now_ms: int) -> None:
        """The first attempt of a job has begun."""
        job = parse_descriptor(descriptor)
        offset_ms = self._offset_ms
        waits = self.starts.setdefault((job.queue, job.shard), Intervals())
        waits.add(due_ms - offset_ms, max(due_ms, now_ms) - offset_ms)


def percentiles_of(lengths: Sequence[int]) -> Percentiles | None:
    """Returns the percentiles, or None if there are no values."""
    if not lengths:
        return None
    ordered = sorted(lengths)

    def at(share: float) -> int:
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

    return Percentiles(at(0.5), at(0.95), at(0.99), ordered[-1])
