"""What the relational code asks of a database within one transaction.

Statements have the same names, parameters and columns in both dialects' `queries/`. SQLite answers at once: its writer runs each
coroutine to its end without an event loop (`sqlite/dialect.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from pinlater.domain.job import JobState
from pinlater.server.storage.record import JobRecord
from pinlater.server.storage.relational.known_groups import KnownGroups
from pinlater.server.storage.relational.rows import ClaimRow, DoneRow, Row, StateRow

Keys = Sequence[tuple[int, ...]]


class WaitingJob(Protocol):
    """A job as far as counters of waiting jobs look at it."""

    @property
    def id(self) -> int: ...
    @property
    def run_after_ms(self) -> int: ...
    @property
    def counted_future(self) -> int: ...


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


class Dialect(Protocol):
    """One transaction. `job_tables` hold rows of a job in every state."""

    @property
    def job_tables(self) -> Sequence[str]: ...

    async def queues_named(self, names: Iterable[str]) -> Mapping[str, QueueEntry]:
        """The queues of these names that exist."""
        ...

    async def queues_of(self, ids: Iterable[int]) -> Mapping[int, QueueEntry]:
        """The queues of these ids that exist."""
        ...

    def counter(self, queue_id: int, priority: int) -> Counter:
        """The counters to change: made if the priority was never used."""
        ...

    async def load_jobs(self, ids: Sequence[int]) -> Sequence[Row]:
        """The jobs that exist, locked: for `record_of`. One that `ids` names twice may come twice."""
        ...

    async def load_claims(self, ids: Sequence[int]) -> Sequence[ClaimRow]:
        """The claims that exist, locked. One that `ids` names twice may come twice."""
        ...

    async def load_done(self, ids: Sequence[int]) -> Sequence[DoneRow]:
        """The finished jobs among these, locked."""
        ...

    async def load_states(self, ids: Sequence[int]) -> Sequence[StateRow]:
        """Where each of the jobs is, locked."""
        ...

    async def find_unfinished(self, ids: Sequence[int]) -> set[int]:
        """Finds the jobs that wait or are claimed, or got a key by `save_key`. Locks nothing."""
        ...

    async def body_sizes(self, jobs: Sequence[JobRecord]) -> Mapping[int, int]:
        """The bytes of these jobs' bodies, by id."""
        ...

    async def load_contents(self, ids: Sequence[int]) -> Sequence[tuple[int, bytes, str | None]]:
        """Id and newest body of each of these jobs, and the last holder of a finished one. They exist and are locked."""
        ...

    async def select(self, name: str, /, **values: object) -> Sequence[tuple[Any, ...]]:
        """The rows of a statement, after all changes so far."""
        ...

    async def change_now(self, name: str, /, **values: object) -> int:
        """Carries out an UPDATE or DELETE, after all changes so far; how many rows it changed."""
        ...

    async def key_holder(self, queue_id: int, key: str) -> tuple[int, int, int | None] | None:
        """The row of a unique key: job id, priority, end; it may have ended."""
        ...

    def save_key(self, queue_id: int, key: str, scope: int, job: JobRecord) -> None:
        """Gives a unique key to a job, until the job ends."""
        ...

    def free_key(self, queue_id: int, key: str, job_id: int) -> None:
        """Frees a unique key if this job has it and it does not end by time."""
        ...

    def move_key(self, queue_id: int, key: str, job_id: int, priority: int) -> None:
        """A unique key names its job under another priority, if this job has the key."""
        ...

    def set_priority(self, ids: Sequence[int], priority: int, now_ms: int) -> None:
        """In the rows of these jobs that hold for all states, and in those of finished ones."""
        ...

    def insert(self, name: str, rows: Sequence[Sequence[object]]) -> None:
        """An INSERT of many rows."""
        ...

    def insert_jobs(self, rows: Sequence[Row]) -> None:
        """Rows of `jobs`: id, queue, priority, run-after, attempts allowed, created at, options, body."""
        ...

    def for_each(self, name: str, keys: Keys) -> None:
        """An UPDATE or DELETE for each of these keys."""
        ...

    def delete(self, table: str, ids: Sequence[int]) -> None:
        """Deletes rows by id."""
        ...

    def save_body(self, job_id: int, body: bytes) -> None:
        """A new body; the job has a row in `progress`."""
        ...

    def enter_ready(self, jobs: Sequence[JobRecord]) -> None:
        """Rows of jobs that wait again, with their expiries."""
        ...

    def jobs_deleted(self) -> None:
        """Called when jobs are about to be deleted."""
        ...

    def count_lost(self, jobs: int) -> None:
        """Counts and logs jobs that are removed because their own rows are gone."""
        ...
