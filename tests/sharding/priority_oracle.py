"""Watches the order of priorities: which jobs can be claimed since when, and what each dequeue gave."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Inversion(NamedTuple):
    """A job was handed out though a better one had waited for `ms` when the dequeue began."""

    given: str
    instead_of: str
    ms: int


class PriorityOracle:
    """Jobs by name, with their priorities and the times from which they can be claimed. One dequeue at a time."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[int, int]] = {}
        self.handed_out = 0
        self.inversions: list[Inversion] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def waits(self, job: str, priority: int, from_ms: int) -> None:
        """The job can be claimed from that time on."""
        self._waiting[job] = priority, from_ms

    def given(self, jobs: Iterable[str], began_ms: int) -> None:
        """A dequeue that began at that time gave these jobs."""
        gave = {job: self._waiting.pop(job)[0] for job in jobs}
        self.handed_out += len(gave)
        for job, priority in gave.items():
            better = [
                (began_ms - from_ms, other)
                for other, (theirs, from_ms) in self._waiting.items()
                if theirs < priority and from_ms < began_ms
            ]
            if better:
                ms, other = max(better)
                self.inversions.append(Inversion(job, other, ms))

    def beyond(self, ms: int) -> list[Inversion]:
        """Those in which the better job had waited for longer than that."""
        return [each for each in self.inversions if each.ms > ms]
