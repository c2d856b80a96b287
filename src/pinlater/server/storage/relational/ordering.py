"""Ordering keys: the first jobs of a key are ordinary ones, the others wait behind them.

Each job with an ordering key that has not ended has a row in `ordered`, with a number that says its place among those of its key. The
first one is where a job without a key would be. One behind it is in `ready`, too, but with a run-after that never comes (`BEHIND_MS` and
its number). So it is PENDING for all code, no claim reads it, and the counters count it as not yet due. The transaction in which a job
ends deletes its row of `ordered`, and gives the next one of the key the run-after that it has of its own.

Two transactions that change which job of a key is first wait for each other (`Dialect.lock_keys`): they take keys in order, after the rows
of the jobs that they were asked about, and before the rows of jobs behind. One that ends only jobs behind needs no key.

Weakness: a transaction that ends a first job, and jobs behind others of other keys, may be in a circle with two others. Then the database
ends one of them, and the server carries it out again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from pinlater.domain.transitions import PENDING
from pinlater.server.storage.changes import Changes
from pinlater.server.storage.options import BEHIND_MS, is_behind, options_of
from pinlater.server.storage.record import JobRecord
from pinlater.server.storage.relational.dialect import Dialect, OrderedRow, OrderingKey
from pinlater.server.storage.relational.loading import load
from pinlater.server.storage.relational.rows import StateRow, text_of


class EnteringJob(NamedTuple):
    """A job that takes the last place of its key. `due_ms`: when it is due once it is first."""

    id: int
    key: OrderingKey
    due_ms: int


class EndedJob(NamedTuple):
    """A job of a key that has ended. `behind`: it is known to have waited behind others."""

    id: int
    key: OrderingKey
    behind: bool


async def enter(dialect: Dialect, jobs: Sequence[EnteringJob]) -> dict[int, int]:
    """Gives jobs their numbers, in this order. Returns the run-afters of those that wait behind others, by id."""
    keys = {job.key for job in jobs}
    dialect.lock_keys(keys)
    last = await dialect.last_numbers(keys)
    rows: list[OrderedRow] = []
    run_after_ms: dict[int, int] = {}
    for job_id, key, due_ms in jobs:
        number = last[key] = last.get(key, 0) + 1
        rows.append((job_id, *key, number, due_ms))
        if number > 1:
            run_after_ms[job_id] = BEHIND_MS + number
    dialect.insert_ordered(rows)
    return run_after_ms


async def arrange(dialect: Dialect, changes: Changes) -> None:
    """What the changes of a call mean for the keys of its jobs: those that wait again after their end take the last places, and the next
    ones go in the place of those that have ended. To be called before the rows of the jobs are written."""
    moves = [(before, after) for before, after in changes.decided() if after.options.ordering_key is not None]
    for job in await placed(
        dialect, [after for before, after in moves if before.finished and not after.finished], changes.now_ms
    ):
        changes.place(job)
    ended = [(before, after) for before, after in moves if after.finished and not before.finished]
    if ended:
        due_ms = await own_due_ms(dialect, [before for before, _ in ended])
        for _, job in ended:
            if job.id in due_ms:  # what is shown of it from now on
                changes.place(replace(job, run_after_ms=due_ms[job.id], changed=True))
        await leave(dialect, changes, [_ended(before) for before, _ in ended])


def _ended(job: JobRecord) -> EndedJob:
    return EndedJob(job.id, (job.queue_id, job.options.ordering_key or ""), is_behind(job.options, job.run_after_ms))


async def placed(dialect: Dialect, jobs: Sequence[JobRecord], now_ms: int) -> list[JobRecord]:
    """The jobs, which wait again, in the last places of their keys."""
    entering = [
        EnteringJob(job.id, (job.queue_id, key), job.run_after_ms) for job in jobs if (key := job.options.ordering_key)
    ]
    behind = await enter(dialect, entering) if entering else {}
    return [job.due_at(behind[job.id], now_ms) if job.id in behind else job for job in jobs]


async def leave(dialect: Dialect, changes: Changes, ended: Sequence[EndedJob]) -> None:
    """Adds to the changes that the next jobs of these keys go."""
    dialect.delete_ordered(sorted([job.id for job in ended]))
    keys = sorted({job.key for job in ended if not job.behind})
    if not keys:
        return
    dialect.lock_keys(keys)
    while keys:
        found = await dialect.select_keys("first_of_keys", keys)
        first = {(queue_id, text_of(key)): job_id for queue_id, key, job_id, _ in found}
        dialect.forget_keys([key for key in keys if first.get(key) is None])
        due_ms = {job_id: own_ms for _, _, job_id, own_ms in found if job_id is not None}
        gone = await _let_go(dialect, changes, due_ms) if due_ms else set()
        dialect.delete_ordered(sorted(gone))
        keys = sorted([key for key, job_id in first.items() if job_id in gone])


async def _let_go(dialect: Dialect, changes: Changes, due_ms: Mapping[int, int]) -> set[int]:
    """Makes those of these jobs ready that wait behind others. Returns the ids of those that have ended meanwhile, by another transaction,
    or whose own rows are gone. `due_ms`: when each is due by itself."""
    jobs, _ = await load(dialect, changes, sorted(due_ms))
    for job in jobs:
        if job.state is PENDING and is_behind(job.options, job.run_after_ms):
            changes.place(job.due_at(due_ms[job.id], changes.now_ms))
            dialect.came_first(job.queue_id, due_ms[job.id])
    return {*due_ms} - {job.id for job in jobs if not job.finished}


async def leave_lost(dialect: Dialect, changes: Changes, ids: Sequence[int]) -> None:
    """Does what `leave` does for jobs whose own rows are gone."""
    found = await dialect.select_of("load_ordered", sorted(ids))
    ended = [EndedJob(job_id, (queue_id, text_of(key)), behind=False) for job_id, queue_id, key, _ in found]
    if ended:
        await leave(dialect, changes, ended)


def ended_of(rows: Iterable[StateRow]) -> list[EndedJob]:
    """Deleted jobs that have a key, and had not ended before."""
    ended: list[EndedJob] = []
    for row in rows:
        if row.options is not None and row.done_state is None:
            options = options_of(row.options)
            if options.ordering_key is not None:
                key = (row.queue_id, options.ordering_key)
                ended.append(EndedJob(row.id, key, is_behind(options, row.run_after_ms)))
    return ended


async def own_due_ms(dialect: Dialect, jobs: Sequence[JobRecord]) -> dict[int, int]:
    """When those of these jobs are due that wait behind others, once they are first, by id."""
    behind = sorted([job.id for job in jobs if is_behind(job.options, job.run_after_ms)])
    return {job_id: due_ms for job_id, _, _, due_ms in await dialect.select_of("load_ordered", behind)}
