"""The progress of a run of `pinlater server import-original`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.console import Console

from pinlater.cli import notes
from pinlater.domain.clock import SystemClock
from pinlater.import_original.copy import CopyCounts

if TYPE_CHECKING:  # its driver is an extra
    from pinlater.import_original.source import Table

_LINE_EVERY_S, _BLINK_S = 30.0, 0.2


class Progress:
    """Shows the progress of a run on standard error: in place on a terminal; elsewhere, and as JSON, as a line every half a minute."""

    def __init__(self) -> None:
        self._in_place = Console(stderr=True).is_terminal and not notes.in_json()
        self._every_s = _BLINK_S if self._in_place else _LINE_EVERY_S
        self._clock = SystemClock()
        self._next = self._clock.monotonic() + self._every_s

    def show(self, table: Table, counts: CopyCounts) -> None:
        """Prints it if it is time."""
        now = self._clock.monotonic()
        if now < self._next:
            return
        self._next = now + self._every_s
        done = f"{table.name}: {counts.copied:,} copied, {counts.already_there:,} there already, {counts.left.total():,} left"
        if self._in_place:
            _replace_line(done)
        else:
            notes.write(done)

    def close(self) -> None:
        """Removes the progress for the output that follows."""
        if self._in_place:
            _replace_line("")


def _replace_line(text: str) -> None:
    sys.stderr.write(f"\r\x1b[K{text}")
    sys.stderr.flush()
