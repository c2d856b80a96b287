"""Jobs that get another priority: their rows stay, with another priority in them, and only their places in the order of claims are new."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.domain.transitions import PENDING
from pinlater.server.storage import outcomes
from pinlater.server.storage.changes import Changes, Move
from pinlater.server.storage.relational import failures
from pinlater.server.storage.relational.dialect import Dialect
from pinlater.server.storage.relational.loading import load
from pinlater.server.storage.relational.rows import progress_row
from pinlater.server.storage.values import Acked, JobKey


async def move(dialect: Dialect, keys: Sequence[JobKey], priority: int, now_ms: int) -> list[Acked]:
    """Moves waiting and failed jobs to another priority."""
    changes = Changes(now_ms)
    await load(dialect, changes, [key.id for key in keys])
    answers = outcomes.move(changes, keys, priority)
    moves = changes.moves()
    if moves:
        await _write(dialect, moves, priority, now_ms)
    return answers


async def _write(dialect: Dialect, moves: Sequence[Move], priority: int, now_ms: int) -> None:
    """A failed job keeps its row of `done`, with its last holder, which is not loaded."""
    _count(dialect, moves, now_ms)
    dialect.set_priority([job.id for job, _ in moves], priority, now_ms)
    dialect.insert("save_progress", [progress_row(after) for _, after in moves])
    waiting = [job for job, _ in moves if job.state is PENDING]
    dialect.for_each("delete_ready", [(job.queue_id, job.priority, job.run_after_ms, job.id) for job in waiting])
    dialect.for_each("delete_future", [(job.run_after_ms, job.id) for job in waiting if job.counted_future])
    dialect.enter_ready([after for _, after in moves if after.state is PENDING])
    for _, job in moves:
        if job.options.unique is not None:
            key = job.options.unique.key
            dialect.change("move_unique_key", queue_id=job.queue_id, key=key, id=job.id, priority=priority)
    await failures.move(dialect, [job for _, job in moves if job.attempts_ended])


def _count(dialect: Dialect, moves: Sequence[Move], now_ms: int) -> None:
    """Moves the counts of waiting and failed jobs. Totals show what happened under a priority, and stay."""
    for before, after in moves:
        left, entered = (dialect.counter(job.queue_id, job.priority) for job in (before, after))
        if before.state is PENDING:
            left.leave_waiting(before)
            entered.enter_waiting(after, now_ms)
        else:
            left.add_finished(before.state, -1)
            entered.add_finished(after.state)
