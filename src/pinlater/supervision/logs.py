"""Structured logs: an event's text plus fields, as `key=value` on a terminal and as one JSON object a line elsewhere.

Callers write `log.info("queue created", extra={"queue": name})`. A state change of the service is one line at info, a request one line at
debug. Job bodies are never logged: a field of bytes shows its length only. Control characters are escaped, so a caller's text can't forge
a line, and long values are truncated. Lists are values with commas between as text, arrays in JSON.

Weakness: the handler writes to its stream at once, so a reader that stops reading a full pipe stops the server too.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from math import isfinite
from typing import TextIO

from pinlater.supervision.repeated_warnings import RepeatedWarnings

_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_VALUE_CHARS_MAX = 2_000
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.:/+@%")
_HANDLER_NAME = "pinlater"


def setup(
    format: str = "auto", level: str = "info", stream: TextIO | None = None, *, process_number: int | None = None
) -> logging.Handler:
    """Sends all logs to `stream` (stderr). Ours from `level` on, other libraries' from warning on. A second call replaces the first.

    `format` is json, text, or auto: text on a terminal, else JSON. `process_number`: a field of every line, for one of several processes.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.set_name(_HANDLER_NAME)
    count_repeats(handler)
    if process_number is not None:
        handler.addFilter(partial(_mark, process_number))
    as_text = format == "text" or (format == "auto" and handler.stream.isatty())
    handler.setFormatter(TextFormatter() if as_text else JsonFormatter())
    root = logging.getLogger()
    for old in [one for one in root.handlers if one.get_name() == _HANDLER_NAME]:
        root.removeHandler(old)
    root.addHandler(handler)
    logging.getLogger("pinlater").setLevel(level.upper())
    return handler


def count_repeats(handler: logging.Handler) -> None:
    """Limits equal warnings of the handler to one a minute; for OpenTelemetry, even if their values differ."""
    handler.addFilter(RepeatedWarnings("pinlater", _shown))
    handler.addFilter(RepeatedWarnings("uvicorn", _shown))
    handler.addFilter(RepeatedWarnings("opentelemetry", lambda record: str(record.msg)))


def _shown(record: logging.LogRecord) -> str:
    """Returns the text of a record's line."""
    return repr((_showable(record.getMessage()), list(fields(record))))


def _mark(number: int, record: logging.LogRecord) -> bool:
    record.process_number = number
    return True


def fields(record: logging.LogRecord) -> Iterator[tuple[str, object]]:
    """Yields the fields that the caller gave as `extra`, in printable form."""
    for name, value in vars(record).items():
        if name not in _STANDARD_FIELDS:
            yield name, _showable(value)


def _showable(value: object) -> object:
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and isfinite(value)):
        return value  # JSON has no NaN and no infinity
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    if isinstance(value, set | frozenset):
        return _showable_items(sorted(map(str, value)))
    if isinstance(value, list | tuple):
        return _showable_items(value)
    text = str(value)
    return text if len(text) <= _VALUE_CHARS_MAX else text[:_VALUE_CHARS_MAX] + "…"


def _showable_items(items: Sequence[object]) -> list[object]:
    """Returns as many items as fit into the length of a value, and `…` instead of the others."""
    shown: list[object] = []
    chars = 0
    for item in items:
        one = _showable(str(item) if isinstance(item, list | tuple | set | frozenset) else item)
        chars += len(str(one)) + 1
        if shown and chars > _VALUE_CHARS_MAX:
            return [*shown, "…"]
        shown.append(one)
    return shown


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, event, the caller's fields, and a traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": _showable(record.getMessage()),
        }
        for name, value in fields(record):
            entry.setdefault(name, value)
        if trace := _traceback(self, record):
            entry["traceback"] = trace
        return json.dumps(entry)


class TextFormatter(logging.Formatter):
    """`time LEVEL event key=value …` for people; a traceback follows on lines of its own, indented."""

    def format(self, record: logging.LogRecord) -> str:
        event = _escaped(str(_showable(record.getMessage())))
        parts = [_time(record), f"{record.levelname:<7}", event]
        parts += [f"{name}={_quoted(value)}" for name, value in fields(record)]
        line = " ".join(parts)
        return "\n".join([line, *("    " + _printable(text) for text in _traceback(self, record).splitlines())])


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    """Returns the traceback of the record, or else that of its exception; '' without one."""
    return record.exc_text or (formatter.formatException(record.exc_info) if record.exc_info else "")


def _escaped(text: str) -> str:
    return text if text.isprintable() else json.dumps(text)[1:-1]


def _printable(text: str) -> str:
    """Escapes control characters, and leaves quotes as they are."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _quoted(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(_quoted, value)) or '""'
    text = str(value)
    return text if text and _PLAIN.issuperset(text) else json.dumps(text, ensure_ascii=not text.isprintable())
