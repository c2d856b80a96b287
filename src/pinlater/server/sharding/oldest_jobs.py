"""Where the jobs of a queue have waited longest, as far as the claims of this server have shown.

A dequeue begins on a shard where its own server owns the queue, which costs no call to another server. Jobs on other shards must not
wait longer for that: what a claim gives tells how old the jobs of its shard are, and older ones go first.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pinlater.domain.clock import Clock
from pinlater.domain.job import HandedOutJob

_QUEUES_MAX = 20_000
# A shard without due jobs is asked again after this time. Jobs come to it unseen.
_EMPTY_FOR_MS = 50
# Jobs elsewhere go first if they have been due for this much longer than the own ones. Less than a caller notices, and enough that a
# server does not go to and fro between shards of about the same age.
_LONGER_MS = 500
_EMPTY = 1 << 62  # in the place of a priority


class OldestJobs:
    """Remembers by queue and shard: priority and due time of the last job that a claim gave; the next one there is at least as late."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_queue: dict[str, dict[str, tuple[int, int]]] = {}

    def note(self, queue: str, shard: str, jobs: Sequence[HandedOutJob]) -> None:
        """A claim gave these jobs."""
        oldest = self._by_queue.get(queue)
        if oldest is None:
            if len(self._by_queue) >= _QUEUES_MAX:
                self._by_queue.clear()
            oldest = self._by_queue[queue] = {}
        oldest[shard] = (jobs[-1].priority, jobs[-1].run_after_ms) if jobs else (_EMPTY, self._clock.now_ms())

    def before(self, queue: str, own: Collection[str], others: Collection[str]) -> str | None:
        """The shard of `others` to begin on instead of one of `own`; None if there is no reason to."""
        oldest = self._by_queue.get(queue)
        if oldest is None:
            return None
        now_ms = self._clock.now_ms()
        elsewhere = [(head, shard) for shard, head in oldest.items() if shard in others and head[0] != _EMPTY]
        if not elsewhere:
            return None
        mine = [oldest.get(shard) for shard in own]
        if any(head is None or (head[0] == _EMPTY and head[1] + _EMPTY_FOR_MS <= now_ms) for head in mine):
            return None
        (priority, due_ms), shard = min(elsewhere)
        return shard if (priority, due_ms + _LONGER_MS) < min(filter(None, mine)) else None

    def forget(self) -> None:
        """The shards, or their owners, are others now."""
        self._by_queue.clear()
