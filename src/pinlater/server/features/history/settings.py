"""Settings of the history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta


@dataclass(frozen=True, slots=True)
class HistorySettings:
    """What is kept for charts."""

    max_queues: Annotated[int, Meta(ge=0, le=10_000)] = 500
    """Queues that get a sample in the same minute, of each server: those with the most jobs. 0 keeps no history."""
