"""Durations as users of tasks give them (seconds, a timedelta, or text such as `5m`), and times."""

from __future__ import annotations

from datetime import datetime, timedelta

from pinlater.domain.durations import delay_fault, duration_ms, is_in_seconds

Duration = float | timedelta | str
# In 1973. A smaller number was meant as seconds, or as a duration; 0 is "at once".
_TIME_MS_MIN = 10**11
_EXACT_S_MAX = 2**43  # more seconds, as a float, say no millisecond exactly


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
    return round(seconds * 1000) if seconds < _EXACT_S_MAX else int(seconds) * 1000


def as_delay_ms(value: Duration, argument: str) -> int:
    """Milliseconds for which a job is to wait. Raises like `as_duration_ms`, and ValueError for more than a year."""
    delay_ms = as_duration_ms(value, argument)
    if fault := delay_fault(delay_ms, "seconds"):
        raise ValueError(f"{argument}: {value} {fault}")
    return delay_ms


def as_time_ms(at: object, argument: str, hint: str) -> int:
    """Milliseconds since the epoch. Raises `TypeError` or `ValueError` that begins with `argument`. `hint`: how to give a duration."""
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise ValueError(f"{argument}: {at} has no time zone; use datetime.now(timezone.utc) and the like")
        return round(at.timestamp() * 1000)
    if isinstance(at, bool) or not isinstance(at, int):
        raise TypeError(
            f"{argument} must be a datetime or milliseconds since the epoch, not {type(at).__name__}; {hint}"
        )
    if at != 0 and at < _TIME_MS_MIN:
        hint = "is it in seconds? Multiply it by 1000" if is_in_seconds(at) else hint
        raise ValueError(f"{argument}: {at} milliseconds since the epoch are before 1974; {hint}")
    return at
