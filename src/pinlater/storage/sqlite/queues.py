"""Queues: made, dropped, configured. Deleting one deletes its row; the garbage collection frees its jobs piece by piece."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.domain.queue import Queue, QueueConfig, settings_text
from pinlater.storage.sqlite.queue_cache import Transaction
from pinlater.storage.sqlite.statements import sql


def create(transaction: Transaction, names: Sequence[str], now_ms: int) -> list[Queue]:
    """One that exists stays as it is. All of them as they are now."""
    queues = transaction.queue_cache.queues
    for name in names:
        if name not in queues:
            cursor = transaction.execute(sql("insert_queue"), (name, now_ms))
            transaction.queue_cache.add(cursor.lastrowid or 0, name)
    return [queues[name].settings for name in names]


def delete(transaction: Transaction, names: Sequence[str]) -> None:
    """At once for every caller, however much it held."""
    queue_cache = transaction.queue_cache
    for name in names:
        queue = queue_cache.queues.get(name)
        if queue is not None:
            queue_cache.write(transaction.execute)
            transaction.execute(sql("drop_queue"), (queue.queue_id,))
            transaction.execute(sql("insert_dropped_queue"), (queue.queue_id,))
            queue_cache.drop(queue)


def configure(
    transaction: Transaction, name: str, config: QueueConfig | None, paused: bool | None, version: str
) -> bool:
    """False where there is no such queue."""
    queue = transaction.queue_cache.queues.get(name)
    if queue is None:
        return False
    settings = queue.settings = queue.settings.changed(config, paused, version)
    row = (settings.paused, settings_text(settings), queue.queue_id)
    transaction.execute(sql("configure_queue"), row)
    return True
