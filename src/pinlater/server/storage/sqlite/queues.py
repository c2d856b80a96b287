"""Queues: made, dropped, configured. Deleting one deletes its row; the garbage collection frees its jobs piece by piece."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.domain.queue import Queue, QueueConfig, settings_text
from pinlater.server.storage.sqlite.queue_cache import QueueEntry
from pinlater.server.storage.sqlite.statements import sql
from pinlater.server.storage.sqlite.transaction import Transaction
from pinlater.server.storage.values import DELETION_KEPT_MS

# How many old deletions each deletion forgets at most.
_FORGOTTEN_MAX = 1_000


def merge(transaction: Transaction, queues: Sequence[Queue], now_ms: int) -> list[Queue]:
    """As `Shard.merge_queues`."""
    return [_merge(transaction, queue, now_ms) for queue in queues]


def _merge(transaction: Transaction, given: Queue, now_ms: int) -> Queue:
    entry = transaction.queue_cache.queues.get(given.name)
    if entry is not None:
        queue = entry.settings.newest(given)
        if queue != entry.settings:
            transaction.queue_cache.will_change(entry)
            entry.settings = queue
            transaction.execute(sql("configure_queue"), (queue.paused, settings_text(queue), entry.queue_id))
        return queue
    row = transaction.execute(sql("find_deleted_queue"), (given.name,)).fetchone()
    queue = given.made_after(row[0] if row else 0)
    if not queue.life.over:
        values = (queue.name, queue.paused, settings_text(queue), now_ms)
        cursor = transaction.execute(sql("insert_queue"), values)
        transaction.queue_cache.add(cursor.lastrowid or 0, queue)
    return queue


def delete(transaction: Transaction, names: Sequence[str], deleted_ms: int, now_ms: int) -> int:
    """As `Shard.delete_queues`. Forgets some old deletions."""
    newest_ms = 0
    for name in names:
        queue, remembered_ms = transaction.queue_cache.queues.get(name), deleted_ms
        if queue is not None:
            newest_ms = max(newest_ms, queue.settings.newest_ms)
            if deleted_ms and queue.settings.life.made_ms > deleted_ms:
                continue
            remembered_ms = max(deleted_ms, queue.settings.newest_ms + 1)
            _drop(transaction, queue)
        if deleted_ms:
            transaction.execute(sql("save_deleted_queue"), (name, remembered_ms))
    if deleted_ms:
        transaction.execute(sql("forget_deleted_queues"), (now_ms - DELETION_KEPT_MS, _FORGOTTEN_MAX))
    return newest_ms


def _drop(transaction: Transaction, queue: QueueEntry) -> None:
    """At once for every caller, however much it held."""
    transaction.queue_cache.write(transaction.execute)
    transaction.execute(sql("drop_queue"), (queue.queue_id,))
    transaction.execute(sql("insert_dropped_queue"), (queue.queue_id,))
    transaction.queue_cache.drop(queue)


def configure(
    transaction: Transaction, name: str, config: QueueConfig | None, paused: bool | None, version: str, by: str
) -> bool:
    """False if there is no such queue."""
    queue = transaction.queue_cache.queues.get(name)
    if queue is None:
        return False
    transaction.queue_cache.will_change(queue)
    settings = queue.settings = queue.settings.changed(config, paused, version, by)
    row = (settings.paused, settings_text(settings), queue.queue_id)
    transaction.execute(sql("configure_queue"), row)
    return True
