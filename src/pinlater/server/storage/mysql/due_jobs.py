"""Jobs that became due, a bounded number per call. Overdue claims and expired jobs: `relational/sweeping.py`.

Rows that another transaction has locked are skipped (SKIP LOCKED), so that several servers may sweep one shard.
"""

from __future__ import annotations

from pinlater.server.storage.mysql.statements import json_rows, sql
from pinlater.server.storage.mysql.transaction import Transaction
from pinlater.server.storage.relational.sweeping import READ_MAX

_LOCK_FUTURE = sql("lock_future")
_LOCK_COUNTED_FUTURE = sql("lock_counted_future")
_SELECT_COUNTED_FUTURE = sql("select_counted_future")
_DELETE_FUTURE = sql("delete_future")
_COUNT_AS_DUE = sql("count_as_due")


async def advance_due(transaction: Transaction, now_ms: int, limit: int) -> int:
    """Counts jobs that became due as due. Rows that another transaction has locked come again: it may leave them as they were."""
    moved, left = 0, limit
    while left > 0:
        [found] = await transaction.select(_LOCK_FUTURE(now_ms=now_ms, limit=min(left, READ_MAX)))
        if not found.rows:
            break
        left -= len(found.rows)
        last_ms = found.rows[-1][2]
        [counted] = await transaction.select(_LOCK_COUNTED_FUTURE(by_ms=last_ms, limit=len(found.rows)))
        if counted.rows:
            transaction.change(_COUNT_AS_DUE(keys=json_rows(sorted(counted.rows))))
            moved += len(counted.rows)
        queues = await transaction.queues_of([line[0] for line in counted.rows])
        for queue_id, priority, _, _ in counted.rows:
            if queue_id in queues:
                transaction.counters.of(queue_id, priority).future -= 1
        locked: set[int] = set()
        others = sorted(set(found.rows) - set(counted.rows))  # there may be more rows than counted ones
        if others:
            [still] = await transaction.select(_SELECT_COUNTED_FUTURE(keys=json_rows(others)))
            locked = {job_id for (job_id,) in still.rows}
        gone = {line[2:] for line in counted.rows} | {line[2:] for line in others if line[3] not in locked}
        if gone:
            transaction.change(_DELETE_FUTURE(keys=json_rows(sorted(gone))))
        if locked:
            break
    return moved
