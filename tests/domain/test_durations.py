"""One parser for the durations of settings files, flags and the SDK."""

from __future__ import annotations

import pytest

from pinlater.domain.durations import duration_ms


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
def test_what_is_not_a_duration_is_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration such as"):
        duration_ms(text)


def test_a_part_of_a_millisecond_is_refused() -> None:
    with pytest.raises(ValueError, match="is not a whole number of milliseconds"):
        duration_ms("1.5ms")
