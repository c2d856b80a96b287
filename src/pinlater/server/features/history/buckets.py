"""Buckets of durations in samples: coarser than those of the metrics, since a month of them is stored.

A value below 16 has a bucket of its own; above, each doubling is cut into 8 buckets, so the middle of one is at most 1/16 off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pinlater.server.telemetry.histogram import bucket_range as fine_range
from pinlater.wire.generated.structs import Percentiles

_SUB_BITS = 3
_LINEAR_BITS = _SUB_BITS + 1
_LINEAR_BELOW = 1 << _LINEAR_BITS
_SHARES = (0.5, 0.9, 0.99)


def bucket_of(value: int) -> int:
    """The bucket of a value from 0 on."""
    if value < _LINEAR_BELOW:
        return value
    shift = value.bit_length() - _LINEAR_BITS
    return (shift << _SUB_BITS) + (value >> shift)


def middle_of(bucket: int) -> int:
    """The value in the middle of a bucket."""
    if bucket < _LINEAR_BELOW:
        return bucket
    shift = (bucket >> _SUB_BITS) - 1
    low = (bucket - (shift << _SUB_BITS)) << shift
    return low + ((1 << shift) - 1) // 2


def coarsened(fine: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    """Buckets of the metrics' histograms with their counts, in the format of a sample: bucket, count, bucket, count, … ascending."""
    counts: dict[int, int] = {}
    for bucket, count in fine:
        own = bucket_of(fine_range(bucket)[0])
        counts[own] = counts.get(own, 0) + count
    return flat(counts)


def flat(counts: Mapping[int, int]) -> tuple[int, ...]:
    """Returns the buckets in the format of a sample."""
    return tuple(number for entry in sorted(counts.items()) for number in entry)


def percentiles(counts: Mapping[int, int]) -> Percentiles | None:
    """Returns the percentiles, or None if nothing was counted."""
    total = sum(counts.values())
    if not total:
        return None
    found: list[int] = []
    entries = iter(sorted(counts.items()))
    bucket, seen = 0, 0
    for share in _SHARES:
        while seen < max(1.0, share * total - 1e-9):
            bucket, count = next(entries)
            seen += count
        found.append(middle_of(bucket))
    return Percentiles(total, *found)
