"""Which claims need a heartbeat, and when. A table; the loop that sends them is in `_consumer`.

A claim is renewed each time a third of its length has passed, so that two heartbeats may get lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

K = TypeVar("K")
_SHORTEST_S = 0.1


class HeartbeatTable(Generic[K]):
    """The claims in hand, by any key. Times are monotonic seconds of the caller's clock."""

    def __init__(self) -> None:
        self._due: dict[K, float] = {}
        self._every: dict[K, float] = {}

    def add(self, claim: K, length_ms: int, now: float) -> float:
        """It was claimed just now for `length_ms`; when its first heartbeat is due."""
        every = max(_SHORTEST_S, length_ms / 3000)
        self._every[claim] = every
        self._due[claim] = now + every
        return now + every

    def drop(self, claim: K) -> None:
        """The claim has ended."""
        self._due.pop(claim, None)
        self._every.pop(claim, None)

    def take_due(self, now: float) -> list[K]:
        """Those whose heartbeat is due; each gets its next time."""
        due = [claim for claim, at in self._due.items() if at <= now]
        for claim in due:
            self._due[claim] = now + self._every[claim]
        return due

    def hurry(self, claims: Sequence[K], now: float) -> None:
        """Their heartbeat failed: the next try comes sooner than a heartbeat would."""
        for claim in claims:
            if claim in self._due:
                soon = now + max(_SHORTEST_S, self._every[claim] / 4)
                self._due[claim] = min(self._due[claim], soon)

    def shortest(self, claims: Sequence[K]) -> float:
        """How long the one that is due most often can wait for its next heartbeat, in seconds."""
        return min((self._every[claim] for claim in claims if claim in self._every), default=_SHORTEST_S)

    def next_due(self) -> float | None:
        """When the next one is due, or None."""
        return min(self._due.values(), default=None)
