"""The interface between the relational code and a database, within one transaction.

Statements have the same names, parameters and columns in both dialects' `queries/`. SQLite answers at once: its writer runs each
coroutine to its end without an event loop (`sqlite/dialect.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from pinlater.domain.job import JobState
from pinlater.domain.queue import Queue
from pinlater.server.storage.record import JobRecord
from pinlater.server.storage.relational.known_groups import KnownGroups
from pinlater.server.storage.relational.rows import Row

Keys = Sequence[tuple[int, ...]]
OrderingKey = tuple[int, str]
"""A queue's id, and a key."""
OrderedRow = tuple[int, int, str, int, int]
"""A row of `ordered`: the job's id, its queue's id, the key, the number, and the job's own due time."""


class WaitingJob(Protocol):
    """The fields of a job that counters of waiting jobs need."""

    @property
    def id(self) -> int: ...
    @property
    def run_after_ms(self) -> int: ...
    @property
    def counted_future(self) -> int: ...


COUNTED = (
    "pending",
    "future",
    "in_progress",
    "succeeded",
    "failed",
    "enqueued_total",
    "claimed_total",
    "succeeded_total",
    "failed_total",
    "retried_total",
)
"""The counts of each queue and priority: columns of `counters`."""


class Counter(Protocol):
    """The counters of one queue and priority."""

    in_progress: int
    succeeded_total: int
    failed_total: int
    retried_total: int

    def leave_waiting(self, job: WaitingJob) -> None: ...
    def enter_waiting(self, job: WaitingJob, now_ms: int) -> None: ...
    def add_finished(self, state: JobState, count: int = 1) -> None: ...


