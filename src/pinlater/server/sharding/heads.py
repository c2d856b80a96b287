"""The most urgent job of a queue on each of its shards, as far as this server has seen.

Of the shards that hold jobs of a queue, a claim asks the one first whose head is the best, so that neither priority nor age depends on
where a job is. What a claim gives shows what the next job there is like at best. A head that was seen longer ago than `SEEN_S_MAX` is not
known any more, and a shard whose head is not known is asked first.
"""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.domain.clock import Clock
from pinlater.domain.job import HandedOutJob
from pinlater.server.storage.values import InsertRequest

SEEN_S_MAX = 1.0
# A shard without due jobs is asked again after this time. Jobs may come to it unseen.
_EMPTY_S_MAX = 0.05
_QUEUES_MAX = 20_000
# Heads of one priority that became due within such a time are equally good, so that a server does not go to and fro between shards.
_SAME_MS = 512

Head = tuple[int, int]
"""Priority, and due time in units of `_SAME_MS`: the lower the better."""
_UNKNOWN: Head = (0, 0)
_EMPTY: Head = (1 << 62, 0)


class Heads:
    """The heads of all queues that have several shards."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_queue: dict[str, dict[str, tuple[Head, float]]] = {}  # by shard: the head, and until when it is known

    def of(self, queue: str, shard: str) -> Head:
        """Returns the head; better than every other if it is not known, worse if there was no due job a moment ago."""
        found = self._by_queue.get(queue, {}).get(shard)
        return _UNKNOWN if found is None or found[1] < self._clock.monotonic() else found[0]

    def claimed(self, queue: str, shard: str, jobs: Sequence[HandedOutJob]) -> None:
        """A claim gave these jobs, the last of which was the least urgent."""
        if jobs:
            self._note(queue, shard, (jobs[-1].priority, jobs[-1].run_after_ms // _SAME_MS), SEEN_S_MAX)
        else:
            self._note(queue, shard, _EMPTY, _EMPTY_S_MAX)

    def stored(self, request: InsertRequest, shard: str, now_ms: int) -> None:
        """Jobs came. Changes nothing if the head is not known: others may be more urgent."""
        due = [(job.priority, job.run_after_ms // _SAME_MS) for job in request.jobs if job.run_after_ms <= now_ms]
        if due and min(due) < self.of(request.queue, shard):
            self._note(request.queue, shard, min(due), SEEN_S_MAX)

    def forget(self, queue: str | None = None) -> None:
        """Jobs of the queue came to one of the shards, or of all queues for None."""
        if queue is None:
            self._by_queue.clear()
        else:
            self._by_queue.pop(queue, None)

    def _note(self, queue: str, shard: str, head: Head, seconds: float) -> None:
        heads = self._by_queue.get(queue)
        if heads is None:
            if len(self._by_queue) >= _QUEUES_MAX:
                self._by_queue.clear()
            heads = self._by_queue[queue] = {}
        heads[shard] = head, self._clock.monotonic() + seconds
