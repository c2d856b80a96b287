"""Many jobs at an operator's word: retry what failed, delete what is named or what is oldest. Deleting is one routine for all."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.domain.descriptor import I64_MAX
from pinlater.domain.errors import PinLaterError, QueueNotFound
from pinlater.domain.job import JobState, UniqueScope
from pinlater.storage import deciding
from pinlater.storage.events import Record
from pinlater.storage.interface import Acked, JobKey, Purge, Requeue, RunOrder
from pinlater.storage.options import options_of
from pinlater.storage.sqlite.changes import Changes
from pinlater.storage.sqlite.ledger import Counter, Transaction
from pinlater.storage.sqlite.statements import sql

# A requeue that passes over jobs whose keys are taken looks at this many more than it may put back.
_PASSED_OVER_MAX = 1_000
_READ_MAX = 1_000

_OLDEST_READY = sql("select_oldest_ready")
_OLDEST_CLAIMS = sql("select_oldest_claims")
_OLDEST_DONE = sql("select_oldest_done")
_UNIQUE_KEY = sql("select_unique_key")
_SAVE_UNIQUE_KEY = sql("insert_unique_key")
_FREE_KEY = sql("delete_unique_key")
_STATES = sql("select_states")
_OPTIONS = sql("select_unique_options")
_DELETE_READY = sql("delete_ready")
_DELETE_CLAIMS = sql("delete_claims")
_DELETE_DONE = sql("delete_done")
_EVERYWHERE = (sql("delete_progress"), sql("delete_jobs"))


def requeue(transaction: Transaction, order: Requeue, now_ms: int) -> int | PinLaterError:
    """Oldest finish first. A job whose key another has taken is passed over and doesn't count against the limit."""
    queue = transaction.ledger.queues.get(order.queue)
    if queue is None:
        return QueueNotFound(order.queue)
    changes = Changes(transaction, now_ms)
    done = seen = 0
    after = (-I64_MAX - 1, -1)
    while done < order.limit and seen < order.limit + _PASSED_OVER_MAX:
        where = (queue.queue_id, int(JobState.FAILED), order.priority, *after, I64_MAX, min(order.limit, _READ_MAX))
        rows = transaction.execute(_OLDEST_DONE, where).fetchall()
        records = {job.id: job for job in changes.load([row[1] for row in rows])}
        for _, job_id in rows:
            job = records[job_id]
            if done < order.limit and _retake_key(transaction, job, now_ms):
                changes.requeue(job, order.attempts, order.run_after_ms)
                done += 1
        if not rows:
            break
        seen += len(rows)
        after = rows[-1]
    changes.write()
    return done


def run(transaction: Transaction, orders: Sequence[RunOrder], now_ms: int) -> list[Acked]:
    """Waiting jobs become due, failed ones go back to the queue unless another job has their key."""
    changes = Changes(transaction, now_ms)
    by_id = transaction.ledger.by_id
    loaded = changes.load([order.key.id for order in orders])
    records = {JobKey(by_id[job.queue_id].name, job.priority, job.id): job for job in loaded}
    barred = {job.id for job in deciding.puts_back(records, orders) if not _retake_key(transaction, job, now_ms)}
    answers = deciding.run(changes, records, orders, barred)
    changes.write()
    return answers


def _retake_key(transaction: Transaction, job: Record, now_ms: int) -> bool:
    """Takes an UNFINISHED key again; False where another job has it."""
    unique = job.options.unique
    if unique is None or unique.scope is not UniqueScope.UNFINISHED:
        return True
    held = transaction.execute(_UNIQUE_KEY, (job.queue_id, unique.key)).fetchone()
    if held is not None and (held[2] is None or held[2] > now_ms):
        return False
    row = (job.queue_id, unique.key, int(unique.scope), job.id, job.priority, None)
    transaction.execute(_SAVE_UNIQUE_KEY, row)
    return True


def purge(transaction: Transaction, order: Purge) -> int | PinLaterError:
    """Oldest first, by the time that orders the state."""
    queue = transaction.ledger.queues.get(order.queue)
    if queue is None:
        return QueueNotFound(order.queue)
    return len(delete_ids(transaction, oldest(transaction, queue.queue_id, order.state, order.priority, order.limit)))


