"""Lines on standard error: errors, warnings and notes for the operator."""

from __future__ import annotations

import sys

from pinlater.cli import tables


def write(text: str) -> None:
    """One line, or those of `text`. On a terminal, a long line wraps between words; elsewhere it stays whole."""
    columns = tables.error_columns()
    lines = [part for line in text.split("\n") for part in tables.wrap_line(line, columns)]
    sys.stderr.write("\n".join(lines) + "\n")
