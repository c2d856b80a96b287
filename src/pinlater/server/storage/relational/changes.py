"""Writes the changes of the loaded jobs of a call: a few statements per call, however many jobs it has.

A row leaves the table of the job's old state and one enters the table of its new state. A job that keeps waiting moves too: its place in
`ready` depends on its run-after.
"""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.domain.job import UniqueKey
from pinlater.domain.transitions import IN_PROGRESS, PENDING
from pinlater.server.storage.changes import Changes, Move
from pinlater.server.storage.record import HAS_PROGRESS, JobRecord
from pinlater.server.storage.relational import failures, ordering
from pinlater.server.storage.relational.dialect import Dialect
from pinlater.server.storage.relational.rows import done_row, key_of_job, progress_row


async def write(dialect: Dialect, changes: Changes) -> None:
    """Writes all that the call changed."""
    moves = changes.moves()
    if not moves:
        return
    for before, after in moves:
        if after.options.ordering_key is not None and before.state is not after.state:
            await ordering.arrange(dialect, changes)
            moves = changes.moves()
            break
    moved = [(before, after) for before, after in moves if before.state is not after.state or after.state is PENDING]
    _count(dialect, changes, moved)
    _save_progress(dialect, [after for _, after in moves if after.changed])
    _leave(dialect, [before for before, _ in moved])
    _renew(dialect, [after for _, after in moves if after.state is IN_PROGRESS])
    dialect.enter_ready([after for _, after in moved if after.state is PENDING])
    finished = [after for _, after in moved if after.finished]
    dialect.insert("insert_done", [done_row(job) for job in finished])
    _free_keys(dialect, finished)
    await failures.count(dialect, changes)


def _count(dialect: Dialect, changes: Changes, moved: Sequence[Move]) -> None:
    for before, after in moved:
        counter = dialect.counter(after.queue_id, after.priority)
        if before.state is PENDING:
            counter.leave_waiting(before)
        elif before.state is IN_PROGRESS:
            counter.in_progress -= 1
        else:
            counter.add_finished(before.state, -1)
        if after.state is PENDING:
            counter.enter_waiting(after, changes.now_ms)
        else:
            counter.add_finished(after.state)
    for (queue_id, priority), totals in changes.totals.items():
        counter = dialect.counter(queue_id, priority)
        counter.succeeded_total += totals.succeeded
        counter.failed_total += totals.failed
        counter.retried_total += totals.retried


def _save_progress(dialect: Dialect, jobs: Sequence[JobRecord]) -> None:
    dialect.insert("save_progress", [progress_row(job) for job in jobs])
    for job in jobs:
        if job.body is not None:
            dialect.change("save_body", body=job.body, id=job.id)


def _leave(dialect: Dialect, jobs: Sequence[JobRecord]) -> None:
    """Deletes rows from the tables of their states as loaded."""
    waiting = [job for job in jobs if job.state is PENDING]
    dialect.for_each("delete_ready", [(job.queue_id, job.priority, job.run_after_ms, job.id) for job in waiting])
    dialect.delete("claims", [job.id for job in jobs if job.state is IN_PROGRESS])
    dialect.delete("done", [job.id for job in jobs if job.finished])


def _renew(dialect: Dialect, jobs: Sequence[JobRecord]) -> None:
    """Writes the deadline of claims that continue. The ack of a changed job is no longer plain."""
    rows = [(job.id, job.deadline_ms or 0, job.flags | HAS_PROGRESS if job.changed else job.flags) for job in jobs]
    dialect.for_each("renew_claims", rows)


def _free_keys(dialect: Dialect, jobs: Sequence[JobRecord]) -> None:
    for job in jobs:
        unique = key_of_job(job.options)
        if unique is not None:
            free_key(dialect, job.queue_id, unique, job.id)


def free_key(dialect: Dialect, queue_id: int, unique: UniqueKey, job_id: int) -> None:
    """Frees a unique key if this job has it and it does not end by time."""
    dialect.change("free_unique_key", queue_id=queue_id, key=unique.key, id=job_id)
