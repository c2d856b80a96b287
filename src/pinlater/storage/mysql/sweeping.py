"""Maintenance, a bounded piece a call: jobs whose time has come, claims past their deadline, jobs past their expiry, garbage.

Rows that another transaction has locked are skipped (SKIP LOCKED), so that several servers may sweep one shard.
"""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.domain.job import JobState
from pinlater.storage.counts import SweepCounts
from pinlater.storage.interface import Swept, TimeToLive
from pinlater.storage.mysql.dialect import MysqlDialect
from pinlater.storage.mysql.maintenance_snapshot import MaintenanceSnapshot
from pinlater.storage.mysql.queue_cache import LOWEST_MS
from pinlater.storage.mysql.statements import delete_rows, json_rows, sql
from pinlater.storage.mysql.transaction import Transaction
from pinlater.storage.relational.bulk import delete_ids, finished
from pinlater.storage.relational.sweeping import READ_MAX
from pinlater.storage.request_keys import REQUEST_KEY_KEPT_MS
from pinlater.storage.snapshots import NEVER_MS

# Clocks of servers differ a little: a finish may be written down after a later one was collected.
_LOOK_BEHIND_MS = 60_000
_LOOK_FROM_THE_START_MS = 600_000

_LOCK_FUTURE = sql("lock_future")
_LOCK_COUNTED_FUTURE = sql("lock_counted_future")
_SELECT_COUNTED_FUTURE = sql("select_counted_future")
_DELETE_FUTURE = sql("delete_future")
_COUNT_AS_DUE = sql("count_as_due")
_LIST_FINISHED = sql("list_finished")
_DELETE_OLD_REQUEST_KEYS = sql("delete_old_request_keys")
_DELETE_OLD_UNIQUE_KEYS = sql("delete_old_unique_keys")
_LIST_DROPPED_QUEUES = sql("list_dropped_queues")
_SELECT_READY_OF = sql("select_ready_of")
_SELECT_DONE_OF = sql("select_done_of")
_DELETE_REQUEST_KEYS_OF = sql("delete_request_keys_of")
_DELETE_UNIQUE_KEYS_OF = sql("delete_unique_keys_of")
_DELETE_DROPPED_QUEUE = sql("delete_dropped_queue")


class Memory:
    """What sweeps remember between their runs, so that they skip queries that would find nothing."""

    def __init__(self) -> None:
        self.finished_mark: tuple[int, str] | None = None
        self.oldest_finish: dict[tuple[int, int, JobState], int] = {}
        # Where garbage of a kind begins. Before it lie the rows that were deleted already and that the database may not have purged
        # yet, which a look from the start would walk over, all of them each time.
        self.collected_to: dict[tuple[int, int, JobState], int] = {}
        self.from_the_start_at_ms = LOWEST_MS
        self.left_out = False  # whether there was a queue whose times to live the caller did not know


async def advance_due(transaction: Transaction, now_ms: int, limit: int) -> int:
    """Counts jobs whose time has come as due. Rows that another transaction has locked come again: it may leave them as they were."""
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
        others = sorted(set(found.rows) - set(counted.rows))  # which may be more than the counted are fewer
        if others:
            [still] = await transaction.select(_SELECT_COUNTED_FUTURE(keys=json_rows(others)))
            locked = {job_id for (job_id,) in still.rows}
        gone = {line[2:] for line in counted.rows} | {line[2:] for line in others if line[3] not in locked}
        if gone:
            transaction.change(_DELETE_FUTURE(keys=json_rows(sorted(gone))))
        if locked:
            break
    return moved


def collect_wanted(
    memory: Memory, snapshot: MaintenanceSnapshot, mark: tuple[int, str], ttls: Sequence[TimeToLive], now_ms: int
) -> bool:
    """Whether there can be garbage. The shortest time to live decides about all queues: a look in vain costs little."""
    if snapshot.dropped_queues or snapshot.first_key_until_ms <= now_ms:
        return True
    if snapshot.first_request_key_ms + REQUEST_KEY_KEPT_MS < now_ms or mark != memory.finished_mark:
        return True
    shortest_ms = min((min(ttl.succeeded_ms, ttl.failed_ms) for ttl in ttls), default=0)
    return min(memory.oldest_finish.values(), default=NEVER_MS) + shortest_ms < now_ms


