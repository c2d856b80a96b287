"""Many jobs at an operator's word: retry what failed, delete what is named or what is oldest. Deleting is one routine for all."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.domain.errors import PinLaterError, QueueNotFound
from pinlater.domain.job import JobState, UniqueScope
from pinlater.storage import deciding
from pinlater.storage.events import Record
from pinlater.storage.interface import Acked, JobKey, Purge, Requeue, RunOrder
from pinlater.storage.mysql.book import LOWEST_MS
from pinlater.storage.mysql.changes import FUTURE, Changes
from pinlater.storage.mysql.statements import delete_ready, delete_rows, json_rows, keys_are, rows, sql
from pinlater.storage.mysql.transaction import Transaction
from pinlater.storage.options import options_of

# A requeue that passes over jobs whose keys are taken looks at this many more than it may put back.
_PASSED_OVER_MAX = 1_000
_READ_MAX = 1_000

_OLDEST_READY = sql("lock_oldest_ready")
_OLDEST_CLAIMS = sql("lock_oldest_claims")
_OLDEST_DONE = sql("lock_oldest_done")
_UNIQUE_KEYS = sql("lock_unique_keys")
_DELETE_UNIQUE_KEYS = sql("delete_unique_keys")
_SAVE_UNIQUE_KEY = sql("save_unique_key")
_FREE_KEY = sql("free_unique_key")
_DELETE_FUTURE = sql("delete_future")
_STATES = sql("lock_states")


async def requeue(transaction: Transaction, order: Requeue, now_ms: int) -> int | PinLaterError:
    """Oldest finish first. A job whose key another has taken is passed over and doesn't count against the limit."""
    queue = (await transaction.queues_named([order.queue])).get(order.queue)
    if queue is None:
        return QueueNotFound(order.queue)
    changes = Changes(transaction, now_ms)
    done = seen = 0
    after = (LOWEST_MS, -1)
    while done < order.limit and seen < order.limit + _PASSED_OVER_MAX:
        found = await finished(
            transaction, queue.queue_id, JobState.FAILED, order.priority, after, min(order.limit, _READ_MAX)
        )
        records = {job.id: job for job in await changes.load([job_id for _, job_id in found])}
        for _, job_id in found:
            job = records.get(job_id)
            if job is not None and done < order.limit and await _retake_key(transaction, job, now_ms):
                changes.requeue(job, order.attempts, order.run_after_ms)
                done += 1
        if not found:
            break
        seen += len(found)
        after = found[-1]
    changes.write()
    return done


async def run(transaction: Transaction, orders: Sequence[RunOrder], now_ms: int) -> list[Acked]:
    """Waiting jobs become due, failed ones go back to the queue unless another job has their key."""
    changes = Changes(transaction, now_ms)
    loaded = await changes.load([order.key.id for order in orders])
    records = {JobKey(job.queue, job.priority, job.id): job for job in loaded}
    failed = deciding.puts_back(records, orders)
    barred = {job.id for job in failed if not await _retake_key(transaction, job, now_ms)}
    answers = deciding.run(changes, records, orders, barred)
    changes.write()
    return answers


async def _retake_key(transaction: Transaction, job: Record, now_ms: int) -> bool:
    """Takes an UNFINISHED key again; False where another job has it."""
    unique = job.options.unique
    if unique is None or unique.scope is not UniqueScope.UNFINISHED:
        return True
    key = keys_are("unique_key", [(job.queue_id, unique.key.encode())])
    [held] = await transaction.select(_UNIQUE_KEYS(keys=key))
    if held.rows:
        until_ms = held.rows[0][4]
        if until_ms is None or until_ms > now_ms:
            return False
        transaction.change(_DELETE_UNIQUE_KEYS(keys=key))
    taken = (job.queue_id, unique.key.encode(), int(unique.scope), job.id, job.priority, None)
    transaction.change(_SAVE_UNIQUE_KEY(rows=rows([taken])))
    return True


async def purge(transaction: Transaction, order: Purge) -> int | PinLaterError:
    """Oldest first, by the time that orders the state."""
    queue = (await transaction.queues_named([order.queue])).get(order.queue)
    if queue is None:
        return QueueNotFound(order.queue)
    ids = await oldest(transaction, queue.queue_id, order.state, order.priority, order.limit)
    return len(await delete_ids(transaction, ids))


