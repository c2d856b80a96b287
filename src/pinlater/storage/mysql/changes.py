"""Everything that happens to a job but the plain ways (inserted, claimed, succeeded at once): loaded, changed, written back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from pinlater.domain.job import UniqueScope
from pinlater.storage.events import FAILED, HAS_PROGRESS, IN_PROGRESS, PENDING, SUCCEEDED, Events, Record
from pinlater.storage.mysql.counters import Counter
from pinlater.storage.mysql.statements import Template, delete_ready, delete_rows, in_statements, json_rows, row, sql
from pinlater.storage.mysql.transaction import Transaction

# Flags of a row of `ready`: has a row in `progress`, is counted as future, has options.
CHANGED, FUTURE, OPTIONS = 1, 2, 4

# A job that is nowhere has just moved back, and whoever moved it has committed by now; or it is being deleted.
_LOOKS_MAX = 5

_LOAD = sql("lock_jobs")
_RENEW = sql("renew_claims")
_SAVE_PROGRESS = sql("save_progress")
_SAVE_BODY = sql("save_body")
_READY = sql("insert_ready")
_FUTURE = sql("insert_future")
_DONE = sql("insert_done")
_EXPIRIES = sql("insert_expiries")
_FREE_KEY = sql("free_unique_key")


class MysqlRecord(Record):
    """A job, with what its row of `ready` says of it."""

    counted_future: bool
    body_bytes: int
    queue: str


class Changes(Events):
    """The events of one call. Load, decide, then `write` once."""

    def __init__(self, transaction: Transaction, now_ms: int) -> None:
        super().__init__(now_ms)
        self._transaction = transaction
        self.orphans: set[int] = set()

    async def load(self, ids: Sequence[int]) -> list[MysqlRecord]:
        """Those of the jobs that are there, in queues that are; locked. `orphans` are those whose queue is gone from the database."""
        found: dict[int, MysqlRecord] = {}
        left = sorted(set(ids))
        for _ in range(_LOOKS_MAX):
            if not left:
                break
            nowhere = []
            lines = await self._transaction.select_jobs(_LOAD, left)
            queues = await self._transaction.queues_of([line[1] for line in lines])
            for line in lines:
                queue = queues.get(line[1])
                ready_flags, claimed, done_state = line[27], line[17], line[25]
                if ready_flags is None and claimed is None and done_state is None:
                    nowhere.append(line[0])
                elif queue is None:
                    self.orphans.add(line[0])
                else:
                    record = MysqlRecord(line[:27], self._transaction.counters.of(line[1], line[2]))
                    record.counted_future = bool((ready_flags or 0) & FUTURE)
                    record.body_bytes = line[28]
                    record.queue = queue.name
                    found[record.id] = record
            left = nowhere
        return [found[job_id] for job_id in dict.fromkeys(ids) if job_id in found]

    def _leave_waiting(self, job: Record) -> None:
        counter = _counter(job)
        counter.pending -= 1
        counter.future -= job.counted_future
        job.counted_future = False

    def _enter_waiting(self, job: Record) -> None:
        counter = _counter(job)
        job.counted_future = job.run_after_ms > self._now_ms
        counter.pending += 1
        counter.future += job.counted_future

    # --- writing --------------------------------------------------------------------------------------------------------------

    def write(self) -> None:
        jobs = [self._touched[job_id] for job_id in sorted(self._touched)]
        self._save_progress([job for job in jobs if job.changed])
        self._leave([job for job in jobs if job.state is not job.was or job.state is PENDING])
        self._enter(jobs)
        self._free_keys(jobs)

    def _save_progress(self, jobs: Sequence[Record]) -> None:
        change = self._transaction.change
        lines = [
            (
                job.id,
                job.attempts_allowed,
                job.attempts_remaining,
                job.attempts_ended,
                job.run_after_ms,
                job.updated_at_ms,
                job.custom_status,
                job.error_type,
                job.error_text,
                job.history,
            )
            for job in jobs
        ]
        self._insert(_SAVE_PROGRESS, lines)
        for job in jobs:
            if job.new_body is not None:
                change(_SAVE_BODY(body=job.new_body, id=job.id))

    def _leave(self, jobs: Sequence[Record]) -> None:
        change = self._transaction.change
        waiting = [(job.queue_id, job.priority, job.was_run_after_ms, job.id) for job in jobs if job.was is PENDING]
        claimed = [job.id for job in jobs if job.was is IN_PROGRESS]
        finished = [job.id for job in jobs if job.was is SUCCEEDED or job.was is FAILED]
        if waiting:
            change(delete_ready(waiting))
        if claimed:
            change(delete_rows(b"claims", claimed))
        if finished:
            change(delete_rows(b"done", finished))

    def _enter(self, jobs: Sequence[Record]) -> None:
        ready: list[tuple[int, ...]] = []
        future: list[tuple[int, ...]] = []
        done: list[tuple[object, ...]] = []
        expiries: list[tuple[int, int]] = []
        renewed: list[tuple[int, int, int]] = []
        for job in jobs:
            if job.state is IN_PROGRESS:
                renewed.append((job.id, job.deadline_ms, job.flags | HAS_PROGRESS if job.changed else job.flags))
            elif job.state is PENDING:
                ready.append(_ready_row(job))
                if job.counted_future:
                    future.append((job.run_after_ms, job.id, job.queue_id, job.priority))
                self._transaction.book.waits_from(job.queue_id, job.priority, job.run_after_ms)
                if job.options.expires_ms is not None:
                    expiries.append((job.options.expires_ms, job.id))
            elif job.state is not job.was:
                done.append((job.id, job.queue_id, int(job.state), job.priority, job.finished_at_ms, job.holder))
        change = self._transaction.change
        if renewed:
            change(_RENEW(claims=json_rows(renewed)))
        self._insert(_READY, sorted(ready))
        self._insert(_FUTURE, sorted(future))
        self._insert(_EXPIRIES, expiries)
        self._insert(_DONE, done)

    def _insert(self, statement: Template, lines: Sequence[Sequence[object]]) -> None:
        """In as many statements as their size takes."""
        for part in in_statements([row(line) for line in lines], self._transaction.statement_bytes_max):
            self._transaction.change(statement(rows=part))

    def _free_keys(self, jobs: Iterable[Record]) -> None:
        """A key of scope PENDING or UNFINISHED ends with its job."""
        for job in jobs:
            unique = job.options.unique
            if job.finished and unique is not None and unique.scope is not UniqueScope.TIME:
                self._transaction.change(_FREE_KEY(queue_id=job.queue_id, key=unique.key.encode(), id=job.id))


def _ready_row(job: Record) -> tuple[int, ...]:
    flags = CHANGED if job.changed or job.has_progress else 0
    flags |= FUTURE if job.counted_future else 0
    size = len(job.new_body) if job.new_body is not None else cast(MysqlRecord, job).body_bytes
    return (job.queue_id, job.priority, job.run_after_ms, job.id, flags, size)


def _counter(job: Record) -> Counter:
    return cast(Counter, job.counter)