async def collect_garbage(
    transaction: Transaction, memory: Memory, ttls: Sequence[TimeToLive], now_ms: int, limit: int
) -> list[Swept]:
    """Finished jobs past their time to live, then keys that time has freed, then what deleted queues left."""
    counts = SweepCounts()
    left = await _collect_finished(transaction, memory, {ttl.queue: ttl for ttl in ttls}, now_ms, limit, counts)
    freed = 0
    if left > 0:
        freed += await transaction.change_now(
            _DELETE_OLD_REQUEST_KEYS(before_ms=now_ms - REQUEST_KEY_KEPT_MS, limit=min(left, READ_MAX))
        )
    if left > freed:
        freed += await transaction.change_now(_DELETE_OLD_UNIQUE_KEYS(now_ms=now_ms, limit=min(left - freed, READ_MAX)))
    freed += await _free_dropped(transaction, left - freed)
    counts.freed(freed)
    return counts.result()


async def _collect_finished(
    transaction: Transaction, memory: Memory, ttls: dict[str, TimeToLive], now_ms: int, limit: int, counts: SweepCounts
) -> int:
    """Returns the rest of the limit. Finishes only get later, so the oldest one of a kind is remembered."""
    [there_are] = await transaction.select(_LIST_FINISHED())
    collected_to = dict(memory.collected_to)
    if now_ms >= memory.from_the_start_at_ms:
        collected_to.clear()
        memory.from_the_start_at_ms = now_ms + _LOOK_FROM_THE_START_MS
    dialect = MysqlDialect(transaction)
    left = limit
    oldest: dict[tuple[int, int, JobState], int] = {}
    memory.left_out = False
    queues = await transaction.queues_of([line[0] for line in there_are.rows])
    for queue_id, priority, succeeded, failed in there_are.rows:
        queue = queues.get(queue_id)
        ttl = None if queue is None else ttls.get(queue.name)
        if queue is None or ttl is None:
            memory.left_out = True
            continue
        for state, kept_ms, there in (
            (JobState.SUCCEEDED, ttl.succeeded_ms, succeeded),
            (JobState.FAILED, ttl.failed_ms, failed),
        ):
            if there <= 0:
                continue
            kind = (queue_id, priority, state)
            oldest[kind] = memory.oldest_finish.get(kind, LOWEST_MS)
            before_ms = now_ms - kept_ms - 1
            after = (collected_to.get(kind, LOWEST_MS), -1)
            while left > 0 and oldest[kind] <= before_ms:
                found = await finished(dialect, queue_id, state, priority, min(left, READ_MAX), after=after)
                gone = [line for line in found if line[0] <= before_ms]
                ids = sorted([job_id for _, job_id in gone])
                deleted = len(ids)
                if deleted:
                    after = gone[-1]
                    collected_to[kind] = after[0] - _LOOK_BEHIND_MS
                    # Their own rows stay until the partition goes.
                    transaction.change(delete_rows(b"done", ids))
                    transaction.change(delete_rows(b"progress", ids))
                    transaction.counters.of(queue_id, priority).add_finished(state, -deleted)
                    counts.deleted(queue.name, priority, state, deleted)
                left -= deleted
                kept = [finished_ms for finished_ms, _ in found if finished_ms > before_ms]
                oldest[kind] = kept[0] if kept else now_ms if not found else oldest[kind]
                if not deleted:
                    break
    memory.oldest_finish = oldest
    memory.collected_to = collected_to
    return left


async def _free_dropped(transaction: Transaction, limit: int) -> int:
    """Frees the rows of deleted queues, at most `limit` of them, and says how many; a queue is forgotten when nothing of it is left.

    Its claims are found by their deadlines.
    """
    left = limit
    if left <= 0:
        return 0
    [dropped] = await transaction.select(_LIST_DROPPED_QUEUES())
    for (queue_id,) in dropped.rows:
        for statement in (_SELECT_READY_OF, _SELECT_DONE_OF):
            if left <= 0:
                return limit
            [found] = await transaction.select(statement(queue_id=queue_id, limit=min(left, READ_MAX)))
            left -= len(await delete_ids(MysqlDialect(transaction), [line[0] for line in found.rows]))
            if len(found.rows) >= READ_MAX:
                return limit - left
        for statement in (_DELETE_REQUEST_KEYS_OF, _DELETE_UNIQUE_KEYS_OF):
            if left <= 0:
                return limit
            left -= await transaction.change_now(statement(queue_id=queue_id, limit=left))
        if left <= 0:
            return limit
        transaction.change(_DELETE_DROPPED_QUEUE(queue_id=queue_id))
    return limit - left
