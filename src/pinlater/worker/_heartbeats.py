"""Which claims need a heartbeat, and when. A table; the loop that sends them is in `_consumer`.

A claim is renewed each time a third of its length has passed, so that two heartbeats may get lost.
"""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.client.values import ClaimedJob

_SHORTEST_S = 0.1


class HeartbeatTable:
    """The claims in hand. Times are monotonic seconds of the caller's clock."""

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        self._every: dict[str, float] = {}

    def add(self, job: ClaimedJob, length_ms: int, now: float) -> float | None:
        """`job` was claimed just now for `length_ms`; when its first heartbeat is due. None without a token, which one needs."""
        if not job.token:
            return None
        every = max(_SHORTEST_S, length_ms / 3000)
        self._every[job.descriptor] = every
        self._due[job.descriptor] = now + every
        return now + every

    def drop(self, descriptor: str) -> None:
        """The claim has ended."""
        self._due.pop(descriptor, None)
        self._every.pop(descriptor, None)

    def take_due(self, now: float) -> Sequence[str]:
        """Descriptors whose heartbeat is due; each gets its next time."""
        due = [descriptor for descriptor, at in self._due.items() if at <= now]
        for descriptor in due:
            self._due[descriptor] = now + self._every[descriptor]
        return due

    def next_due(self) -> float | None:
        """When the next one is due, or None."""
        return min(self._due.values(), default=None)
