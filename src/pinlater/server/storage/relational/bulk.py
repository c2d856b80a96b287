"""Operators' orders on many jobs: retry what failed, delete named jobs, delete the oldest. One routine deletes for all of them."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.domain.descriptor import I64_MAX
from pinlater.domain.errors import PinLaterError, QueueNotFound
from pinlater.domain.job import JobState, UniqueScope
from pinlater.server.storage import outcomes
from pinlater.server.storage.changes import Changes
from pinlater.server.storage.decide import RetryFailed, stays_failed
from pinlater.server.storage.options import options_of
from pinlater.server.storage.record import JobRecord
from pinlater.server.storage.relational import ordering
from pinlater.server.storage.relational.changes import free_key, write
from pinlater.server.storage.relational.dialect import Dialect
from pinlater.server.storage.relational.loading import load
from pinlater.server.storage.relational.rows import STATES, Row, StateRow, key_of_job, state_of, text_of
from pinlater.server.storage.values import PASSED_OVER_MAX, Acked, JobKey, Position, Purge, Requeue, Requeued, RunOrder

_READ_MAX = 1_000
_READ_LEAST = 250  # also for a smaller limit, once it has passed over a job
FIRST: Position = (-I64_MAX - 1, -1)


async def requeue(dialect: Dialect, order: Requeue, now_ms: int) -> Requeued | PinLaterError:
    """Requeues jobs, the oldest finish first."""
    queue = (await dialect.queues_named([order.queue])).get(order.queue)
    if queue is None:
        return QueueNotFound.of(order.queue)
    changes = Changes(now_ms)
    done = passed = 0
    stopped_at: Position | None = order.after or FIRST
    while stopped_at is not None and done < order.limit and passed < PASSED_OVER_MAX:
        limit = max(_READ_LEAST if passed else 0, min(order.limit, _READ_MAX))
        found = await finished(dialect, queue.queue_id, JobState.FAILED, order.priority, limit, after=stopped_at)
        jobs, _ = await load(dialect, changes, [job_id for _, job_id in found])
        away = await ordering.away(dialect, jobs)
        by_id = {job.id: job for job in jobs if job.id not in away}
        for place in found:
            if done == order.limit:
                break
            job = by_id.get(place[1])
            if job is not None and not stays_failed(order, job, now_ms) and await _retake_key(dialect, job, now_ms):
                changes.apply(job, RetryFailed(order.attempts, order.run_after_ms))
                done += 1
            else:
                passed += 1
            stopped_at = place
        if not found:
            stopped_at = None
    await write(dialect, changes)
    return Requeued(done, stopped_at)


async def run(dialect: Dialect, orders: Sequence[RunOrder], now_ms: int) -> list[Acked]:
    """Makes waiting jobs due, and puts failed ones back unless another job has their key."""
    changes = Changes(now_ms)
    await load(dialect, changes, [order.key.id for order in orders])
    failed = outcomes.failed_of(changes, orders)
    barred = await ordering.away(dialect, failed)
    barred |= {job.id for job in failed if job.id not in barred and not await _retake_key(dialect, job, now_ms)}
    answers = outcomes.run(changes, orders, barred)
    await write(dialect, changes)
    return answers


async def _retake_key(dialect: Dialect, job: JobRecord, now_ms: int) -> bool:
    """Takes an UNFINISHED key again. Returns False if another job has it."""
    unique = job.options.unique
    if unique is None or unique.scope is not UniqueScope.UNFINISHED:
        return True
    if await key_is_held(dialect, job.queue_id, unique.key, now_ms):
        return False
    dialect.save_key(job.queue_id, unique.key, int(unique.scope), job)
    return True


async def key_is_held(dialect: Dialect, queue_id: int, key: str, now_ms: int) -> bool:
    """Returns whether a job has the unique key: for a time, or as long as the job is unfinished and exists."""
    held = await dialect.select("find_unique_key", queue_id=queue_id, key=key)
    if not held:
        return False
    [(job_id, _, until_ms)] = held
    if until_ms is not None:
        return bool(until_ms > now_ms)
    return job_id in dialect.given_keys or bool(await dialect.select_jobs("find_unfinished", [job_id]))


async def unblock(dialect: Dialect, queue: str, ordering_key: str, now_ms: int) -> int | PinLaterError:
    """Takes the places of the jobs that stopped the key."""
    found = (await dialect.queues_named([queue])).get(queue)
    if found is None:
        return QueueNotFound.of(queue)
    changes = Changes(now_ms)
    unblocked = await ordering.unblock(dialect, changes, (found.queue_id, ordering_key))
    await write(dialect, changes)
    return unblocked


async def lift_barrier(dialect: Dialect, queue: str, after: str, limit: int, now_ms: int) -> str | PinLaterError | None:
    """Lifts the barrier, with one seek in an index for each key, however many jobs it has."""
    found = (await dialect.queues_named([queue])).get(queue)
    if found is None:
        return QueueNotFound.of(queue)
    rows = await dialect.select("next_ordering_keys", queue_id=found.queue_id, after=after, limit=limit)
    keys = [text_of(key) for (key,) in rows]
    changes = Changes(now_ms)
    await ordering.let_go(dialect, changes, [(found.queue_id, key) for key in keys])
    await write(dialect, changes)
    return keys[-1] if len(keys) == limit else None


async def purge(dialect: Dialect, order: Purge) -> int | PinLaterError:
    """Deletes jobs, oldest first, by the time that orders the state."""
    queue = (await dialect.queues_named([order.queue])).get(order.queue)
    if queue is None:
        return QueueNotFound.of(order.queue)
    where = (queue.queue_id, order.priority, order.limit)
    if order.state is JobState.PENDING:
        return len(await delete_waiting(dialect, queue.queue_id, await _oldest(dialect, "oldest_ready", *where)))
    if order.state is JobState.IN_PROGRESS:
        return len(await delete_ids(dialect, await oldest_claims(dialect, *where)))
    found = await finished(dialect, queue.queue_id, order.state, order.priority, order.limit)
    return len(await delete_ids(dialect, [job_id for _, job_id in found]))


async def oldest_claims(dialect: Dialect, queue_id: int, priority: int, limit: int) -> list[int]:
    """Ids of the jobs of one priority that were claimed first."""
    return [job_id for (job_id,) in await _oldest(dialect, "oldest_claims", queue_id, priority, limit)]


async def _oldest(dialect: Dialect, name: str, queue_id: int, priority: int, limit: int) -> Sequence[Row]:
    return await dialect.select(name, queue_id=queue_id, priority=priority, limit=max(0, limit))


async def finished(
    dialect: Dialect,
    queue_id: int,
    state: JobState,
    priority: int,
    limit: int,
    *,
    after: Position = FIRST,
    until_ms: int = I64_MAX,
) -> list[tuple[int, int]]:
    """Returns (finish, id) of the jobs of that state that finished first, after `after` and up to `until_ms`."""
    rows = await dialect.select(
        "oldest_done",
        queue_id=queue_id,
        state=int(state),
        priority=priority,
        after_ms=after[0],
        after_id=after[1],
        until_ms=until_ms,
        limit=max(0, limit),
    )
    return [(finished_ms, job_id) for finished_ms, job_id in rows]


async def delete_named(dialect: Dialect, keys: Sequence[JobKey], state: JobState | None = None) -> int:
    """Returns how many of them existed, in that state if one is named."""
    queues = await dialect.queues_named([key.queue for key in keys])
    wanted = {(queues[key.queue].queue_id, key.priority, key.id) for key in keys if key.queue in queues}
    return len(await delete_ids(dialect, [job_id for _, _, job_id in wanted], wanted=wanted, state=state))


async def delete_ids(
    dialect: Dialect,
    ids: Sequence[int],
    *,
    wanted: set[tuple[int, int, int]] | None = None,
    state: JobState | None = None,
) -> list[StateRow]:
    """Deletes jobs with everything that belongs to them. Returns the rows of those that were in a state.

    `wanted`: only jobs of these queues, priorities and ids; `state`: only jobs in it. A claimed or finished job whose own row is gone is
    deleted, too.
    """
    rows, missing = await _look(dialect, ids)
    return await _delete(dialect, rows, await _rows_left(dialect, missing), wanted=wanted, state=state)


async def delete_waiting(dialect: Dialect, queue_id: int, rows: Sequence[Row]) -> list[StateRow]:
    """Does the same as `delete_ids`, for jobs with these rows of `ready`, which are deleted whatever the jobs' own rows are."""
    waiting = _waiting(queue_id, rows)
    found, missing = await _look(dialect, list(waiting))
    jobs = [waiting[row.id] if state_of(row) is None else row for row in found]
    return await _delete(dialect, jobs, [waiting[job_id] for job_id in missing])


