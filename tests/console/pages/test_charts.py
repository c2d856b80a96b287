"""Charts: lines in a drawing, their scales and their words."""

from __future__ import annotations

from typing import Any

import pytest

from pinlater.console.endpoints.queues_history import HistoryPointItem, MarkItem, PercentilesItem
from pinlater.console.pages.charts import Range, charts_of, labels_of, mark_lines, nice_top, path_of, sparkline_of

MINUTE_MS = 60_000
START_MS = 1_767_225_600_000
HOUR = Range(START_MS, START_MS + 60 * MINUTE_MS, MINUTE_MS)


def point(minute: int, **given: Any) -> HistoryPointItem:
    nothing = dict.fromkeys(("enqueued", "claimed", "succeeded", "failed", "timed_out", "expired"), 0)
    unknown = dict.fromkeys(("due", "scheduled", "running", "oldest_ms", "wait_ms", "run_ms"))
    return HistoryPointItem(at_ms=START_MS + minute * MINUTE_MS, **{**nothing, **unknown, **given})


def test_a_line_goes_through_the_middles_of_the_steps_with_gaps() -> None:
    times = [START_MS + minute * 15 * MINUTE_MS for minute in range(4)]
    shown = Range(START_MS, START_MS + 60 * MINUTE_MS, 15 * MINUTE_MS)
    assert path_of(times, [0, 5, 10, 10], 10, shown) == "M0 100L125 100L375 50L625 0L875 0L1000 0"
    assert path_of(times, [None, 5, None, 10], 10, shown) == "M250 50L375 50L500 50M750 0L875 0L1000 0"
    assert path_of(times, [None] * 4, 10, shown) == ""


@pytest.mark.parametrize(
    ("highest", "top"), [(0, 1), (0.03, 0.05), (1, 1), (3, 5), (7, 10), (1_001, 2_000), (9.9e9, 10_000_000_000)]
)
def test_a_scale_ends_at_a_round_number(highest: float, top: float) -> None:
    assert nice_top(highest) == top


@pytest.mark.parametrize(
    ("highest", "top"), [(0, 1), (3, 5), (61_000, 120_000), (3_600_001, 7_200_000), (80_000_000, 86_400_000)]
)
def test_a_scale_of_spans_ends_at_a_usual_span(highest: float, top: float) -> None:
    assert nice_top(highest, spans=True) == top


def test_rates_are_jobs_a_second() -> None:
    [rates, *_] = charts_of([point(58, enqueued=120, succeeded=60, failed=30, timed_out=30)], HOUR)
    assert {line.name: line.newest for line in rates.lines} == {"In": "2.0", "Succeeded": "1.0", "Failed": "1.0"}
    assert rates.top == "2.0"


def test_a_step_that_is_not_over_counts_as_what_is_over_of_it() -> None:
    """Or each chart of hours would fall at its end."""
    shown = Range(START_MS, START_MS + 90 * MINUTE_MS, 60 * MINUTE_MS)
    [rates, *_] = charts_of([point(0, enqueued=3_600), point(60, enqueued=1_800)], shown)
    assert rates.lines[0].newest == "1.0"


def test_a_minute_that_is_not_stored_yet_is_not_drawn_as_idle() -> None:
    _, depth, *_ = charts_of([point(minute, due=7) for minute in range(59)], HOUR)
    assert depth.lines[0].newest == "7"
    _, idle, *_ = charts_of([point(0, due=7)], HOUR)
    assert idle.lines[0].newest == "0"


def test_spans_have_gaps_where_nothing_was_handed_out() -> None:
    wait = PercentilesItem(number=3, p50=5, p90=10, p99=20)
    charts = {chart.title: chart for chart in charts_of([point(3, wait_ms=wait), point(9, wait_ms=wait)], HOUR)}
    waits = charts["Wait until a worker"]
    assert [line.path.count("M") for line in waits.lines] == [2, 2, 2]
    assert [line.newest for line in waits.lines] == ["5 ms", "10 ms", "20 ms"]
    assert "at most 20 ms" in waits.summary
    assert [line.path for line in charts["Run time"].lines] == ["", "", ""]


def test_labels_are_times_of_day_or_days() -> None:
    assert labels_of(HOUR) == ["00:00", "00:15", "00:30", "00:45", "01:00"]
    month = Range(START_MS, START_MS + 30 * 86_400_000, 3_600_000)
    assert labels_of(month)[0] == "01 Jan"


def test_marks_in_the_range_are_lines() -> None:
    marks = [MarkItem(at_ms=START_MS + minute * MINUTE_MS, text=f"v{minute}", queue=None) for minute in (-1, 15, 30)]
    assert [(mark.x, mark.text) for mark in mark_lines(marks, HOUR)] == [(500, "v30"), (250, "v15")]


def test_a_sparkline_is_an_area_and_says_its_numbers() -> None:
    shown = Range(START_MS, START_MS + 30 * MINUTE_MS, MINUTE_MS)
    spark = sparkline_of([point(minute, due=minute) for minute in range(29)], shown)
    assert spark is not None
    assert spark.area == f"{spark.line}L966.7 100L0 100Z"
    assert spark.summary == "Due over the last 30 minutes: at most 28, now 28"
    assert sparkline_of([], shown) is None
    assert sparkline_of([point(1, due=0)], shown) is None
