"""Durations as people write them: `500ms`, `90s`, `10 min`, `1.5h`, `7d`. The one parser of settings files, flags and the SDK."""

from __future__ import annotations

import re

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)", re.ASCII)
_UNITS_MS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}


_MS_MAX = 2**53  # beyond this a float can't represent every millisecond
YEAR_MS = 366 * 86_400_000
"""The longest delay of a job, claim timeout and life of a unique key that a server accepts."""
_YEAR = "a year (366 days)"
_TIME_S_MIN, _TIME_S_MAX = 10**9, 4 * 10**9  # in 2001 and in 2096: a number in this range is taken for a time
_SMALLER_UNITS = (
    ("milliseconds", 10**3),
    ("microseconds", 10**6),
    ("nanoseconds", 10**9),
)  # how many of its units are a second


def duration_ms(text: str) -> int:
    """Milliseconds of a duration; a number without a unit is in seconds. Raises `ValueError` with a text that continues a sentence about
    the text."""
    match = _DURATION.fullmatch(text.strip())
    unit_ms = _UNITS_MS.get(match[2].lower()) if match else None
    if match is None or unit_ms is None:
        raise ValueError("is not a duration such as 500ms, 90s, 10m, 24h or 7d")
    amount = float(match[1]) * unit_ms
    if amount > _MS_MAX:
        raise ValueError("is too long a duration")
    if abs(amount - round(amount)) > 1e-6:
        raise ValueError("is not a whole number of milliseconds")
    return round(amount)


def duration_text(span_ms: int) -> str:
    """The shortest text that `duration_ms` reads as `span_ms`, in one unit: `90s`, `10m`, `1500ms`."""
    for unit, unit_ms in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)):
        if span_ms and span_ms % unit_ms == 0:
            return f"{span_ms // unit_ms}{unit}"
    return f"{span_ms}ms"


def delay_fault(delay_ms: int, unit: str = "milliseconds") -> str:
    """Returns what is wrong with a job's delay, in words that follow its value; '' if it is valid. `unit`: the unit of a plain number."""
    if delay_ms <= YEAR_MS:
        return ""
    given = delay_ms if unit == "milliseconds" else delay_ms // 1000
    is_time = any(_is_time_s(given // a_second) for a_second in (1, *dict(_SMALLER_UNITS).values()))
    hint = "is it a time? A delay counts from now" if is_time else f"a number is in {unit}"
    return f"would be {_long(delay_ms)}, and a job waits for {_YEAR} at most; {hint}"


def due_fault(at_ms: int, now_ms: int) -> str:
    """Returns what is wrong with the time at which a job is to be due, in words that follow its value; '' if it is valid. A time in the
    past is valid."""
    if at_ms - now_ms <= YEAR_MS:
        return ""
    hint = "times are in milliseconds since 1970"
    for unit, a_second in _SMALLER_UNITS[1:]:
        if _is_time_s(at_ms // a_second):
            hint = f"is it in {unit}? Divide it by {a_second // 1000:,}"
    return f"would be in {_long(at_ms - now_ms)}, and a job waits for {_YEAR} at most; {hint}"


def is_in_seconds(at_ms: int) -> bool:
    """Returns whether a number of milliseconds was probably meant in seconds, since it would be a time at the beginning of 1970."""
    return _is_time_s(at_ms)


def _is_time_s(number: int) -> bool:
    return _TIME_S_MIN <= number < _TIME_S_MAX


def _long(span_ms: int) -> str:
    """A duration of more than a year, for people."""
    years = span_ms // YEAR_MS
    if years > 1_000:
        return "more than 1,000 years"
    return f"{years} years" if years > 10 else f"{-(-span_ms // 86_400_000):,} days"
