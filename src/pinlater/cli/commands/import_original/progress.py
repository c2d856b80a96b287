"""Where a run of `pinlater import-original` is."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.console import Console

from pinlater.domain.clock import SystemClock
from pinlater.import_original.copy import CopyCounts

if TYPE_CHECKING:  # its driver is an extra
    from pinlater.import_original.source import Table

_LINE_EVERY_S, _BLINK_S = 30.0, 0.2


class Progress:
    """Where a run is, on standard error: in place on a terminal, a line every half a minute elsewhere."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._clock = SystemClock()
        self._next = self._clock.monotonic() + _every(self._console)

    def show(self, table: Table, counts: CopyCounts) -> None:
        """Says it if it is time."""
        now = self._clock.monotonic()
        if now < self._next:
            return
        self._next = now + _every(self._console)
        done = f"{table.name}: {counts.copied:,} copied, {counts.already_there:,} there already, {counts.left.total():,} left"
        self._write(done if self._console.is_terminal else f"{done}\n")

    def close(self) -> None:
        """Starts a new line for the output that follows."""
        self._write("")

    def _write(self, text: str) -> None:
        sys.stderr.write(f"\r\x1b[K{text}" if self._console.is_terminal else text)
        sys.stderr.flush()


def _every(console: Console) -> float:
    return _BLINK_S if console.is_terminal else _LINE_EVERY_S
