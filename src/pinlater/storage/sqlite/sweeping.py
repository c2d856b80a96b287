"""Maintenance, a bounded piece a call: due marks, claims past their deadline, jobs past their expiry, garbage.

The queue cache tells each sweep whether there can be anything to do (`*_wanted`), so that an idle store is asked nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.domain.descriptor import I64_MAX
from pinlater.domain.job import JobState
from pinlater.storage.counts import SweepCounts
from pinlater.storage.interface import Swept, TimeToLive
from pinlater.storage.relational import sweeping
from pinlater.storage.relational.bulk import delete_ids, finished, oldest
from pinlater.storage.request_keys import REQUEST_KEY_KEPT_MS
from pinlater.storage.sqlite.dialect import SqliteDialect, at_once
from pinlater.storage.sqlite.queue_cache import Counter, QueueCache, Transaction
from pinlater.storage.sqlite.statements import sql

_COUNT_READY_BETWEEN = sql("count_ready_between")
_SELECT_READY_AFTER = sql("select_ready_after")
_DELETE_OLD_REQUEST_KEYS = sql("delete_old_request_keys")
_DELETE_OLD_UNIQUE_KEYS = sql("delete_old_unique_keys")
_DELETE_REQUEST_KEYS_OF = sql("delete_request_keys_of")
_DELETE_UNIQUE_KEYS_OF = sql("delete_unique_keys_of")
_DELETE_COUNTERS = sql("delete_counters")
_DELETE_DROPPED_QUEUE = sql("delete_dropped_queue")


# --- due marks ------------------------------------------------------------------------------------------------------------------


def advance_wanted(queue_cache: QueueCache, now_ms: int) -> bool:
    """Whether a mark can be moved over jobs, or has to come back after the clock did."""
    return any(_behind(counter, now_ms) for queue in queue_cache.queues.values() for counter in queue.counters.values())


def _behind(counter: Counter, now_ms: int) -> bool:
    return counter.future_from_ms <= now_ms or (counter.mark_ms > now_ms and counter.pending > counter.future)


def advance_due(transaction: Transaction, now_ms: int, limit: int) -> int:
    """Counts jobs whose time has come as due, and (after the clock went back) those whose time has not as future again."""
    moved = 0
    for queue in transaction.queue_cache.queues.values():
        for counter in queue.counters.values():
            if moved >= limit:
                return moved
            if _behind(counter, now_ms):
                transaction.queue_cache.touch(counter)
                if counter.mark_ms > now_ms:
                    _take_mark_back(transaction, counter, now_ms)
                else:
                    moved += _advance(transaction, counter, now_ms, limit - moved)
    return moved


def _advance(transaction: Transaction, counter: Counter, now_ms: int, limit: int) -> int:
    mark = (counter.mark_ms, counter.mark_id)
    where = (counter.queue_id, counter.priority, *mark, now_ms, I64_MAX)
    [passed] = transaction.execute(_COUNT_READY_BETWEEN, (*where, limit)).fetchone()
    if passed < limit:
        counter.mark_ms, counter.mark_id = now_ms, I64_MAX
    else:
        place = (counter.queue_id, counter.priority, *mark, limit - 1)
        counter.mark_ms, counter.mark_id = transaction.execute(_SELECT_READY_AFTER, place).fetchone()
    counter.future -= passed
    place = (counter.queue_id, counter.priority, counter.mark_ms, counter.mark_id, 0)
    row = transaction.execute(_SELECT_READY_AFTER, place).fetchone()
    counter.future_from_ms = row[0] if row else I64_MAX
    return int(passed)


def _take_mark_back(transaction: Transaction, counter: Counter, now_ms: int) -> None:
    """Only after a restart with the clock set back. All at once: the jobs in between are few, or it happens once."""
    where = (counter.queue_id, counter.priority, now_ms, I64_MAX, counter.mark_ms, counter.mark_id)
    [passed] = transaction.execute(_COUNT_READY_BETWEEN, (*where, I64_MAX)).fetchone()
    counter.mark_ms, counter.mark_id = now_ms, I64_MAX
    counter.future += passed
    if passed:
        counter.future_from_ms = now_ms + 1


# --- claims and expiries ----------------------------------------------------------------------------------------------------------


def time_out_wanted(queue_cache: QueueCache) -> bool:
    return any(counter.in_progress for queue in queue_cache.queues.values() for counter in queue.counters.values())


def expire_wanted(queue_cache: QueueCache, now_ms: int) -> bool:
    return queue_cache.first_expiry_ms < now_ms


def expire_jobs(transaction: Transaction, now_ms: int, limit: int) -> list[Swept]:
    """Also brings the cached first expiry up to date."""
    swept = at_once(sweeping.expire_jobs(SqliteDialect(transaction), now_ms, limit))
    transaction.queue_cache.reload_expiry(transaction.execute)
    return swept


# --- garbage ----------------------------------------------------------------------------------------------------------------------


def collect_wanted(queue_cache: QueueCache, now_ms: int) -> bool:
    if (
        queue_cache.dropped
        or queue_cache.first_request_key_ms + REQUEST_KEY_KEPT_MS < now_ms
        or queue_cache.first_key_until_ms <= now_ms
    ):
        return True
    return any(c.succeeded or c.failed for queue in queue_cache.queues.values() for c in queue.counters.values())


def with_finished(queue_cache: QueueCache, ttls: Sequence[TimeToLive]) -> list[TimeToLive]:
    """Those of queues that have finished jobs."""
    return [
        ttl
        for ttl in ttls
        if (queue := queue_cache.queues.get(ttl.queue)) is not None
        and any(counter.succeeded or counter.failed for counter in queue.counters.values())
    ]


def collect_garbage(transaction: Transaction, ttls: Sequence[TimeToLive], now_ms: int, limit: int) -> list[Swept]:
    """Finished jobs past their time to live, then keys that time has freed, then what deleted queues left."""
    dialect = SqliteDialect(transaction)
    counts = SweepCounts()
    left = limit
    for ttl in ttls:
        queue = transaction.queue_cache.queues.get(ttl.queue)
        if queue is None:
            continue
        for counter in list(queue.counters.values()):
            for state, kept_ms, there in (
                (JobState.SUCCEEDED, ttl.succeeded_ms, counter.succeeded),
                (JobState.FAILED, ttl.failed_ms, counter.failed),
            ):
                if not there or left <= 0:
                    continue
                before_ms = now_ms - kept_ms - 1
                look = finished(dialect, queue.queue_id, state, counter.priority, left, until_ms=before_ms)
                ids = [job_id for _, job_id in at_once(look)]
                if ids:
                    at_once(delete_ids(dialect, ids))
                    counts.deleted(queue.name, counter.priority, state, len(ids))
                    left -= len(ids)
    forgotten = _forget_keys(transaction, now_ms, left)
    counts.freed(forgotten + _free_dropped(transaction, left - forgotten))
    return counts.result()


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
    """Frees the rows of deleted queues, at most `limit` of them, and says how many; a queue is forgotten when nothing of it is left."""
    dialect = SqliteDialect(transaction)
    left = limit
    for queue_id, counters in list(transaction.queue_cache.dropped.items()):
        for counter in counters:
            for state in JobState:
                if left <= 0:
                    return limit
                if state is JobState.IN_PROGRESS and not counter.in_progress:
                    continue  # looking for claims of one queue means a walk over all claims
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
