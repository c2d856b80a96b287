"""Lines on standard error: errors, warnings and notes for the operator. For a caller that reads JSON, each is a JSON document."""

from __future__ import annotations

import json
import logging
import sys

from pinlater.cli import tables

_state = {"json": False}


def use_json(wanted: bool) -> None:
    """Whether the caller of the command that runs now reads JSON."""
    _state["json"] = wanted


def in_json() -> bool:
    """Returns whether the caller of the command that runs now reads JSON."""
    return _state["json"]


def write(text: str) -> None:
    """Prints what the operator must know beside the output."""
    say(text, note=text)


def note(text: str) -> None:
    """Writes like `write`, after `note: `."""
    say(f"note: {text}", note=text)


def warn(text: str) -> None:
    """Prints what the operator should fix."""
    say(f"warning: {text}", warning=text)


def say(text: str, *, whole: bool = False, **document: object) -> None:
    """The lines of `text`; or `document`, in one line. On a terminal, a long line wraps between words unless it is to stay `whole`."""
    if in_json():
        sys.stderr.write(json.dumps(document) + "\n")
        return
    columns = None if whole else tables.error_columns()
    lines = [part for line in text.split("\n") for part in tables.wrap_line(line, columns)]
    sys.stderr.write("\n".join(lines) + "\n")


class _LoggedWarnings(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        write(record.getMessage())


def take_logged_warnings() -> None:
    """Warnings of the client that a command without a log would print by itself become notes."""
    logging.lastResort = _LoggedWarnings(logging.WARNING)
