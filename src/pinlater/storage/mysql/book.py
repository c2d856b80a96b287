"""What this server remembers of a shard: which queues there are, and from where on claims need to look.

Other servers change the same tables, so nothing here is believed where it matters: a transaction that counts for a queue which was
deleted meanwhile fails by the counters' foreign key, and runs again on what the database says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pinlater.domain.descriptor import I64_MAX

# How long a claim may trust that nothing waits before the last one it took.
_FLOOR_KEPT_S = 1.0
LOWEST_MS = -I64_MAX - 1


class QueueEntry:
    """A queue with the priorities that were ever used in it."""

    __slots__ = ("floors", "floors_since", "name", "priorities", "queue_id")

    def __init__(self, queue_id: int, name: str, priorities: Iterable[int]) -> None:
        self.queue_id = queue_id
        self.name = name
        self.priorities = sorted(set(priorities))
        self.floors: dict[int, int] = {}
        self.floors_since = 0.0

    def add_priority(self, priority: int) -> None:
        if priority not in self.priorities:
            self.priorities = sorted([*self.priorities, priority])

    def waits_from(self, priority: int, run_after_ms: int) -> None:
        """A job of this time waits (again): claims look from there on at the latest."""
        if run_after_ms < self.floors.get(priority, LOWEST_MS):
            self.floors[priority] = run_after_ms


class Book:
    """The queues of one shard as they were when it was last read. `monotonic` in seconds."""

    def __init__(self, monotonic: Callable[[], float], priority_levels: int) -> None:
        self._monotonic = monotonic
        self._levels = range(1, priority_levels + 1)
        self.queues: dict[str, QueueEntry] = {}
        self.by_id: dict[int, QueueEntry] = {}
        self.surprises = 0  # for so many calls yet acks look at their claims first

    def replace(self, queues: Iterable[tuple[int, str]], priorities: Iterable[tuple[int, int]] = ()) -> None:
        """As the database has it."""
        used: dict[int, list[int]] = {}
        for queue_id, priority in priorities:
            used.setdefault(queue_id, []).append(priority)
        old = self.by_id
        self.queues, self.by_id = {}, {}
        for queue_id, name in queues:
            entry = old.get(queue_id) or QueueEntry(queue_id, name, self._levels)
            for priority in used.get(queue_id, ()):
                entry.add_priority(priority)
            self.queues[name] = self.by_id[queue_id] = entry

    def floors(self, queue: QueueEntry) -> dict[int, int]:
        """From which run-after on each priority has to be looked at.

        Deleted rows stay in the index until the database purges them, and a claim that began at the very first place would walk over
        all of them. So it begins where the last one ended, but once a second at the beginning: other servers put jobs there, too.
        """
        now = self._monotonic()
        if now - queue.floors_since >= _FLOOR_KEPT_S:
            queue.floors = {}
            queue.floors_since = now
        return queue.floors

    def forget_floors(self) -> None:
        """A transaction was rolled back: what it took waits again."""
        for queue in self.queues.values():
            queue.floors = {}

    def waits_from(self, queue_id: int, priority: int, run_after_ms: int) -> None:
        """A job of this time was stored or put back."""
        queue = self.by_id.get(queue_id)
        if queue is not None:
            queue.waits_from(priority, run_after_ms)