def oldest(transaction: Transaction, queue_id: int, state: JobState, priority: int, limit: int) -> list[int]:
    """Ids of the oldest jobs of one state and priority."""
    where = (queue_id, priority, max(0, limit))
    if state is JobState.PENDING:
        rows = transaction.execute(_OLDEST_READY, where)
    elif state is JobState.IN_PROGRESS:
        rows = transaction.execute(_OLDEST_CLAIMS, where)
    else:
        return finished_before(transaction, queue_id, state, priority, I64_MAX, max(0, limit))
    return [row[0] for row in rows.fetchall()]


def finished_before(
    transaction: Transaction, queue_id: int, state: JobState, priority: int, ms_max: int, limit: int
) -> list[int]:
    """Ids of jobs of that state finished at or before `ms_max`, oldest first."""
    where = (queue_id, int(state), priority, -I64_MAX - 1, -1, ms_max, limit)
    return [row[1] for row in transaction.execute(_OLDEST_DONE, where).fetchall()]


def delete_named(transaction: Transaction, keys: Sequence[JobKey], state: JobState | None) -> int:
    """Those that are there, and in that state if one is named."""
    queues = transaction.ledger.queues
    wanted = {(queues[key.queue].queue_id, key.priority, key.id) for key in keys if key.queue in queues}
    return len(delete_ids(transaction, [job_id for _, _, job_id in wanted], wanted=wanted, state=state))


def delete_ids(
    transaction: Transaction,
    ids: Sequence[int],
    *,
    wanted: set[tuple[int, int, int]] | None = None,
    state: JobState | None = None,
) -> list[tuple[int, int, JobState]]:
    """Deletes jobs with all that belongs to them, wherever they are; (queue id, priority, state) of each that went."""
    if not ids:
        return []
    execute = transaction.execute
    gone: list[int] = []
    waiting: list[tuple[int, int, int, int]] = []
    went: list[tuple[int, int, JobState]] = []
    for job_id, queue_id, priority, run_after_ms, claimed, finished in execute(_STATES, (str(list(ids)),)).fetchall():
        now_in = JobState.IN_PROGRESS if claimed is not None else JobState(finished or 0)
        if (wanted is not None and (queue_id, priority, job_id) not in wanted) or state not in {None, now_in}:
            continue
        gone.append(job_id)
        went.append((queue_id, priority, now_in))
        if now_in is JobState.PENDING:
            waiting.append((queue_id, priority, run_after_ms, job_id))
        queue = transaction.ledger.by_id.get(queue_id)
        if queue is not None:
            _uncount(transaction.ledger.touch(queue.counters[priority]), now_in, run_after_ms, job_id)
    _free_keys(transaction, gone)
    if waiting:
        transaction.executemany(_DELETE_READY, waiting)
    for statement, states in (
        (_DELETE_CLAIMS, {JobState.IN_PROGRESS}),
        (_DELETE_DONE, {JobState.SUCCEEDED, JobState.FAILED}),
    ):
        there = [job_id for job_id, (_, _, was) in zip(gone, went, strict=True) if was in states]
        if there:
            execute(statement, (str(there),))
    transaction.ledger.jobs_deleted()
    text = str(gone)
    for statement in _EVERYWHERE:
        execute(statement, (text,))
    return went


def _uncount(counter: Counter, state: JobState, run_after_ms: int, job_id: int) -> None:
    if state is JobState.PENDING:
        counter.take_waiting(run_after_ms, job_id)
    elif state is JobState.IN_PROGRESS:
        counter.in_progress -= 1
    else:
        counter.add_finished(state, -1)


def _free_keys(transaction: Transaction, ids: Sequence[int]) -> None:
    for job_id, queue_id, text in transaction.execute(_OPTIONS, (str(list(ids)),)).fetchall():
        unique = options_of(text).unique
        if unique is not None and unique.scope is not UniqueScope.TIME:
            transaction.execute(_FREE_KEY, (queue_id, unique.key, job_id))