async def delete_lost(dialect: Dialect, ids: Sequence[int]) -> list[StateRow]:
    """Deletes the claims and finishes of those of these jobs whose own row is gone. Returns their content."""
    _, missing = await _look(dialect, ids)
    return await _delete(dialect, [], await _rows_left(dialect, missing))


async def clear_lost(dialect: Dialect, ids: Sequence[int]) -> None:
    """Does the same as `delete_lost` for jobs that were just claimed, and deletes the rows of lost jobs that would be claimed next."""
    lines = {(row.queue_id, row.priority) for row in await delete_lost(dialect, ids)}
    for queue_id, priority in sorted(lines):
        rows = await _oldest(dialect, "oldest_ready", queue_id, priority, _READ_MAX)
        waiting = _waiting(queue_id, rows)
        _, missing = await _look(dialect, list(waiting))
        await _delete(dialect, [], [waiting[job_id] for job_id in missing])


def _waiting(queue_id: int, rows: Sequence[Row]) -> dict[int, StateRow]:
    """Returns the data about jobs in rows of `ready`. A row: id, priority, run-after, whether the job counts as future."""
    return {
        job_id: StateRow(job_id, queue_id, priority, run_after_ms, None, 1, future, None, None)
        for job_id, priority, run_after_ms, future in rows
    }


