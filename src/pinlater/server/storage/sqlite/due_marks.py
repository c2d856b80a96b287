"""The mark up to which waiting jobs count as due: moved over jobs that became due, a bounded number per call."""

from __future__ import annotations

from pinlater.domain.descriptor import I64_MAX
from pinlater.server.storage.sqlite.queue_cache import Counter, SqliteQueueCache
from pinlater.server.storage.sqlite.statements import sql
from pinlater.server.storage.sqlite.transaction import Transaction

_COUNT_READY_BETWEEN = sql("count_ready_between")
_SELECT_READY_AFTER = sql("select_ready_after")


def advance_wanted(queue_cache: SqliteQueueCache, now_ms: int) -> bool:
    """Returns whether a mark can be moved over jobs, or has to come back after the clock did."""
    return any(_behind(counter, now_ms) for queue in queue_cache.queues.values() for counter in queue.counters.values())


def _behind(counter: Counter, now_ms: int) -> bool:
    return counter.future_from_ms <= now_ms or (counter.mark_ms > now_ms and counter.pending > counter.future)


def advance_due(transaction: Transaction, now_ms: int, limit: int) -> int:
    """Counts jobs that became due as due, and (after the clock went back) those that are no longer due as future again."""
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
    counter.future_from_ms, counter.future_from_exact = row[0] if row else I64_MAX, True
    return int(passed)


def _take_mark_back(transaction: Transaction, counter: Counter, now_ms: int) -> None:
    """Moves the mark back, after a restart with the clock set back. Does it all at once: the jobs in between are few, or it happens
    once.
    """
    where = (counter.queue_id, counter.priority, now_ms, I64_MAX, counter.mark_ms, counter.mark_id)
    [passed] = transaction.execute(_COUNT_READY_BETWEEN, (*where, I64_MAX)).fetchone()
    counter.mark_ms, counter.mark_id = now_ms, I64_MAX
    counter.future += passed
    if passed:
        counter.future_from_ms, counter.future_from_exact = now_ms + 1, False
