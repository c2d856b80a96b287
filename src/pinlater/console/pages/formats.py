"""Values as text for people: numbers, durations, times, and text from jobs. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import NamedTuple

from pinlater.domain import wording

TEXT_CHARACTERS = 4_000  # characters of a text on a page, unless the whole is requested
_LINE_CHARACTERS = 300  # characters of a text in a row of a table
_MOMENT_MS_MAX = 253_402_300_799_999  # the last millisecond of the year 9999
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))
# Controls except tab and newline, characters without width or ink, those that reverse the direction of text, and halves of surrogate pairs.
# Variation selectors of emoji (U+FE00 to U+FE0F) stay.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


class ShownText(NamedTuple):
    """A text as a page shows it. `characters`: of the whole text. `is_cut`: whether the page shows only its beginning."""

    text: str
    characters: int
    is_cut: bool


def number(value: float) -> str:
    """Returns the number with separators between thousands."""
    return f"{value:,}"


def rate(per_second: float) -> str:
    """Returns a rate in jobs a second, for people."""
    if not per_second:
        return "0"
    if per_second < 0.1:
        return "<0.1"
    return f"{per_second:.1f}" if per_second < 10 else f"{per_second:,.0f}"


def share(value: float | None) -> str:
    """A share of 1 in percent."""
    if value is None:
        return "–"
    return "<1 %" if 0 < value < 0.01 else f"{value:.0%}".replace("%", " %")


def span(span_ms: float | None) -> str:
    """A duration in its two largest units."""
    if span_ms is None:
        return "–"
    if span_ms < 1_000:
        return f"{round(span_ms)} ms"
    for index, (unit, unit_ms) in enumerate(_UNITS):
        whole, rest = divmod(round(span_ms), unit_ms)
        if whole:
            smaller, smaller_ms = _UNITS[index + 1] if unit != "s" else ("", 1)
            more = rest // smaller_ms if smaller and whole < 10 else 0
            return f"{whole:,} {unit} {more} {smaller}" if more else f"{whole:,} {unit}"
    raise AssertionError


def latency(span_ms: float | None) -> str:
    """Returns a short duration, with one decimal place below ten milliseconds."""
    if span_ms is None:
        return "–"
    return f"{span_ms:.1f} ms" if span_ms < 9.95 else span(span_ms)


def size(size_bytes: int | None) -> str:
    """An amount of bytes in its largest unit."""
    return "–" if size_bytes is None else wording.size(size_bytes)


def moment(at_ms: int) -> str:
    """A time in UTC, as ISO 8601."""
    if at_ms > _MOMENT_MS_MAX:
        return "after the year 9999"
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def relative(at_ms: int, now_ms: int) -> str:
    """A time as a duration from now."""
    if abs(at_ms - now_ms) < 1_000:
        return "now"
    return f"{span(now_ms - at_ms)} ago" if at_ms < now_ms else f"in {span(at_ms - now_ms)}"


def visible(text: str) -> str:
    """Returns the text with a code in place of each character that is invisible or would reorder other text."""
    return _INVISIBLE.sub(lambda found: f"\\u{{{ord(found[0]):x}}}", text)


def shown(text: str, characters: int = TEXT_CHARACTERS) -> ShownText:
    """Returns the beginning of a text."""
    return ShownText(visible(text[:characters]), len(text), len(text) > characters)


def one_line(text: str) -> str:
    """Returns the beginning of the first line that is not empty."""
    first = next((line for line in text[: 10 * _LINE_CHARACTERS].splitlines() if line.strip()), "")
    return visible(first[:_LINE_CHARACTERS]) + ("…" if len(first) > _LINE_CHARACTERS else "")


def last_line(text: str) -> str:
    """Returns the beginning of the last line that is not empty: in a traceback, this is the error."""
    lines = [line for line in text[-10 * _LINE_CHARACTERS :].splitlines() if line.strip()]
    return one_line(lines[-1]) if lines else ""