async def _look(dialect: Dialect, ids: Sequence[int]) -> tuple[list[StateRow], list[int]]:
    """Locks the jobs. Returns where they are, and the ids of those that are not in the table of jobs."""
    wanted = sorted(set(ids))
    rows = [StateRow._make(row) for row in await dialect.select_jobs("load_states", wanted)]
    there = {row.id for row in rows}
    return rows, [job_id for job_id in wanted if job_id not in there]


async def _rows_left(dialect: Dialect, missing: Sequence[int]) -> list[StateRow]:
    """Returns the data about jobs in claims and finishes whose own row is gone."""
    if not missing:
        return []
    claims = [
        StateRow(job_id, queue_id, priority, 0, None, 0, 0, job_id, None)
        for job_id, queue_id, priority, *_ in await dialect.select_of("load_claims", sorted(missing))
    ]
    claimed = {claim.id for claim in claims}
    done = [
        StateRow(job_id, queue_id, priority, 0, None, 0, 0, None, state)
        for job_id, queue_id, priority, state in await dialect.select_of("load_done", sorted(missing))
        if job_id not in claimed
    ]
    return claims + done


async def _delete(
    dialect: Dialect,
    rows: Sequence[StateRow],
    lost: Sequence[StateRow],
    *,
    wanted: set[tuple[int, int, int]] | None = None,
    state: JobState | None = None,
) -> list[StateRow]:
    """`lost`: of jobs whose own row is gone."""
    if not rows and not lost:
        return []
    deletion = _Deletion(dialect)
    queues = await dialect.queues_of({row.queue_id for row in [*rows, *lost]})
    lost_ids = {row.id for row in lost}
    for row in [*rows, *lost]:
        is_in = state_of(row)
        named = wanted is None or (row.queue_id, row.priority, row.id) in wanted
        if named and (state is None or state is (is_in or JobState.PENDING)):
            deletion.add(row, is_in, counted=row.queue_id in queues)
    deletion.write()
    deleted = [row for row in deletion.jobs if row.queue_id in queues]
    ended = ordering.ended_of(deleted)
    maybe = ordering.stopping_of(deleted) + [row.id for row in lost if row.queue_id in queues]
    if ended or maybe:
        await _leave_keys(dialect, ended, maybe)
    gone = sum([row.id in lost_ids and row.queue_id in queues for row in deletion.jobs])
    if gone:
        dialect.count_lost(gone)
    return deletion.jobs


async def _leave_keys(
    dialect: Dialect, ended: Sequence[ordering.EndedJob], others: Sequence[int], now_ms: int = 0
) -> None:
    """Makes the next jobs ready in the place of deleted ones. `others`: ids of jobs that may have a place, too. A deletion has no current
    time: on MySQL they count as not yet due until the next sweep.
    """
    changes = Changes(now_ms)
    await ordering.leave(dialect, changes, ended)
    await ordering.leave_places(dialect, changes, others)
    await write(dialect, changes)


async def leave_places(dialect: Dialect, ids: Sequence[int], now_ms: int = 0) -> None:
    """Makes the next jobs ready in the place of these jobs, if these have a place among the jobs of their keys."""
    await _leave_keys(dialect, [], ids, now_ms)


class _Deletion:
    """The rows to delete of some jobs, by table."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self.jobs: list[StateRow] = []
        self._ids: list[int] = []
        self._waiting: list[StateRow] = []
        self._claimed: list[int] = []
        self._finished: list[int] = []
        self._counts: dict[tuple[int, int, int | None], int] = {}  # by queue, priority and column `done_state`

    def add(self, row: StateRow, state: JobState | None, *, counted: bool) -> None:
        """`counted`: its queue still has counters."""
        self._ids.append(row.id)
        if state is None:
            return
        self.jobs.append(row)
        if state is JobState.PENDING:
            self._waiting.append(row)
            if counted:
                self._dialect.counter(row.queue_id, row.priority).leave_waiting(row)
        else:
            (self._claimed if state is JobState.IN_PROGRESS else self._finished).append(row.id)
            if counted:
                kind = (row.queue_id, row.priority, row.done_state)
                self._counts[kind] = self._counts.get(kind, 0) + 1
        unique = None if row.options is None else key_of_job(options_of(row.options))
        if unique is not None:
            free_key(self._dialect, row.queue_id, unique, row.id)

    def write(self) -> None:
        dialect = self._dialect
        for (queue_id, priority, done_state), count in self._counts.items():
            counter = dialect.counter(queue_id, priority)
            if done_state is None:
                counter.in_progress -= count
            else:
                counter.add_finished(STATES[done_state], -count)
        ready = [(job.queue_id, job.priority, job.run_after_ms, job.id) for job in self._waiting]
        dialect.for_each("delete_ready", ready)
        dialect.for_each("delete_future", [(job.run_after_ms, job.id) for job in self._waiting if job.counted_future])
        dialect.delete("claims", sorted(self._claimed))
        dialect.delete("done", sorted(self._finished))
        dialect.jobs_deleted()
        for table in dialect.job_tables:
            dialect.delete(table, sorted(self._ids))
