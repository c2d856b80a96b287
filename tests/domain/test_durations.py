"""One parser for the durations of settings files, flags and the SDK."""

from __future__ import annotations

import pytest

from pinlater.domain.durations import duration_ms, duration_text


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("0", 0),
        ("90", 90_000),
        ("0.5", 500),
        ("500ms", 500),
        ("90s", 90_000),
        ("90 s", 90_000),
        ("10m", 600_000),
        ("10 min", 600_000),
        ("10 minutes", 600_000),
        ("1.5h", 5_400_000),
        (" 2d ", 172_800_000),
        ("1.1s", 1_100),
        ("2 H", 7_200_000),
    ],
)
def test_a_duration_is_read_with_its_unit_and_a_bare_number_is_in_seconds(text: str, expected_ms: int) -> None:
    assert duration_ms(text) == expected_ms


@pytest.mark.parametrize("text", ["", "-1s", "1w", "s", "1 2", "١s", "nan", "1e3", "5 m s", "0x1s"])
def test_text_that_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration such as"):
        duration_ms(text)


@pytest.mark.parametrize("text", ["9" * 400, "1" + "0" * 20 + "d"])
def test_a_duration_too_long_for_milliseconds_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is too long a duration"):
        duration_ms(text)


def test_a_part_of_a_millisecond_is_refused() -> None:
    with pytest.raises(ValueError, match="is not a whole number of milliseconds"):
        duration_ms("1.5ms")


@pytest.mark.parametrize(
    ("span_ms", "text"),
    [(0, "0ms"), (1_500, "1500ms"), (90_000, "90s"), (600_000, "10m"), (5_400_000, "90m"), (604_800_000, "7d")],
)
def test_a_duration_is_written_as_it_can_be_read(span_ms: int, text: str) -> None:
    assert duration_text(span_ms) == text
    assert duration_ms(text) == span_ms
