"""What clients of a simulation saw, and everything else that a reader of a failed run needs to know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pinlater.client.errors import PinLaterError
from pinlater.simulation.history import HistoryRecorder
from pinlater.simulation.loop import Timeline


class Trace(HistoryRecorder):
    """The history, with notes about other events."""

    def __init__(self, timeline: Timeline) -> None:
        super().__init__(now_ns=timeline.now_ns)
        self._timeline = timeline
        self._entries: list[tuple[float, str | int]] = []  # a note, or the number of a line of the history
        self.operations = 0
        self.errors = Counter[tuple[str, str]]()  # by call and kind

    @property
    def told(self) -> list[str]:
        """Everything in the order in which it happened, a line each."""
        lines = self.lines()
        return [f"{at_s:.6f} {lines[what] if isinstance(what, int) else what}" for at_s, what in self._entries]

    def note(self, text: str) -> None:
        """Records an event that is not a client's call: a fault, an error."""
        self._entries.append((self._timeline.now_s, text))

    @contextmanager
    def counting_errors(self, call: str) -> Iterator[None]:
        """Counts the error that a client's call ends with."""
        try:
            yield
        except PinLaterError as error:
            self.errors[call, f"{type(error).__name__} {error.detail}".strip()] += 1
            raise

    def _write(self, record: dict[str, Any]) -> None:
        self._entries.append((self._timeline.now_s, len(self._lines)))
        super()._write(record)
