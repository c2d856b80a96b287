"""The queues of one shard, as this server last read them, and the run-after at which claims begin to search.

Other servers change the same tables, so the cache makes calls faster and decides nothing. A transaction takes queues from it by
`Transaction.queues_named` and `queues_of`, which query the database for queues that are missing here. If a queue that it took from here
is deleted, the transaction fails and runs again with data from the database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pinlater.domain.descriptor import I64_MAX
from pinlater.domain.queue import Queue
from pinlater.server.storage.mysql.ready_jobs import ReadyBytes, ReadyJobs, ReadyMemory
from pinlater.server.storage.relational.known_groups import KnownGroups
from pinlater.server.storage.relational.lost_jobs import LostJobs

# How long a claim may trust that nothing waits before the last one it took.
_FLOOR_KEPT_S = 1.0
# Then it searches this much further back; and from the very beginning, if that takes no more than this share of the time.
_LOOK_BACK_MS = 10_000
_LOOKING_PART = 0.05
_LOOK_EVERY_MAX_S = 60.0
LOWEST_MS = -I64_MAX - 1


class QueueEntry:
    """A queue with the priorities that were ever used in it."""

    __slots__ = (
        "_before",
        "_from_the_start",
        "floors",
        "floors_since",
        "known_failures",
        "look_every_s",
        "looked_at",
        "name",
        "ordered",
        "priorities",
        "queue_id",
        "ready",
    )

    def __init__(self, queue_id: int, name: str, priorities: Iterable[int], memory: ReadyMemory) -> None:
        self.ready = ReadyJobs(memory)
        self.queue_id = queue_id
        self.name = name
        self.ordered = False  # as a whole
        self.known_failures = KnownGroups()
        self.priorities = sorted(set(priorities))
        self.floors: dict[int, int] = {}
        self.floors_since = 0.0
        self.looked_at = 0.0  # when a claim last began without a floor
        self.look_every_s = _FLOOR_KEPT_S  # how long after that one the next does so
        self._from_the_start = False
        self._before: dict[int, int] = {}  # the floors that apply if the claim under way fails

    def renew_floors(self, now: float) -> None:
        """Renews the floors before a claim."""
        if now - self.floors_since >= _FLOOR_KEPT_S:
            self.floors = {priority: run_after_ms - _LOOK_BACK_MS for priority, run_after_ms in self.floors.items()}
            self.floors_since = now
        self._before = dict(self.floors)
        if now - self.looked_at >= self.look_every_s:
            self.floors = {}
            self.looked_at = now
            self._from_the_start = True

    def took(self, seconds: float) -> None:
        """Notes how long the search of the claim took."""
        if self._from_the_start:
            self._from_the_start = False
            self.look_every_s = min(_LOOK_EVERY_MAX_S, max(_FLOOR_KEPT_S, seconds / _LOOKING_PART))

    def came_to_nothing(self) -> None:
        """Handles a claim that was rolled back: its jobs wait again. A search from the start that didn't end is not repeated at
        once."""
        self.ready.forget()
        self.floors = dict(self._before)
        if self._from_the_start:
            self._from_the_start = False
            self.look_every_s = min(_LOOK_EVERY_MAX_S, 2 * self.look_every_s)

    def add_priority(self, priority: int) -> None:
        if priority not in self.priorities:
            self.priorities = sorted([*self.priorities, priority])

    def waits_from(self, priority: int, run_after_ms: int) -> None:
        """Notes that a job of this time waits (again): claims search from there on at the latest."""
        for floors in (self.floors, self._before):
            if run_after_ms < floors.get(priority, LOWEST_MS):
                floors[priority] = run_after_ms


class MysqlQueueCache:
    """The queues of one shard as they were when it was last read. `monotonic` in seconds. `ready_bytes`: of all shards of the server."""

    def __init__(
        self, shard: str, monotonic: Callable[[], float], priority_levels: int, ready_bytes: ReadyBytes
    ) -> None:
        self.shard = shard
        self._monotonic = monotonic
        self.ready_memory = ReadyMemory(ready_bytes)
        self._levels = range(1, priority_levels + 1)
        self.queues: dict[str, QueueEntry] = {}
        self.by_id: dict[int, QueueEntry] = {}
        self.lost = LostJobs()
        self.came_first: Callable[[str, int], object] = lambda _queue, _due_ms: None
        """Called with a job that is ready because those before it under its ordering key have ended."""
        self.careful_acks_left = 0  # how many further calls read the claims of plain acks first
        self._looks_begun = 0
        self._look_taken = 0

    def begin_look(self) -> int:
        """Begins a read, before the queues are read, for `replace`."""
        self._looks_begun += 1
        return self._looks_begun

    def replace(
        self, look: int, queues: Iterable[tuple[int, Queue]], priorities: Iterable[tuple[int, int]] = ()
    ) -> None:
        """Stores all queues as the database had them at that read, unless a later read was already stored."""
        if look <= self._look_taken:
            return
        self._look_taken = look
        used: dict[int, list[int]] = {}
        for queue_id, priority in priorities:
            used.setdefault(queue_id, []).append(priority)
        old = self.by_id
        self.queues, self.by_id = {}, {}
        for queue_id, queue in queues:
            entry = old.get(queue_id) or QueueEntry(queue_id, queue.name, self._levels, self.ready_memory)
            entry.ordered = queue.life.ordered
            for priority in used.get(queue_id, ()):
                entry.add_priority(priority)
            self.queues[queue.name] = self.by_id[queue_id] = entry
        for queue_id in old.keys() - self.by_id.keys():
            old[queue_id].ready.close()

    def learn(self, queue_id: int, queue: Queue) -> QueueEntry:
        """Adds a queue that the database has. Ids grow, so of two queues with one name, the one with the lower id is gone."""
        known = self.by_id.get(queue_id)
        if known is not None:
            return known
        name = queue.name
        entry = QueueEntry(queue_id, name, self._levels, self.ready_memory)
        entry.ordered = queue.life.ordered
        before = self.queues.get(name)
        if before is None or before.queue_id < queue_id:
            if before is not None:
                before.ready.close()
                del self.by_id[before.queue_id]
            self.queues[name] = self.by_id[queue_id] = entry
        return entry

    def floors(self, queue: QueueEntry) -> dict[int, int]:
        """Returns the run-after from which a search has to begin, for each priority.

        Deleted rows stay in the index until the database purges them, and a claim that began at the very first position would read all of
        them. So it begins where the last one ended, but once a second at the beginning: other servers put jobs there, too. While a long
        read keeps the database from purging, that takes long, and is done less often; jobs that other servers stored a little late are
        still found within a second.
        """
        queue.renew_floors(self._monotonic())
        return queue.floors

    def forget_floors(self) -> None:
        """Forgets the floors after a rollback, since the jobs of the transaction wait again."""
        for queue in self.queues.values():
            queue.came_to_nothing()

    def now_s(self) -> float:
        """Returns the monotonic time in seconds."""
        return self._monotonic()

    def close(self) -> None:
        """Frees the space of its jobs for the other shards."""
        for queue in self.by_id.values():
            queue.ready.close()

    def forget_ready(self, queue_id: int) -> None:
        """Notes that a waiting job is gone, after the transaction has ended."""
        queue = self.by_id.get(queue_id)
        if queue is not None:
            queue.ready.forget()

    def waits_elsewhere(self, queue_id: int, run_after_ms: int) -> None:
        """Notes that a job was put back, after the transaction has ended."""
        queue = self.by_id.get(queue_id)
        if queue is not None:
            queue.ready.waits_elsewhere(run_after_ms)

    def waits_from(self, queue_id: int, priority: int, run_after_ms: int) -> None:
        """Notes that a job of this time was stored or put back."""
        queue = self.by_id.get(queue_id)
        if queue is not None:
            queue.waits_from(priority, run_after_ms)
