"""Waits, gaps and the effect of a fault, from what was measured."""

from __future__ import annotations

from pinlater.simulation.measure import Intervals, Measure, Percentiles, Sample, TimeRange, percentiles_of
from pinlater.simulation.report import fault_report
from pinlater.simulation.scenario import read_fault


def served(*pairs: tuple[int, int]) -> Intervals:
    intervals = Intervals()
    for began, ended in pairs:
        intervals.add(began, ended)
    return intervals


def test_percentiles_are_values_that_occurred() -> None:
    assert percentiles_of(list(range(1, 101))) == Percentiles(50, 95, 99, 100)
    assert percentiles_of([7]) == Percentiles(7, 7, 7, 7)
    assert percentiles_of([]) is None


def test_a_gap_is_a_time_in_which_something_waited_and_nothing_was_served() -> None:
    gaps = served((0, 10), (5, 12), (500, 510), (505, 900)).gaps()
    assert sorted(gaps) == [TimeRange(0, 10), TimeRange(10, 12), TimeRange(500, 510), TimeRange(510, 900)]


def test_one_that_waits_long_makes_no_gap_while_others_are_served() -> None:
    gaps = served((90, 95), (100, 105), (0, 110)).gaps()
    assert max(gap.length_ms for gap in gaps) == 95  # before the first: 0 to 95


def test_a_fault_gets_what_overlaps_it() -> None:
    measure = Measure(0)
    for number in range(300):
        measure.samples.append(Sample(number * 1_000, 40 if 100 <= number < 130 else 2))
    for began_s, answered_s in ((10, 25), (101, 109), (200, 260)):
        measure.enqueued("q", began_s, answered_s, 1)
    measure.started("q:s1:p1:5", 99_000, 104_000)
    report = fault_report(measure, read_fault("kill-server@100s+10s:1"), 0)
    assert (report.enqueue_gap_ms, report.enqueue_max_ms) == (8_000, 8_000)
    assert (report.pickup_gap_ms, report.wait_max_ms) == (5_000, 5_000)
    assert (report.backlog_max, report.drained_ms) == (40, 20_000)


def test_a_backlog_that_stays_is_never_drained() -> None:
    measure = Measure(0)
    measure.samples += [Sample(number * 1_000, max(0, number - 50)) for number in range(100)]
    assert fault_report(measure, read_fault("kill-server@50s+5s:1"), 0).drained_ms is None


def test_a_fault_is_written_as_it_is_read() -> None:
    for text in ("kill-server@10m+30s:2", "bad-network@500ms+1m"):
        assert str(read_fault(text)) == text
