"""Settings of dispatch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DispatchSettings:
    """Bounds of what may wait here."""

    max_waiting_dequeues: int = 10_000
    """Most dequeues that wait for a job at once; beyond it they are refused."""
