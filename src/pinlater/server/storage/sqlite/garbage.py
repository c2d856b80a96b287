"""Garbage: finished jobs past their time to live, expired keys, and the remains of deleted queues.

The queue cache knows whether there can be any, so that an idle store gets no queries.
"""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.domain.job import JobState
from pinlater.server.storage.counts import SweepCounts
from pinlater.server.storage.relational.bulk import delete_ids, finished, oldest_claims
from pinlater.server.storage.relational.garbage import (
    delete_ended_keys,
    free_dropped,
    keys_have_ended,
    past_their_time,
)
from pinlater.server.storage.sqlite.dialect import SqliteDialect, at_once
from pinlater.server.storage.sqlite.queue_cache import Counter, SqliteQueueCache
from pinlater.server.storage.sqlite.statements import sql
from pinlater.server.storage.sqlite.transaction import Transaction
from pinlater.server.storage.values import Swept, TimeToLive

_DELETE_COUNTERS = sql("delete_counters")
_DELETE_DROPPED_QUEUE = sql("delete_dropped_queue")


def collect_wanted(queue_cache: SqliteQueueCache, now_ms: int) -> bool:
    """Returns whether there can be garbage."""
    if queue_cache.dropped or keys_have_ended(queue_cache, now_ms):
        return True
    return any(c.succeeded or c.failed for queue in queue_cache.queues.values() for c in queue.counters.values())


def with_finished(queue_cache: SqliteQueueCache, ttls: Sequence[TimeToLive]) -> list[TimeToLive]:
    """The times to live of queues that have finished jobs."""
    return [
        ttl
        for ttl in ttls
        if (queue := queue_cache.queues.get(ttl.queue)) is not None
        and any(counter.succeeded or counter.failed for counter in queue.counters.values())
    ]


def collect_garbage(transaction: Transaction, ttls: Sequence[TimeToLive], now_ms: int, limit: int) -> list[Swept]:
    """Deletes finished jobs past their time to live, then keys that have ended, then the rest of deleted queues."""
    counts = SweepCounts()
    left = limit
    for ttl in ttls:
        queue = transaction.queue_cache.queues.get(ttl.queue)
        for counter in [] if queue is None else list(queue.counters.values()):
            for state, before_ms in past_their_time(ttl, counter.succeeded, counter.failed, now_ms):
                left -= _collect(transaction, ttl.queue, counter, state, before_ms, left, counts)
    forgotten = _forget_keys(transaction, now_ms, left)
    counts.freed(forgotten + _free_dropped(transaction, left - forgotten))
    return counts.result()


def _collect(
    transaction: Transaction,
    queue: str,
    counter: Counter,
    state: JobState,
    before_ms: int,
    limit: int,
    counts: SweepCounts,
) -> int:
    """Deletes jobs of one state and priority that finished at or before that time. Returns how many."""
    if limit <= 0:
        return 0
    dialect = SqliteDialect(transaction)
    look = finished(dialect, counter.queue_id, state, counter.priority, limit, until_ms=before_ms)
    ids = [job_id for _, job_id in at_once(look)]
    if ids:
        at_once(delete_ids(dialect, ids))
        counts.deleted(queue, counter.priority, state, len(ids))
    return len(ids)


def _forget_keys(transaction: Transaction, now_ms: int, limit: int) -> int:
    queue_cache = transaction.queue_cache
    deleted = at_once(delete_ended_keys(SqliteDialect(transaction), queue_cache, now_ms, limit))
    if deleted:
        queue_cache.reload_key_times(transaction.execute)
    return deleted


def _free_dropped(transaction: Transaction, limit: int) -> int:
    """Deletes rows of deleted queues, at most `limit`. Returns how many. A queue is forgotten once it has no rows."""
    claimed = _free_claims(transaction, limit)
    dropped = transaction.queue_cache.dropped
    freed = at_once(free_dropped(SqliteDialect(transaction), list(dropped), limit - claimed))
    for queue_id in freed.queues:
        transaction.execute(_DELETE_COUNTERS, (queue_id,))
        transaction.execute(_DELETE_DROPPED_QUEUE, (queue_id,))
        del dropped[queue_id]
    return claimed + freed.rows


def _free_claims(transaction: Transaction, limit: int) -> int:
    """Deletes claimed jobs of deleted queues, by the counters: searching the claims of one queue reads all claims."""
    dialect = SqliteDialect(transaction)
    left = limit
    for queue_id, counters in transaction.queue_cache.dropped.items():
        for counter in counters:
            if left <= 0:
                return limit
            if counter.in_progress:
                ids = at_once(oldest_claims(dialect, queue_id, counter.priority, left))
                if len(ids) < left:
                    counter.in_progress = 0
                left -= len(at_once(delete_ids(dialect, ids)))
    return limit - left
