"""Durations as users of tasks give them: seconds, a timedelta, or text such as `5m`."""

from __future__ import annotations

from datetime import timedelta

from pinlater.domain.durations import duration_ms

Duration = float | timedelta | str


def as_duration_ms(value: Duration, argument: str) -> int:
    """Milliseconds. Raises `TypeError` or `ValueError` that begins with `argument`."""
    if isinstance(value, str):
        try:
            return duration_ms(value)
        except ValueError as error:
            raise ValueError(f"{argument}: {value!r} {error}") from None
    if isinstance(value, bool) or not isinstance(value, int | float | timedelta):
        raise TypeError(f"{argument} must be seconds, a timedelta or text such as '5m', not {type(value).__name__}")
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"{argument} must not be negative or endless: {value}")
    return round(seconds * 1000)
