"""Shows a warning once, then counts its repeats.

A status page asks for statistics every second, and one misconfigured client connects again and again: each would fill the log with the
same line. OpenTelemetry warns of each malformed `tracestate` of a job.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

_EVERY_S = 60.0
_WARNINGS_MAX = 100


@dataclass(slots=True)
class _EqualWarnings:
    """Equal warnings. `shown_at_s` is None if the next one must be shown."""

    shown_at_s: float | None = None
    left_out: int = 0


class RepeatedWarnings(logging.Filter):
    """Filters the lines of a handler. Of equal warnings of `library` it passes the first one, then at most one a minute, with the number
    of those that it dropped before as the field `repeated`. Warnings are equal if they have the same logger and `content`.

    It passes all warnings that name a job, and all lines of other levels. After such a line at info or above, it passes the next warning
    of that logger: the line may mean that the state is over. Weakness: warnings that come after the last line that it passed are never
    counted in the log.
    """

    def __init__(self, library: str, content: Callable[[logging.LogRecord], str]) -> None:
        super().__init__(library)
        self._content = content
        self._warnings: dict[tuple[str, str], _EqualWarnings] = {}  # those shown longest ago come first
        self._loggers: set[str] = set()  # the loggers of the warnings, and perhaps others
        self._lock = Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING:
            if record.name in self._loggers and record.levelno >= logging.INFO:
                self._show_next(record.name)
            return True
        if hasattr(record, "job") or not super().filter(record):
            return True
        try:
            key = record.name, self._content(record)
        except Exception:  # noqa: BLE001 the handler reports a record that can't be formatted; a filter must not raise
            return True
        with self._lock:
            return self._passes(record, key)

    def _passes(self, record: logging.LogRecord, key: tuple[str, str]) -> bool:
        equal = self._warnings.get(key)
        if equal is None:
            equal = _EqualWarnings()
        elif equal.shown_at_s is not None and 0 <= record.created - equal.shown_at_s < _EVERY_S:
            equal.left_out += 1
            return False
        if equal.left_out:
            record.repeated = equal.left_out
        equal.shown_at_s, equal.left_out = record.created, 0
        self._warnings.pop(key, None)
        if len(self._warnings) >= _WARNINGS_MAX:
            del self._warnings[next(iter(self._warnings))]
            self._loggers = {name for name, _ in self._warnings}
        self._warnings[key] = equal
        self._loggers.add(record.name)
        return True

    def _show_next(self, logger: str) -> None:
        with self._lock:
            for (name, _), equal in self._warnings.items():
                if name == logger:
                    equal.shown_at_s = None
