"""Spans in a sample: any value is at most a sixteenth off, and percentiles of sums are those of all."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pinlater.server.features.history.buckets import bucket_of, coarsened, middle_of, percentiles
from pinlater.server.features.history.sample import QueueSample, Total, pack, unpack
from pinlater.server.telemetry.histogram import VALUE_MAX, Histogram

VALUES = st.integers(0, VALUE_MAX)


@given(VALUES)
def test_the_middle_of_a_bucket_is_at_most_a_sixteenth_off(value: int) -> None:
    assert abs(middle_of(bucket_of(value)) - value) <= value / 16


@given(VALUES, VALUES)
def test_buckets_are_in_the_order_of_their_values(one: int, other: int) -> None:
    assert bucket_of(min(one, other)) <= bucket_of(max(one, other))


@given(st.lists(VALUES, max_size=50), st.lists(VALUES, max_size=50))
def test_two_samples_added_up_are_one_sample_of_all(one: list[int], other: list[int]) -> None:
    def sample(values: list[int]) -> QueueSample:
        histogram = Histogram()
        histogram.record_each(values)
        return QueueSample(enqueued=len(values), due=len(values), waits=coarsened(histogram.read().buckets))

    total = Total()
    total.add(unpack(pack(sample(one))))
    total.add(unpack(pack(sample(other))))

    together = sample(one + other)
    assert total.sample().waits == together.waits
    assert total.sample().enqueued == together.enqueued
    assert total.sample().due == max(len(one), len(other))


@given(st.lists(VALUES, min_size=1, max_size=50))
def test_percentiles_are_those_of_the_values(values: list[int]) -> None:
    counts: dict[int, int] = {}
    for value in values:
        counts[bucket_of(value)] = counts.get(bucket_of(value), 0) + 1

    found = percentiles(counts)

    assert found is not None
    ordered = sorted(values)
    assert found.number == len(values)
    for share, middle in ((0.5, found.p50_ms), (0.9, found.p90_ms), (0.99, found.p99_ms)):
        exact = ordered[max(0, -int(-share * len(values) // 1) - 1)]
        assert abs(middle - exact) <= exact / 16 + 1


def test_nothing_has_no_percentiles() -> None:
    assert percentiles({}) is None


def test_a_sample_takes_little_space() -> None:
    """Of a queue with waits from a millisecond to a minute."""
    histogram = Histogram()
    histogram.record_each([2**number for number in range(17)] * 100)
    spans = coarsened(histogram.read().buckets)
    assert len(pack(QueueSample(1_700, 1_700, 1_700, 0, 0, 0, 12, 0, 3, 50, spans, spans))) < 200
