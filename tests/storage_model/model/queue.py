"""One queue of the model: its jobs, its counters and its keys. Orders are sorted when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pinlater.domain.descriptor import I64_MAX
from pinlater.domain.job import JobState, UniqueScope
from pinlater.domain.queue import PriorityCounts, Queue
from pinlater.domain.transitions import StatusRule
from pinlater.server.storage.values import Inserted, JobKey, NewJob
from tests.storage_model.model.job import ModelJob

Place = tuple[int, int]
SHARD = "1"
"""The name of the model's shard, and of the one under test."""


@dataclass(slots=True)
class Totals:
    """What happened to the jobs of one priority since the queue was made.

    `mark` splits the waiting jobs: those at or before it count as due, those behind it as future. Only `advance` moves it.
    """

    mark: Place = (0, 0)
    enqueued: int = 0
    claimed: int = 0
    succeeded: int = 0
    failed: int = 0
    retried: int = 0

    def count_failure(self, job: ModelJob) -> None:
        """Counts a failed attempt or a time-out."""
        if job.state is JobState.PENDING:
            self.retried += 1
        else:
            self.failed += 1


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


class ModelQueue:
    """A queue. Every change of a job goes through `changing` or `drop`, so that no key and no count is forgotten."""

    def __init__(self, settings: Queue, status_rule: StatusRule) -> None:
        self.settings = settings
        self.status_rule = status_rule
        self.jobs: dict[int, ModelJob] = {}
        self.totals: dict[int, Totals] = {}
        self.unique_keys: dict[str, KeyHold] = {}
        self.requests: dict[str, RequestSeen] = {}
        # By ordering key, the jobs that have not ended, or that have stopped the key.
        self.lines: dict[str, list[ModelJob]] = {}
        self._moved: list[tuple[ModelJob, JobState, str]] = []

    # --- jobs -----------------------------------------------------------------------------------------------------------

    def find(self, key: JobKey) -> ModelJob | None:
        """The job, if all parts of its name match."""
        job = self.jobs.get(key.id)
        return job if job is not None and job.priority == key.priority else None

    def priorities(self) -> list[int]:
        """The priorities that have or had jobs, highest (1) first."""
        return sorted(self.totals)

    def total(self, priority: int) -> Totals:
        return self.totals.setdefault(priority, Totals())

    def in_state(self, state: JobState, priority: int) -> list[ModelJob]:
        """Oldest first, by the time that orders the state."""
        found = [job for job in self.jobs.values() if job.state is state and job.priority == priority]
        return sorted(found, key=lambda job: (job.sort_ms, job.id))

    def waiting(self) -> list[ModelJob]:
        """As they are handed out: priority first, then run-after, then as enqueued."""
        return [job for priority in self.priorities() for job in self.in_state(JobState.PENDING, priority)]

    @contextmanager
    def changing(self, job: ModelJob) -> Iterator[Totals]:
        """Frees the unique key that the job's state after the change does not hold."""
        before, attempts = job.state, job.attempts_ended
        yield self.total(job.priority)
        self._moved.append((job, before, job.attempts[-1].outcome if job.attempts_ended > attempts else ""))
        if job.state is not JobState.PENDING:
            self._free_key(job, UniqueScope.PENDING)
        if job.finished_at_ms is not None:
            self._free_key(job, UniqueScope.UNFINISHED)

    def drop(self, job: ModelJob) -> None:
        """Deletes the job; frees its unique key unless time alone does."""
        del self.jobs[job.id]
        self._free_key(job, UniqueScope.PENDING, UniqueScope.UNFINISHED)
        self._moved.append((job, job.state, ""))

    # --- ordering keys --------------------------------------------------------------------------------------------------

    def arrange(self) -> None:
        """The jobs of a call that has ended get their places, or leave them; then the first ones of their keys go."""
        moved, self._moved = [each for each in self._moved if each[0].ordering_key is not None], []
        keys: set[str] = set()
        for job, before, outcome in moved:
            line = self.lines.setdefault(job.ordering_key or "", [])
            if job.id in self.jobs and job.state is JobState.PENDING:
                goes_back = outcome == "failed" and self.settings.config.retry_place == "to_back"
                if goes_back:
                    line.remove(job)
                if (job in line and before is JobState.FAILED) or goes_back:
                    keys.add(job.ordering_key or "")
                self.join_line(job)
        for job, _, outcome in moved:
            line = self.lines[job.ordering_key or ""]
            stops = outcome in ("failed", "timed_out") and self.settings.config.after_failure == "stop"
            if job in line and (job.id not in self.jobs or (job.finished_at_ms is not None and not stops)):
                line.remove(job)
                if not job.is_behind:
                    keys.add(job.ordering_key or "")
                job.is_behind = False
        for key in keys:
            self._let_go(key)

    def _let_go(self, key: str) -> None:
        for job in self.lines[key][: self._most_in_hand]:
            if job.finished_at_ms is not None:
                break
            job.is_behind = False

    def lift_barrier(self, after: str, limit: int) -> str | None:
        """The first jobs of the next keys go."""
        keys = sorted([key for key, line in self.lines.items() if line and key > after])[:limit]
        for key in keys:
            self._let_go(key)
        return keys[-1] if len(keys) == limit else None

    @property
    def _most_in_hand(self) -> int:
        if self.settings.home.waits and self.takes_order:
            return 0
        return self.settings.config.max_in_hand_per_key or 1

    @property
    def takes_order(self) -> bool:
        """Whether jobs with ordering keys are stored here."""
        return self.settings.home.is_at(SHARD)

    def may_wait_again(self, job: ModelJob) -> bool:
        """Whether an ended job has a place under its ordering key, or can take one."""
        return job.ordering_key is None or self.takes_order or job in self.lines.get(job.ordering_key, ())

    def join_line(self, job: ModelJob) -> None:
        """A job with an ordering key that is new, or that waits again after its end, takes the last place."""
        if job.ordering_key is not None:
            line = self.lines.setdefault(job.ordering_key, [])
            if job not in line:
                job.number = line[-1].number + 1 if line else 1
                waits = any(other.is_behind or other.finished_at_ms is not None for other in line)
                job.is_behind = waits or len(line) >= self._most_in_hand
                line.append(job)

    # --- counters -------------------------------------------------------------------------------------------------------

    def advance(self, now_ms: int) -> None:
        """Counts all jobs that are due now as due."""
        for totals in self.totals.values():
            totals.mark = max(totals.mark, (now_ms, I64_MAX))

    def counts(self, priority: int) -> PriorityCounts:
        totals, pending = self.total(priority), self.in_state(JobState.PENDING, priority)
        due = [job for job in pending if (job.sort_ms, job.id) <= totals.mark]
        return PriorityCounts(
            priority=priority,
            pending=len(pending),
            future=len(pending) - len(due),
            in_progress=len(self.in_state(JobState.IN_PROGRESS, priority)),
            succeeded=len(self.in_state(JobState.SUCCEEDED, priority)),
            failed=len(self.in_state(JobState.FAILED, priority)),
            enqueued_total=totals.enqueued,
            claimed_total=totals.claimed,
            succeeded_total=totals.succeeded,
            failed_total=totals.failed,
            retried_total=totals.retried,
            oldest_due_at_ms=due[0].run_after_ms if due else None,
            behind_key=sum(job.is_behind for job in pending),
        )

    # --- unique keys ----------------------------------------------------------------------------------------------------

    def key_holder(self, key: str, now_ms: int) -> KeyHold | None:
        """The job that has the key now."""
        hold = self.unique_keys.get(key)
        if hold is not None and hold.scope is UniqueScope.TIME and hold.until_ms <= now_ms:
            return None
        return hold

    def take_key(self, new: NewJob, now_ms: int) -> None:
        if new.options is not None and (unique := new.options.unique) is not None:
            self.unique_keys[unique.key] = KeyHold(new.id, new.priority, unique.scope, now_ms + unique.for_ms)

    def retake_key(self, job: ModelJob, now_ms: int) -> bool:
        """Takes an UNFINISHED key again for a finished job that goes back to the queue; False if another has it."""
        if job.unique is None or job.unique.scope is not UniqueScope.UNFINISHED:
            return True
        if self.key_holder(job.unique.key, now_ms) is not None:
            return False
        self.unique_keys[job.unique.key] = KeyHold(job.id, job.priority, job.unique.scope, 0)
        return True

    def rename_holder(self, job: ModelJob) -> None:
        """The job has another priority: its unique key says so, if it has one."""
        hold = None if job.unique is None else self.unique_keys.get(job.unique.key)
        if job.unique is not None and hold is not None and hold.job_id == job.id:
            self.unique_keys[job.unique.key] = replace(hold, priority=job.priority)

    def _free_key(self, job: ModelJob, *scopes: UniqueScope) -> None:
        if job.unique is None:
            return
        hold = self.unique_keys.get(job.unique.key)
        if hold is not None and hold.job_id == job.id and hold.scope in scopes:
            del self.unique_keys[job.unique.key]