class QueueEntry(Protocol):
    """A queue as the store remembers it."""

    @property
    def queue_id(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def known_failures(self) -> KnownGroups: ...


class QueueRow(NamedTuple):
    """The row of a queue that exists."""

    queue_id: int
    queue: Queue


class QueueLook(NamedTuple):
    """`queue`: None if there is none of this name; `deleted_ms`: when one was last deleted, 0 for never. The deletion is read only if
    there is no queue."""

    queue: Queue | None
    deleted_ms: int


class QueueTable(Protocol):
    """The rows of queues and of their deletions, in one transaction."""

    async def look(self, name: str) -> QueueLook:
        """Reads a queue without a lock."""
        ...

    async def write_merged(self, given: Queue, looked: QueueLook, now_ms: int) -> Queue:
        """Stores the queue that `merged` returns. Returns the queue as it is from then on. Reads again if another server may have changed
        it in between."""
        ...

    async def lock(self, name: str) -> QueueRow | None:
        """The queue, locked against changes of other transactions."""
        ...

    def save(self, queue_id: int, queue: Queue) -> None:
        """The settings of a queue that exists."""
        ...

    def drop(self, queue_ids: Sequence[int]) -> None:
        """Deletes queues, at once for every caller, however many jobs they had."""
        ...

    def hold_deletion(self, name: str) -> None:
        """Locks a deletion that is to be remembered, before `lock`: of a concurrent merge and deletion one sees the other."""
        ...

    def remember_deletion(self, name: str, deleted_ms: int) -> None:
        """Keeps the newest."""
        ...

    def forget_deletions(self, before_ms: int, limit: int) -> None:
        """Forgets deletions before that time, at most `limit`."""
        ...


class Dialect(Protocol):
    """One transaction on the shard `shard`. `job_tables` hold rows of a job in every state; `given_keys` are the jobs that got a unique
    key in it."""

    @property
    def shard(self) -> str: ...
    @property
    def job_tables(self) -> Sequence[str]: ...
    @property
    def given_keys(self) -> set[int]: ...

    def queue_table(self) -> QueueTable:
        """The rows of queues, in this transaction."""
        ...

    async def queues_named(self, names: Iterable[str]) -> Mapping[str, QueueEntry]:
        """The queues of these names that exist."""
        ...

    async def queues_of(self, ids: Iterable[int]) -> Mapping[int, QueueEntry]:
        """The queues of these ids that exist."""
        ...

    def counter(self, queue_id: int, priority: int) -> Counter:
        """Returns the counters to change. Creates them if the priority was never used."""
        ...

    async def load_jobs(self, ids: Sequence[int]) -> Sequence[JobRecord]:
        """The jobs that exist, locked. A job that `ids` names twice may be returned twice."""
        ...

    async def select(self, name: str, /, **values: object) -> Sequence[Row]:
        """The rows of a statement, after all changes so far."""
        ...

    async def select_of(self, name: str, ids: Sequence[int]) -> Sequence[Row]:
        """The rows of a statement on a list of ids, in order."""
        ...

    async def select_jobs(self, name: str, ids: Sequence[int]) -> Sequence[Row]:
        """The rows of a statement on these jobs, wherever they are kept. Their first column is the id."""
        ...

    async def change_now(self, name: str, /, **values: object) -> int:
        """Executes an UPDATE or DELETE, after all changes so far. Returns how many rows it changed."""
        ...

    def change(self, name: str, /, **values: object) -> None:
        """Executes an UPDATE or DELETE."""
        ...

    def save_key(self, queue_id: int, key: str, scope: int, job: JobRecord) -> None:
        """Gives a unique key to a job, until the job ends."""
        ...

    def set_priority(self, ids: Sequence[int], priority: int, now_ms: int) -> None:
        """Sets the priority in those rows of these jobs that are independent of the state, and in those of finished ones."""
        ...

    def insert(self, name: str, rows: Sequence[Sequence[object]]) -> None:
        """An INSERT of many rows."""
        ...

    def for_each(self, name: str, keys: Keys) -> None:
        """An UPDATE or DELETE for each of these keys."""
        ...

    def delete(self, table: str, ids: Sequence[int]) -> None:
        """Deletes rows by id."""
        ...

    def enter_ready(self, jobs: Sequence[JobRecord]) -> None:
        """Rows of jobs that wait again, with their expiries."""
        ...

    def lock_keys(self, keys: Collection[OrderingKey]) -> None:
        """Locks these ordering keys: a second transaction with one of them waits here until the first has ended."""
        ...

    def forget_keys(self, keys: Sequence[OrderingKey]) -> None:
        """Deletes these ordering keys, which are locked and have no jobs."""
        ...

    async def last_numbers(self, keys: Collection[OrderingKey]) -> tuple[dict[OrderingKey, int], Mapping[int, Queue]]:
        """The highest numbers of those of these ordering keys, which are locked, that have jobs. Also returns the queues of these keys by
        id, as `held_queues`."""
        ...

    def insert_ordered(self, rows: Sequence[OrderedRow]) -> None:
        """Gives jobs their places."""
        ...

    def delete_ordered(self, ids: Sequence[int]) -> None:
        """Jobs leave their places."""
        ...

    async def select_keys(self, name: str, keys: Collection[OrderingKey]) -> tuple[Sequence[Row], Mapping[int, Queue]]:
        """The rows of a statement on a list of ordering keys, which are locked: queue id, key, and the result. Also returns the queues
        of these keys, as `stored_queues`."""
        ...

    async def first_places(self, keys: Sequence[tuple[OrderingKey, int]]) -> Sequence[Row]:
        """The first rows of `ordered` of each key, at most that many: queue id, key, job id, due time."""
        ...

    async def stored_queues(self, queue_ids: Collection[int]) -> Mapping[int, Queue]:
        """Returns these queues by id, without their names, with the settings and homes that the store has; a deleted one has none."""
        ...

    async def held_queues(self, queue_ids: Collection[int]) -> Mapping[int, Queue]:
        """Does the same as `stored_queues`; the rows do not change before the transaction ends."""
        ...

    def came_first(self, queue_id: int, due_ms: int) -> None:
        """Makes a job that waited behind others ready from that time on."""
        ...

    def jobs_deleted(self) -> None:
        """Prepares the deletion of jobs."""
        ...

    def count_lost(self, jobs: int) -> None:
        """Counts and logs jobs that are removed because their own rows are gone."""
        ...
