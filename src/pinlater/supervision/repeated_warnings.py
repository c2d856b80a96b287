"""Shows a library's warning once, then counts it.

OpenTelemetry warns of each malformed `tracestate` of a job, so one wrong producer could fill the log.
"""

from __future__ import annotations

import logging

_EVERY_S = 60.0
_KINDS_MAX = 100


class RepeatedWarnings(logging.Filter):
    """For a handler. Of equal warnings of `library` it passes the first one, then one a minute at most, with the number that it left out
    before as the field `repeated`. Warnings are equal if their texts are, before values are put in.

    Weakness: what came after the last line that it passed is never counted in the log.
    """

    def __init__(self, library: str) -> None:
        super().__init__()
        self._library = library
        self._shown_at_s: dict[tuple[str, str], float] = {}
        self._left_out: dict[tuple[str, str], int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno > logging.WARNING or not self._is_of_the_library(record.name):
            return True
        kind = (record.name, str(record.msg))
        shown_at_s = self._shown_at_s.get(kind)
        if shown_at_s is not None and 0 <= record.created - shown_at_s < _EVERY_S:
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return False
        if shown_at_s is None and len(self._shown_at_s) >= _KINDS_MAX:
            self._shown_at_s.clear()
            self._left_out.clear()
        self._shown_at_s[kind] = record.created
        left_out = self._left_out.pop(kind, 0)
        if left_out:
            record.repeated = left_out
        return True

    def _is_of_the_library(self, logger: str) -> bool:
        return logger == self._library or logger.startswith(f"{self._library}.")
