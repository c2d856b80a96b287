"""Garbage: finished jobs past their time to live, keys that have ended, and what deleted queues left.

The queue cache tells whether there can be any, so that an idle store is asked nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.domain.job import JobState
from pinlater.server.storage.counts import SweepCounts
from pinlater.server.storage.relational.bulk import delete_ids, finished, oldest
from pinlater.server.storage.request_keys import REQUEST_KEY_KEPT_MS
from pinlater.server.storage.sqlite.dialect import SqliteDialect, at_once
from pinlater.server.storage.sqlite.queue_cache import Counter, SqliteQueueCache
from pinlater.server.storage.sqlite.statements import sql
from pinlater.server.storage.sqlite.transaction import Transaction
from pinlater.server.storage.values import Swept, TimeToLive

_DELETE_OLD_REQUEST_KEYS = sql("delete_old_request_keys")
_DELETE_OLD_UNIQUE_KEYS = sql("delete_old_unique_keys")
_DELETE_REQUEST_KEYS_OF = sql("delete_request_keys_of")
_DELETE_UNIQUE_KEYS_OF = sql("delete_unique_keys_of")
_DELETE_COUNTERS = sql("delete_counters")
_DELETE_DROPPED_QUEUE = sql("delete_dropped_queue")


def collect_wanted(queue_cache: SqliteQueueCache, now_ms: int) -> bool:
    """Whether there can be garbage."""
    if (
        queue_cache.dropped
        or queue_cache.first_request_key_ms + REQUEST_KEY_KEPT_MS < now_ms
        or queue_cache.first_key_until_ms <= now_ms
    ):
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
    """Finished jobs past their time to live, then keys that have ended, then what deleted queues left."""
    counts = SweepCounts()
    left = limit
    for ttl in ttls:
        queue = transaction.queue_cache.queues.get(ttl.queue)
        for counter in [] if queue is None else list(queue.counters.values()):
            if counter.succeeded:
                before_ms = now_ms - ttl.succeeded_ms - 1
                left -= _collect(transaction, ttl.queue, counter, JobState.SUCCEEDED, before_ms, left, counts)
            if counter.failed:
                before_ms = now_ms - ttl.failed_ms - 1
                left -= _collect(transaction, ttl.queue, counter, JobState.FAILED, before_ms, left, counts)
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
    """Deletes jobs of one state and priority that finished at or before that time; how many."""
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
    requests = keys = 0
    if limit > 0 and queue_cache.first_request_key_ms + REQUEST_KEY_KEPT_MS < now_ms:
        requests = transaction.execute(_DELETE_OLD_REQUEST_KEYS, (now_ms - REQUEST_KEY_KEPT_MS, limit)).rowcount
    if limit > requests and queue_cache.first_key_until_ms <= now_ms:
        keys = transaction.execute(_DELETE_OLD_UNIQUE_KEYS, (now_ms, limit - requests)).rowcount
    if requests or keys:
        queue_cache.reload_key_times(transaction.execute)
    return requests + keys


def _free_dropped(transaction: Transaction, limit: int) -> int:
    """Deletes rows of deleted queues, at most `limit`; how many. A queue is forgotten once it has no rows."""
    dialect = SqliteDialect(transaction)
    left = limit
    for queue_id, counters in list(transaction.queue_cache.dropped.items()):
        for counter in counters:
            for state in JobState:
                if left <= 0:
                    return limit
                if state is JobState.IN_PROGRESS and not counter.in_progress:
                    continue  # the look for claims of one queue reads all claims
                ids = at_once(oldest(dialect, queue_id, state, counter.priority, left))
                if state is JobState.IN_PROGRESS and len(ids) < left:
                    counter.in_progress = 0
                left -= len(at_once(delete_ids(dialect, ids)))
        for statement in (_DELETE_REQUEST_KEYS_OF, _DELETE_UNIQUE_KEYS_OF):
            if left <= 0:
                return limit
            left -= transaction.execute(statement, (queue_id, left)).rowcount
        if left <= 0:
            return limit
        transaction.execute(_DELETE_COUNTERS, (queue_id,))
        transaction.execute(_DELETE_DROPPED_QUEUE, (queue_id,))
        del transaction.queue_cache.dropped[queue_id]
    return limit - left
