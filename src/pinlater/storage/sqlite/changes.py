"""Everything that happens to a job but the plain ways (inserted, claimed, succeeded at once): loaded, changed, written back.

Rows leave the table of the state that a job was in and enter that of the state it is in now, in a few statements a call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from pinlater.domain.job import UniqueKey, UniqueScope
from pinlater.storage.events import FAILED, HAS_PROGRESS, IN_PROGRESS, PENDING, SUCCEEDED, Events, Record
from pinlater.storage.sqlite.ledger import Counter, Transaction
from pinlater.storage.sqlite.statements import Rows, sql

_LOAD = sql("load_jobs")
_DELETE_READY = sql("delete_ready")
_DELETE_CLAIMS = sql("delete_claims")
_DELETE_DONE = sql("delete_done")
_RENEW = sql("renew_claims")
_SAVE_PROGRESS = sql("save_progress")
_SAVE_BODY = sql("save_body")
_READY = Rows("insert_ready")
_DONE = Rows("insert_done")
_EXPIRIES = Rows("insert_expiries")
_FREE_KEY = sql("delete_unique_key")


class Changes(Events):
    """The events of one call. Load, decide, then `write` once."""

    def __init__(self, transaction: Transaction, now_ms: int) -> None:
        super().__init__(now_ms)
        self._transaction = transaction
        self._ledger = transaction.ledger

    def load(self, ids: Sequence[int]) -> list[Record]:
        """Those of the jobs that are there, in queues that are."""
        records = []
        by_id = self._ledger.by_id
        for row in self._transaction.execute(_LOAD, (str(ids),)).fetchall():
            queue = by_id.get(row[1])
            if queue is not None:
                self._ledger.will_change(queue)
                records.append(Record(row, queue.counters[row[2]]))
        return records

    def _leave_waiting(self, job: Record) -> None:
        _counter(job).take_waiting(job.run_after_ms, job.id)

    def _enter_waiting(self, job: Record) -> None:
        counter = _counter(job)
        counter.move_mark(self._now_ms)
        counter.add_waiting(job.run_after_ms, job.id)

    # --- writing --------------------------------------------------------------------------------------------------------------

    def write(self) -> None:
        jobs = list(self._touched.values())
        for job in jobs:
            self._ledger.touch(_counter(job))
        self._save_progress([job for job in jobs if job.changed])
        self._leave([job for job in jobs if job.state is not job.was or job.state is PENDING])
        self._enter(jobs)
        self._free_keys(jobs)

    def _save_progress(self, jobs: list[Record]) -> None:
        rows = [
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
        if rows:
            self._transaction.executemany(_SAVE_PROGRESS, rows)
        bodies = [(job.new_body, job.id) for job in jobs if job.new_body is not None]
        if bodies:
            self._transaction.executemany(_SAVE_BODY, bodies)

    def _leave(self, jobs: list[Record]) -> None:
        claimed = [job.id for job in jobs if job.was is IN_PROGRESS]
        waiting = [(job.queue_id, job.priority, job.was_run_after_ms, job.id) for job in jobs if job.was is PENDING]
        finished = [job.id for job in jobs if job.was is SUCCEEDED or job.was is FAILED]
        if claimed:
            self._transaction.execute(_DELETE_CLAIMS, (str(claimed),))
        if waiting:
            self._transaction.executemany(_DELETE_READY, waiting)
        if finished:
            self._transaction.execute(_DELETE_DONE, (str(finished),))

    def _enter(self, jobs: list[Record]) -> None:
        ready: list[int] = []
        done: list[object] = []
        expiries: list[int] = []
        renewed: list[tuple[int, int, int]] = []
        for job in jobs:
            if job.state is IN_PROGRESS:
                flags = job.flags | HAS_PROGRESS if job.changed else job.flags
                renewed.append((job.deadline_ms, flags, job.id))
            elif job.state is PENDING:
                changed = int(job.changed or job.has_progress)
                ready.extend((job.queue_id, job.priority, job.run_after_ms, job.id, changed))
                if job.options.expires_ms is not None:
                    expiries.extend((job.options.expires_ms, job.id))
                    self._ledger.first_expiry_ms = min(self._ledger.first_expiry_ms, job.options.expires_ms)
            elif job.state is not job.was:
                done.extend((job.id, job.queue_id, int(job.state), job.priority, job.finished_at_ms, job.holder))
        execute = self._transaction.execute
        if renewed:
            self._transaction.executemany(_RENEW, renewed)
        if ready:
            _READY.run(execute, ready)
        if expiries:
            _EXPIRIES.run(execute, expiries)
        if done:
            _DONE.run(execute, done)

    def _free_keys(self, jobs: Iterable[Record]) -> None:
        """A key of scope PENDING or UNFINISHED ends with its job."""
        for job in jobs:
            unique: UniqueKey | None = job.options.unique
            if job.finished and unique is not None and unique.scope is not UniqueScope.TIME:
                self._transaction.execute(_FREE_KEY, (job.queue_id, unique.key, job.id))


def _counter(job: Record) -> Counter:
    return cast(Counter, job.counter)
