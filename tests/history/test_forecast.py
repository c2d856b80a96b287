"""When a backlog is drained, from the depths of the last quarter of an hour."""

from __future__ import annotations

from pinlater.client.history import HistoryPoint, drained_in_ms

MINUTE_MS = 60_000
NOW_MS = 100 * MINUTE_MS


def depths(*due: int | None) -> list[HistoryPoint]:
    """The last of them a minute ago."""
    return [HistoryPoint(NOW_MS - (len(due) - at) * MINUTE_MS, due=depth) for at, depth in enumerate(due)]


def test_a_backlog_that_shrinks_is_drained_at_its_pace() -> None:
    assert drained_in_ms(depths(500, 400, 300, 200), NOW_MS, 200) == 2 * MINUTE_MS


def test_one_odd_minute_changes_little() -> None:
    forecast = drained_in_ms(depths(1000, 900, 850, 700, 600, 500, 400), NOW_MS, 400)
    assert forecast is not None
    assert 3.5 * MINUTE_MS < forecast < 4.5 * MINUTE_MS


def test_a_backlog_that_grows_or_stays_is_never_drained() -> None:
    assert drained_in_ms(depths(1, 2, 3, 4), NOW_MS, 4) is None
    assert drained_in_ms(depths(4, 4, 4, 4), NOW_MS, 4) is None


def test_without_jobs_or_enough_points_there_is_no_forecast() -> None:
    assert drained_in_ms(depths(4, 3, 2, 1), NOW_MS, 0) is None
    assert drained_in_ms(depths(9, 8, 7), NOW_MS, 7) is None
    assert drained_in_ms(depths(None, 9, 8, 7), NOW_MS, 7) is None
    old = [point._replace(at_ms=point.at_ms - 20 * MINUTE_MS) for point in depths(9, 8, 7, 6)]
    assert drained_in_ms(old, NOW_MS, 6) is None
