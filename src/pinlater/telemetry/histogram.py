"""Histograms with log-linear buckets: bounded memory, a known error, and a cheap `record`.

A value below 128 has a bucket of its own; above, each doubling is cut into 64 buckets, so a percentile is at most 1/64 (1.6 %)
off. Buckets are kept sparsely: a histogram that saw thirty different magnitudes costs thirty entries, one that saw
nothing costs almost none, which matters with thousands of idle queues.

Only the event loop's thread records. Reading from another thread is safe (one atomic copy), though count and sum may
then be one record apart.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_SUB_BITS = 6
_LINEAR_BITS = _SUB_BITS + 1
_LINEAR_BELOW = 1 << _LINEAR_BITS
VALUE_MAX = (1 << 53) - 1  # more is cut to this; as milliseconds that is 285,000 years
QUANTILES = (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999), ("p9999", 0.9999))


def bucket_of(value: int) -> int:
    """The number of the bucket that `value` (0..VALUE_MAX) falls into; grows with the value."""
    if value < _LINEAR_BELOW:
        return value
    shift = value.bit_length() - _LINEAR_BITS
    return (shift << _SUB_BITS) + (value >> shift)


def bucket_range(bucket: int) -> tuple[int, int]:
    """The least and the greatest value of a bucket."""
    if bucket < _LINEAR_BELOW:
        return bucket, bucket
    shift = (bucket >> _SUB_BITS) - 1
    low = (bucket - (shift << _SUB_BITS)) << shift
    return low, low + (1 << shift) - 1


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram's content at one moment, in the histogram's own unit. `buckets` are (bucket, count), ascending."""

    count: int
    sum: float
    minimum: float
    maximum: float
    buckets: tuple[tuple[int, int], ...]
    steps_per_unit: int = 1

    @property
    def average(self) -> float:
        return self.sum / self.count if self.count else 0.0

    def quantiles(self, shares: Iterable[float]) -> list[float]:
        """The values that these shares of the records lie at or below; `shares` ascend. Zeros where nothing was recorded."""
        found: list[float] = []
        entries = iter(self.buckets)
        bucket, seen = 0, 0
        for share in shares:
            rank = max(1, _ceil(share * self.count))
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
        """How many records lie at or below each bound (ascending). A bucket counts when its least value does: ≤ 1.6 % off."""
        found: list[int] = []
        position, seen = 0, 0
        for bound in bounds:
            limit = bound * self.steps_per_unit
            while position < len(self.buckets) and bucket_range(self.buckets[position][0])[0] <= limit:
                seen += self.buckets[position][1]
                position += 1
            found.append(seen)
        return found


def _ceil(number: float) -> int:
    whole = int(number)
    return whole if whole >= number - 1e-9 else whole + 1


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a histogram stood at some moment, packed small: what a window of time is measured from."""

    count: int
    total: int
    packed: array[int]


class Histogram:
    """Counts values. `steps_per_unit` makes it finer than its unit: 1000 keeps milliseconds to the microsecond."""

    __slots__ = ("_counts", "_maximum", "_minimum", "_steps", "_total", "count")

    def __init__(self, steps_per_unit: int = 1) -> None:
        self._steps = steps_per_unit
        self._counts: dict[int, int] = {}
        self._total = 0
        self._minimum = VALUE_MAX
        self._maximum = 0
        self.count = 0

    def record(self, value: float) -> None:
        """Adds one value; below 0 counts as 0."""
        self.record_many(value, 1)

    def record_many(self, value: float, times: int) -> None:
        """Adds the same value `times` times."""
        step = int(value * self._steps)
        if step < _LINEAR_BELOW:
            step = bucket = max(step, 0)
        else:
            if step > VALUE_MAX:
                step = VALUE_MAX
            shift = step.bit_length() - _LINEAR_BITS
            bucket = (shift << _SUB_BITS) + (step >> shift)
        counts = self._counts
        counts[bucket] = counts.get(bucket, 0) + times
        self.count += times
        self._total += step * times
        if step > self._maximum:
            self._maximum = step
        if step < self._minimum:
            self._minimum = step

    def read(self) -> Distribution:
        """Everything since the start."""
        buckets = tuple(sorted(self._counts.copy().items()))
        count = sum(number for _, number in buckets)
        steps = self._steps
        minimum = self._minimum if count else 0
        return Distribution(count, self._total / steps, minimum / steps, self._maximum / steps, buckets, steps)

    def mark(self, before: Mark | None = None) -> Mark:
        """Where the histogram stands now; `before` itself where nothing came since."""
        if before is not None and before.count == self.count:
            return before
        flat = array("Q")
        for entry in self._counts.copy().items():
            flat.extend(entry)
        return Mark(self.count, self._total, flat)

    def since(self, mark: Mark | None) -> Distribution:
        """What came after `mark`. Least and greatest are then known to a bucket's width only."""
        if mark is None or mark.count == 0:
            return self.read()
        buckets = _less(self._counts.copy(), mark.packed)
        if not buckets:
            return EMPTY
        count = sum(number for _, number in buckets)
        steps = self._steps
        low, high = bucket_range(buckets[0][0])[0], bucket_range(buckets[-1][0])[1]
        low, high = max(low, self._minimum), min(high, self._maximum)
        return Distribution(count, (self._total - mark.total) / steps, low / steps, high / steps, buckets, steps)


def _less(counts: Mapping[int, int], packed: array[int]) -> tuple[tuple[int, int], ...]:
    before = dict(zip(packed[::2], packed[1::2], strict=True))
    differences = ((bucket, count - before.get(bucket, 0)) for bucket, count in counts.items())
    return tuple(sorted(entry for entry in differences if entry[1] > 0))


EMPTY = Distribution(0, 0.0, 0.0, 0.0, ())
