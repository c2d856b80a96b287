"""Numbers, sizes, durations and times in sentences."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from itertools import takewhile

# The first line of a trace below the text of an error: of Python, of Java and Node.
_TRACE = re.compile(r'\s+(?:File "|at )|Traceback ')
_ERROR_CHARS = 120


def error_line(error_text: str) -> str:
    """Returns an error in one line: the first line of its text, and up to 120 characters of the lines below it, without the trace. The
    first line of some errors only announces details."""
    first, *below = error_text.split("\n")
    own = takewhile(lambda line: not _TRACE.match(line), below)
    line = "; ".join(filter(None, map(str.strip, [first, *own])))
    return line if len(line) <= _ERROR_CHARS else max(first, f"{line[: _ERROR_CHARS - 1]}…", key=len)


def counted(number: int, noun: str) -> str:
    """Returns a number with its noun, in the plural if needed: `1 job`, `2 jobs`, `1,000 jobs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def span(span_ms: int) -> str:
    """A duration in two units at most: `3d 4h`, `12m 5s`, `850ms`."""
    if span_ms < 1_000:
        return f"{max(0, span_ms)}ms"
    seconds = span_ms // 1_000
    parts = []
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        number, seconds = divmod(seconds, length)
        parts.append((number, unit))
    first = next(index for index, (number, _) in enumerate(parts) if number)
    return " ".join(f"{number}{unit}" for number, unit in parts[first : first + 2] if number)


def about(span_ms: int) -> str:
    """An estimated duration, in one unit: `less than a minute`, `about 3 min`, `about 5 h`, `about 2 days`."""
    minutes = -(-span_ms // 60_000)
    if span_ms < 60_000:
        return "less than a minute"
    if minutes < 120:
        return f"about {minutes} min"
    hours = round(minutes / 60)
    return f"about {hours} h" if hours < 48 else f"about {round(hours / 24)} days"


def size(size_bytes: int) -> str:
    """An amount of bytes in its largest unit of 1,024: `512 B`, `1.5 MiB`."""
    amount, unit = float(size_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1_000:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.1f} {unit}" if amount < 10 and unit != "B" else f"{amount:,.0f} {unit}"


def moment(at_ms: int, unit: str = "milliseconds") -> str:
    """Returns the time in ISO 8601 and UTC, down to that unit; the number itself if it is outside the calendar."""
    try:
        text = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec=unit)
    except (OverflowError, ValueError, OSError):
        return str(at_ms)
    return text.replace("+00:00", "Z")
