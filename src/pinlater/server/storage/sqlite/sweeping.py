"""Overdue claims and expired jobs: the queue cache tells whether there can be any, so that an idle store is asked nothing."""

from __future__ import annotations

from pinlater.server.storage.relational import sweeping
from pinlater.server.storage.sqlite.dialect import SqliteDialect, at_once
from pinlater.server.storage.sqlite.queue_cache import SqliteQueueCache
from pinlater.server.storage.sqlite.transaction import Transaction
from pinlater.server.storage.values import Swept


def time_out_wanted(queue_cache: SqliteQueueCache) -> bool:
    return any(counter.in_progress for queue in queue_cache.queues.values() for counter in queue.counters.values())


def expire_wanted(queue_cache: SqliteQueueCache, now_ms: int) -> bool:
    return queue_cache.first_expiry_ms < now_ms


def expire_jobs(transaction: Transaction, now_ms: int, limit: int) -> list[Swept]:
    """Also brings the cached first expiry up to date."""
    swept = at_once(sweeping.expire_jobs(SqliteDialect(transaction), now_ms, limit))
    transaction.queue_cache.reload_expiry(transaction.execute)
    return swept
