"""One queue of the memory store: its jobs, in all the orders in which they are asked for, its counters and its keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from pinlater.domain.descriptor import I64_MAX
from pinlater.domain.job import JobState, NewJob, UniqueScope
from pinlater.domain.queue import PriorityCounts, Queue
from pinlater.domain.transitions import MYSQL_STATUS, StatusRule
from pinlater.server.storage.memory.failures import MemoryFailures
from pinlater.server.storage.memory.record import MemoryJob
from pinlater.server.storage.memory.sorted_keys import Key, SortedKeys
from pinlater.server.storage.values import Inserted, JobKey


@dataclass(slots=True)
class PriorityJobs:
    """One queue's jobs of one priority, by state, and what happened to them since the queue was made.

    `mark` splits the waiting jobs: those at or before it count as due, those behind it as future. Only `advance` moves it.
    """

    by_state: dict[JobState, SortedKeys] = field(default_factory=lambda: {state: SortedKeys() for state in JobState})
    mark: Key = (0, 0)
    enqueued: int = 0
    claimed: int = 0
    succeeded: int = 0
    failed: int = 0
    retried: int = 0

    def advance(self, now_ms: int, limit: int) -> int:
        """Moves the mark over at most `limit` jobs that are due now; returns how many it passed."""
        pending = self.by_state[JobState.PENDING]
        counted = pending.count_through(self.mark)
        due = pending.count_through((now_ms, I64_MAX))
        moved = max(0, min(due - counted, limit))
        if counted + moved < due:
            self.mark = pending.at(counted + moved - 1) if moved else self.mark
        else:
            self.mark = max(self.mark, (now_ms, I64_MAX))
        return moved

    def counts(self, priority: int) -> PriorityCounts:
        pending = self.by_state[JobState.PENDING]
        due = pending.count_through(self.mark)
        first = pending.first()
        return PriorityCounts(
            priority=priority,
            pending=len(pending),
            future=len(pending) - due,
            in_progress=len(self.by_state[JobState.IN_PROGRESS]),
            succeeded=len(self.by_state[JobState.SUCCEEDED]),
            failed=len(self.by_state[JobState.FAILED]),
            enqueued_total=self.enqueued,
            claimed_total=self.claimed,
            succeeded_total=self.succeeded,
            failed_total=self.failed,
            retried_total=self.retried,
            oldest_due_at_ms=first[0] if first and due else None,
        )


@dataclass(slots=True, frozen=True)
class KeyHold:
    """Which job has a unique key. `until_ms` ends scope TIME, whatever becomes of the job; the others end with the job."""

    job_id: int
    priority: int
    scope: UniqueScope
    until_ms: int


@dataclass(slots=True, frozen=True)
class RequestSeen:
    """A keyed enqueue and what it was answered."""

    fingerprint: bytes
    answer: Inserted
    at_ms: int


class QueueState:
    """A queue. Every change of a job goes through `add`, `changing` or `drop`, so that no order or count can be forgotten."""

    def __init__(self, settings: Queue, status_rule: StatusRule = MYSQL_STATUS, number: int = 0) -> None:
        """`number`: no other queue of the shard has or had it."""
        self.number = number
        self.status_rule = status_rule
        self.settings = settings
        self.jobs: dict[int, MemoryJob] = {}
        self.lines: dict[int, PriorityJobs] = {}
        self.deadlines = SortedKeys()
        self.expiries = SortedKeys()
        self.unique_keys: dict[str, KeyHold] = {}
        self.requests: dict[str, RequestSeen] = {}
        self.failures = MemoryFailures()

    # --- jobs -----------------------------------------------------------------------------------------------------------

    def find(self, key: JobKey) -> MemoryJob | None:
        """The job, if all parts of its name match."""
        job = self.jobs.get(key.id)
        return job if job is not None and job.priority == key.priority else None

    def line(self, priority: int) -> PriorityJobs:
        line = self.lines.get(priority)
        if line is None:
            line = self.lines[priority] = PriorityJobs()
        return line

    def priorities(self) -> list[int]:
        """The priorities that have or had jobs, highest (1) first."""
        return sorted(self.lines)

    def in_state(self, state: JobState, priority: int) -> SortedKeys:
        return self.line(priority).by_state[state]

    def pending(self) -> int:
        return sum(len(line.by_state[JobState.PENDING]) for line in self.lines.values())

    def add(self, job: MemoryJob) -> None:
        self.jobs[job.id] = job
        self._enter(job)

    def drop(self, job: MemoryJob) -> None:
        """Deletes the job; frees its unique key unless time alone does."""
        self._leave(job)
        del self.jobs[job.id]
        self._free_key(job, UniqueScope.PENDING, UniqueScope.UNFINISHED)

    @contextmanager
    def changing(self, job: MemoryJob) -> Iterator[PriorityJobs]:
        """Takes the job out of all orders while it changes, and puts it back where it belongs then."""
        self._leave(job)
        yield self.line(job.priority)
        self._enter(job)
        if job.state is not JobState.PENDING:
            self._free_key(job, UniqueScope.PENDING)
        if job.finished_at_ms is not None:
            self._free_key(job, UniqueScope.UNFINISHED)

    def _orders(self, job: MemoryJob, act: Callable[[SortedKeys, Key], None]) -> None:
        act(self.in_state(job.state, job.priority), (job.sort_ms, job.id))
        if job.claim is not None:
            act(self.deadlines, (job.claim.deadline_ms, job.id))
        if job.state is JobState.PENDING and job.expires_at_ms is not None:
            act(self.expiries, (job.expires_at_ms, job.id))

    def _enter(self, job: MemoryJob) -> None:
        self._orders(job, SortedKeys.add)

    def _leave(self, job: MemoryJob) -> None:
        self._orders(job, SortedKeys.remove)

    # --- unique keys ----------------------------------------------------------------------------------------------------

    def key_holder(self, key: str, now_ms: int) -> KeyHold | None:
        """The job that has the key now."""
        hold = self.unique_keys.get(key)
        if hold is not None and hold.scope is UniqueScope.TIME and hold.until_ms <= now_ms:
            return None
        return hold

    def take_key(self, new: NewJob, now_ms: int) -> None:
        if new.unique is not None:
            until_ms = now_ms + new.unique.for_ms
            self.unique_keys[new.unique.key] = KeyHold(new.id, new.priority, new.unique.scope, until_ms)

    def retake_key(self, job: MemoryJob, now_ms: int) -> bool:
        """Takes an UNFINISHED key again for a finished job that goes back to the queue; False if another has it."""
        if job.unique is None or job.unique.scope is not UniqueScope.UNFINISHED:
            return True
        if self.key_holder(job.unique.key, now_ms) is not None:
            return False
        self.unique_keys[job.unique.key] = KeyHold(job.id, job.priority, job.unique.scope, 0)
        return True

    def rename_holder(self, job: MemoryJob) -> None:
        """The job has another priority: its unique key says so, if it has one."""
        hold = None if job.unique is None else self.unique_keys.get(job.unique.key)
        if job.unique is not None and hold is not None and hold.job_id == job.id:
            self.unique_keys[job.unique.key] = replace(hold, priority=job.priority)

    def _free_key(self, job: MemoryJob, *scopes: UniqueScope) -> None:
        if job.unique is None:
            return
        hold = self.unique_keys.get(job.unique.key)
        if hold is not None and hold.job_id == job.id and hold.scope in scopes:
            del self.unique_keys[job.unique.key]
