"""Settings of the history."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HistorySettings:
    """What is kept for charts."""

    max_queues: int = 500
    """Queues that get a sample in the same minute, of each server: those with the most jobs. 0 keeps no history."""
