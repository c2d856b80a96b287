"""The best due job of a queue on each of its shards, as far as this server has seen.

A dequeue uses it (`claim_turns.py`), so that priority does not depend on where a job is. An answer to a claim shows which jobs stay,
and that is valid for `SEEN_S_MAX` from the beginning of the claim: better jobs that this server has not heard of came later.
"""

from __future__ import annotations

from pinlater.domain.clock import Clock
from pinlater.server.storage.values import Claimed, InsertRequest

SEEN_S_MAX = 1.0
# A shard without due jobs is asked again after this time, before shards that have some: jobs may come to it unseen.
_EMPTY_S_MAX = 0.05
_QUEUES_MAX = 20_000
# Heads of one priority that became due within such a time are equally good, so that a server does not alternate between shards.
_SAME_MS = 512

Head = tuple[int, int]
"""Priority, and due time in units of `_SAME_MS`: the lower the better. No due job on the shard is better."""
UNKNOWN: Head = (0, 0)
EMPTY: Head = (1 << 62, 0)
FIRST_PRIORITY = 1


class Heads:
    """The heads of all queues that have several shards."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By queue and shard: the head, when the claim that showed it began, and when that was answered.
        self._by_queue: dict[str, dict[str, tuple[Head, float, float]]] = {}

    def of(self, queue: str, shard: str) -> Head:
        """Returns the head; better than every other if it is not known, worse if there was no due job."""
        head, began_s, _ = self._by_queue.get(queue, {}).get(shard, (UNKNOWN, 0.0, 0.0))
        return head if self._clock.monotonic() <= began_s + SEEN_S_MAX else UNKNOWN

    def place(self, queue: str, shard: str, *, slow: bool) -> tuple[int, bool, int]:
        """Returns the rank of the shard in the order in which a dequeue asks."""
        head = self.of(queue, shard)
        if head == EMPTY and not slow and self._clock.monotonic() > self._by_queue[queue][shard][2] + _EMPTY_S_MAX:
            head = UNKNOWN
        return place_of(head, slow=slow)

    def claimed(self, queue: str, shard: str, limit: int, found: Claimed, began_s: float) -> Head:
        """Notes the result of a claim that began at `began_s` (monotonic) and wanted `limit` jobs. Returns the head that is left."""
        [jobs] = found.jobs
        if len(jobs) >= limit > 0:
            head = _head(jobs[-1].priority, jobs[-1].run_after_ms)
        else:
            head = EMPTY if found.head is None else _head(*found.head)
        heads = self._by_queue.get(queue)
        if heads is None:
            if len(self._by_queue) >= _QUEUES_MAX:
                self._by_queue.clear()
            heads = self._by_queue[queue] = {}
        heads[shard] = head, began_s, self._clock.monotonic()
        return head

    def stored(self, request: InsertRequest, shard: str, now_ms: int) -> None:
        """Notes that jobs came. Changes nothing if the head is not known: others may be better."""
        heads = self._by_queue.get(request.queue)
        if heads is None or shard not in heads:
            return
        head, began_s, answered_s = heads[shard]
        due = [_head(job.priority, job.run_after_ms) for job in request.jobs if job.run_after_ms <= now_ms]
        heads[shard] = min([head, *due]), began_s, answered_s

    def forget(self, queue: str | None = None) -> None:
        """Forgets the heads of the queue (None: of all queues), since jobs came to one of the shards."""
        if queue is None:
            self._by_queue.clear()
        else:
            self._by_queue.pop(queue, None)


def place_of(head: Head, *, slow: bool) -> tuple[int, bool, int]:
    """Returns the rank of a shard: by priority, then slow ones last, then by age. One with an unknown head is before all, or, if it is
    slow, behind those with jobs of the first priority."""
    priority, age = head
    return max(priority, FIRST_PRIORITY if slow else 0), slow, age


def _head(priority: int, run_after_ms: int) -> Head:
    return priority, run_after_ms // _SAME_MS