async def oldest(transaction: Transaction, queue_id: int, state: JobState, priority: int, limit: int) -> list[int]:
    """Ids of the oldest jobs of one state and priority that nobody else has in hand."""
    if state is JobState.SUCCEEDED or state is JobState.FAILED:
        return [line[1] for line in await finished(transaction, queue_id, state, priority, (LOWEST_MS, -1), limit)]
    statement = _OLDEST_READY if state is JobState.PENDING else _OLDEST_CLAIMS
    [found] = await transaction.select(statement(queue_id=queue_id, priority=priority, limit=max(0, limit)))
    return [line[0] for line in found.rows]


async def finished(
    transaction: Transaction, queue_id: int, state: JobState, priority: int, after: tuple[int, int], limit: int
) -> list[tuple[int, int]]:
    """(finish, id) of the jobs of that state that finished first, after that one."""
    [found] = await transaction.select(
        _OLDEST_DONE(
            queue_id=queue_id,
            state=int(state),
            priority=priority,
            after_ms=after[0],
            after_id=after[1],
            limit=max(0, limit),
        )
    )
    return [(line[0], line[1]) for line in found.rows]


async def delete_named(transaction: Transaction, keys: Sequence[JobKey], state: JobState | None) -> int:
    """Those that are there, and in that state if one is named."""
    queues = await transaction.queues_named([key.queue for key in keys])
    wanted = {(queues[key.queue].queue_id, key.priority, key.id) for key in keys if key.queue in queues}
    return len(await delete_ids(transaction, [job_id for _, _, job_id in wanted], wanted=wanted, state=state))


async def delete_ids(
    transaction: Transaction,
    ids: Sequence[int],
    *,
    wanted: set[tuple[int, int, int]] | None = None,
    state: JobState | None = None,
) -> list[tuple[int, int, JobState]]:
    """Deletes jobs with all that belongs to them, wherever they are; (queue id, priority, state) of each that went."""
    if not ids:
        return []
    change = transaction.change
    went: list[tuple[int, int, JobState]] = []
    gone: list[int] = []
    waiting: list[tuple[int, int, int, int]] = []
    future: list[tuple[int, int]] = []
    claimed: list[int] = []
    finished: list[int] = []
    found = await transaction.select_jobs(_STATES, sorted(set(ids)))
    queues = await transaction.queues_of([line[1] for line in found])
    for job_id, queue_id, priority, run_after_ms, options, ready_flags, claim, done in found:
        now_in = JobState.IN_PROGRESS if claim is not None else JobState(done or 0)
        if (wanted is not None and (queue_id, priority, job_id) not in wanted) or state not in {None, now_in}:
            continue
        gone.append(job_id)
        if ready_flags is None and claim is None and done is None:
            continue  # what is left of a job that is gone
        went.append((queue_id, priority, now_in))
        counter = transaction.counters.of(queue_id, priority) if queue_id in queues else None
        if now_in is JobState.PENDING:
            waiting.append((queue_id, priority, run_after_ms, job_id))
            if ready_flags & FUTURE:
                future.append((run_after_ms, job_id))
            if counter is not None:
                counter.pending -= 1
                counter.future -= bool(ready_flags & FUTURE)
        elif now_in is JobState.IN_PROGRESS:
            claimed.append(job_id)
            if counter is not None:
                counter.in_progress -= 1
        else:
            finished.append(job_id)
            if counter is not None:
                counter.add_finished(now_in, -1)
        unique = options_of(options).unique
        if unique is not None and unique.scope is not UniqueScope.TIME:
            change(_FREE_KEY(queue_id=queue_id, key=unique.key.encode(), id=job_id))
    if waiting:
        change(delete_ready(waiting))
    if future:
        change(_DELETE_FUTURE(keys=json_rows(future)))
    if claimed:
        change(delete_rows(b"claims", sorted(claimed)))
    if finished:
        change(delete_rows(b"done", sorted(finished)))
    if gone:
        for table in (b"progress", b"jobs", b"kept_jobs"):
            change(delete_rows(table, sorted(gone)))
    return went
