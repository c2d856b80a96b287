"""Histograms: bounded memory, and percentiles within the promised error of the sorted list's."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinlater.server.telemetry.histogram import VALUE_MAX, Distribution, Histogram, bucket_range

SHARES = (0.5, 0.9, 0.95, 0.99, 0.999, 0.9999)
ERROR = 1 / 64
values_lists = st.lists(st.integers(0, 10**12), min_size=1, max_size=400)


def histogram_of(values: Sequence[float], steps_per_unit: int = 1) -> Histogram:
    histogram = Histogram(steps_per_unit)
    for value in values:
        histogram.record(value)
    return histogram


def bucket_of(value: int) -> int:
    [(bucket, _)] = histogram_of([value]).read().buckets
    return bucket


def nearest_rank(ordered: Sequence[int], share: float) -> int:
    rank = max(1, -(-int(share * 10_000) * len(ordered) // 10_000))
    return ordered[rank - 1]


@given(values_lists)
def test_percentiles_are_those_of_the_sorted_list_within_a_buckets_width(values: list[int]) -> None:
    ordered = sorted(values)
    for share, found in zip(SHARES, histogram_of(values).read().quantiles(SHARES), strict=True):
        expected = nearest_rank(ordered, share)
        assert abs(found - expected) <= expected * ERROR


@given(values_lists)
def test_count_sum_average_and_extremes_are_exact(values: list[int]) -> None:
    found = histogram_of(values).read()
    assert (found.count, found.sum, found.minimum, found.maximum) == (
        len(values),
        sum(values),
        min(values),
        max(values),
    )
    assert found.average == pytest.approx(sum(values) / len(values))


@given(st.integers(0, VALUE_MAX))
def test_a_value_lies_in_its_bucket_and_buckets_grow_with_values(value: int) -> None:
    low, high = bucket_range(bucket_of(value))
    assert low <= value <= high
    assert high - low <= max(0, low * ERROR)
    if high < VALUE_MAX:
        assert bucket_of(high + 1) == bucket_of(value) + 1


@given(values_lists, values_lists)
def test_the_difference_of_two_marks_is_a_histogram_of_the_values_between_them(
    before: list[int], after: list[int]
) -> None:
    histogram = histogram_of(before)
    mark = histogram.mark()
    for value in after:
        histogram.record(value)
    found, alone = histogram.mark().since(mark), histogram_of(after).read()
    assert (found.buckets, found.count, found.sum) == (alone.buckets, alone.count, alone.sum)
    assert found.minimum <= min(after) <= max(after) <= found.maximum


@given(values_lists, st.lists(st.integers(0, 10**9), min_size=1, max_size=5))
def test_cumulative_counts_follow_the_bounds(values: list[int], bounds: list[int]) -> None:
    for bound, found in zip(sorted(bounds), histogram_of(values).read().at_most(sorted(bounds)), strict=True):
        assert sum(value <= bound for value in values) <= found <= sum(value <= bound * (1 + ERROR) for value in values)


def test_an_unchanged_histogram_shares_its_mark() -> None:
    histogram = histogram_of([1, 2])
    mark = histogram.mark()
    assert histogram.mark(mark) is mark
    histogram.record(1)
    assert histogram.mark(mark) is not mark


def test_hostile_values_are_cut_to_the_range() -> None:
    histogram = histogram_of([-5, 10**30])
    found = histogram.read()
    assert (found.minimum, found.maximum) == (0, VALUE_MAX)


def test_memory_is_bounded_by_the_number_of_buckets() -> None:
    assert bucket_of(VALUE_MAX) < 3_200


def test_steps_keep_fractions_of_the_unit() -> None:
    found = histogram_of([0.25, 0.75], steps_per_unit=1000).read()
    assert (found.sum, found.minimum, found.maximum) == (1.0, 0.25, 0.75)
    assert found.quantiles([0.5])[0] == pytest.approx(0.25, rel=ERROR)


def test_values_are_counted_before_they_are_sorted_in() -> None:
    histogram = Histogram()
    for number in range(1, 200):
        histogram.record(number)
        assert histogram.count == histogram.mark().count == number


@given(values_lists)
def test_recording_a_batch_is_recording_each(values: list[int]) -> None:
    batch = Histogram()
    batch.record_each(values)
    assert batch.read() == histogram_of(values).read()


def test_an_empty_distribution_is_all_zeros() -> None:
    assert Histogram().read() == Distribution()
    assert Distribution().quantiles(SHARES) == [0.0] * 6
    assert Distribution().average == 0.0
