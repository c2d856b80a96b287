"""When each claim needs its next heartbeat: whenever a third of its length has passed, so that two heartbeats may get lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

K = TypeVar("K")
_SHORTEST_S = 0.1


class HeartbeatSchedule(Generic[K]):
    """Claims by any key. Times are monotonic seconds of the caller's clock."""

    def __init__(self) -> None:
        self._due: dict[K, float] = {}
        self._interval: dict[K, float] = {}

    def add(self, claim: K, length_ms: int, now: float) -> float:
        """The claim lasts `length_ms` from now. Returns when its first heartbeat is due."""
        interval = max(_SHORTEST_S, length_ms / 3000)
        self._interval[claim] = interval
        self._due[claim] = now + interval
        return now + interval

    def drop(self, claim: K) -> None:
        """The claim has ended."""
        self._due.pop(claim, None)
        self._interval.pop(claim, None)

    def take_due(self, now: float) -> list[K]:
        """The claims whose heartbeats are due. Schedules the next heartbeat of each."""
        due = [claim for claim, at in self._due.items() if at <= now]
        for claim in due:
            self._due[claim] = now + self._interval[claim]
        return due

    def retry_soon(self, claims: Sequence[K], now: float) -> None:
        """Their heartbeat failed: the next one comes after a quarter of the interval."""
        for claim in claims:
            if claim in self._due:
                soon = now + max(_SHORTEST_S, self._interval[claim] / 4)
                self._due[claim] = min(self._due[claim], soon)

    def shortest_interval_s(self, claims: Sequence[K]) -> float:
        """The interval of the claim with the most frequent heartbeats."""
        return min((self._interval[claim] for claim in claims if claim in self._interval), default=_SHORTEST_S)

    def next_due(self) -> float | None:
        """When the next heartbeat is due; None without claims."""
        return min(self._due.values(), default=None)
