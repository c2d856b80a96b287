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


_MS_MAX = 2**53  # beyond this a float does not hold every millisecond


def duration_ms(text: str) -> int:
    """Milliseconds of a duration; a number without a unit is in seconds. Raises `ValueError` in words that follow the text."""
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
