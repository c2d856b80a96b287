"""Histograms with log-linear buckets: bounded memory, a known error, and a cheap `record`.

A value below 128 has a bucket of its own; above, each doubling is cut into 64 buckets, so a percentile is at most 1/64 (1.6 %)
off. Buckets are kept sparsely: a histogram that saw thirty different magnitudes costs thirty entries, one that saw
nothing costs almost none, which matters with thousands of idle queues.

Only the event loop's thread records and marks; marks and distributions are values that any thread may use.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_SUB_BITS = 6
_LINEAR_BITS = _SUB_BITS + 1
_LINEAR_BELOW = 1 << _LINEAR_BITS
_KEPT_MAX = 64  # values that are kept before they are sorted: two KiB
VALUE_MAX = (1 << 53) - 1  # more is cut to this; as milliseconds that is 285,000 years


def bucket_range(bucket: int) -> tuple[int, int]:
    """The least and the greatest value of a bucket."""
    if bucket < _LINEAR_BELOW:
        return bucket, bucket
    shift = (bucket >> _SUB_BITS) - 1
    low = (bucket - (shift << _SUB_BITS)) << shift
    return low, low + (1 << shift) - 1


@dataclass(frozen=True, slots=True)
class Distribution:
    """The counts of a histogram in some period, in its own unit. `buckets` are (bucket, count), ascending."""

    count: int = 0
    sum: float = 0.0
    minimum: float = 0.0
    maximum: float = 0.0
    buckets: tuple[tuple[int, int], ...] = ()
    steps_per_unit: int = 1

    @property
    def average(self) -> float:
        return self.sum / self.count if self.count else 0.0

    def quantiles(self, shares: Iterable[float]) -> list[float]:
        """The values at or below which these shares of the records lie; `shares` ascend. Zeros if nothing was recorded."""
        found: list[float] = []
        entries = iter(self.buckets)
        bucket, seen = 0, 0
        for share in shares:
            rank = max(1.0, share * self.count - 1e-9)
            while seen < rank:
                entry = next(entries, None)
                if entry is None:
                    break
                bucket, count = entry
                seen += count
            found.append(self._middle(bucket) if self.count else 0.0)
        return found

    def _middle(self, bucket: int) -> float:
        low, high = bucket_range(bucket)
        return min(max((low + high) / 2 / self.steps_per_unit, self.minimum), self.maximum)

    def at_most(self, bounds: Iterable[float]) -> list[int]:
        """Returns how many records lie at or below each bound (ascending). A bucket counts if its least value does: ≤ 1.6 % off."""
        found: list[int] = []
        position, seen = 0, 0
        for bound in bounds:
            limit = bound * self.steps_per_unit
            while position < len(self.buckets) and bucket_range(self.buckets[position][0])[0] <= limit:
                seen += self.buckets[position][1]
                position += 1
            found.append(seen)
        return found


@dataclass(frozen=True, slots=True)
class Mark:
    """The state of a histogram at some moment, packed. Two of them make a `Distribution`."""

    count: int
    total: int
    minimum: int
    maximum: int
    buckets: array[int]
    counts: array[int]
    steps_per_unit: int

    def since(self, before: Mark | None) -> Distribution:
        """Returns the records since `before` (None: all). Between two marks, least and greatest value are known only to a bucket."""
        if before is None or before.count == 0:
            entries = sorted(zip(self.buckets, self.counts, strict=True))
            return self._distribution(entries, self.total, self.minimum, self.maximum)
        if before.count == self.count:
            return Distribution(steps_per_unit=self.steps_per_unit)
        old = dict(zip(before.buckets, before.counts, strict=True))
        differences = (
            (bucket, count - old.get(bucket, 0)) for bucket, count in zip(self.buckets, self.counts, strict=True)
        )
        entries = sorted(entry for entry in differences if entry[1])
        low, high = bucket_range(entries[0][0])[0], bucket_range(entries[-1][0])[1]
        return self._distribution(entries, self.total - before.total, max(low, self.minimum), min(high, self.maximum))

    def _distribution(self, entries: list[tuple[int, int]], total: int, low: int, high: int) -> Distribution:
        if not entries:
            return Distribution(steps_per_unit=self.steps_per_unit)
        steps = self.steps_per_unit
        count = sum(number for _, number in entries)
        return Distribution(count, total / steps, low / steps, high / steps, tuple(entries), steps)


class Histogram:
    """Counts values; below 0 they count as 0. `steps_per_unit` makes it finer than its unit: 1000 keeps milliseconds to the microsecond.

    A value is first only kept, and later sorted into its bucket with others: that costs two thirds, and less if many are equal.
    """

    __slots__ = ("_count", "_counts", "_kept", "_maximum", "_minimum", "_steps", "_total")

    def __init__(self, steps_per_unit: int = 1) -> None:
        self._steps = steps_per_unit
        self._kept: list[float] = []
        self._counts: dict[int, int] = {}
        self._total = 0
        self._minimum = VALUE_MAX
        self._maximum = 0
        self._count = 0

    @property
    def count(self) -> int:
        """How many values it has counted."""
        return self._count + len(self._kept)

    def record(self, value: float) -> None:
        kept = self._kept
        kept.append(value)
        if len(kept) >= _KEPT_MAX:
            self._sort_in()

    def record_each(self, values: Sequence[int]) -> None:
        """Adds every value of a batch."""
        self._kept += values
        if len(self._kept) >= _KEPT_MAX:
            self._sort_in()

    def _sort_in(self) -> None:
        """Counts the kept values in their buckets."""
        steps, counts = self._steps, self._counts
        self._count += len(self._kept)
        total, least, greatest = 0, self._minimum, self._maximum
        for step, times in Counter([int(value * steps) for value in self._kept]).items():
            if step < _LINEAR_BELOW:
                if step < 0:
                    step = 0
                bucket = step
            else:
                if step > VALUE_MAX:
                    step = VALUE_MAX
                shift = step.bit_length() - _LINEAR_BITS  # inlined: a function for the bucket costs a third more
                bucket = (shift << _SUB_BITS) + (step >> shift)
            counts[bucket] = counts.get(bucket, 0) + times
            total += step * times
            if step > greatest:
                greatest = step
            if step < least:
                least = step
        self._total += total
        self._minimum, self._maximum = least, greatest
        self._kept.clear()

    def mark(self, before: Mark | None = None) -> Mark:
        """Returns the present state of the histogram; `before` itself if nothing was recorded since, so that idle ones cost nothing."""
        if before is not None and before.count == self.count:
            return before
        if self._kept:
            self._sort_in()
        counts = self._counts
        return Mark(
            self._count,
            self._total,
            self._minimum,
            self._maximum,
            array("Q", counts),
            array("Q", counts.values()),
            self._steps,
        )

    def read(self) -> Distribution:
        """Returns everything since the start."""
        return self.mark().since(None)
