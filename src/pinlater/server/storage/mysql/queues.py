"""Queues: made, dropped, configured. Deleting one deletes its row; the garbage collection frees its jobs piece by piece."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.domain.queue import Queue, QueueConfig, queue_of, settings_text
from pinlater.server.storage.mysql.statements import rows, sql
from pinlater.server.storage.mysql.transaction import Transaction
from pinlater.server.storage.values import DELETION_KEPT_MS

_FIND_SETTINGS = sql("find_settings")
_FIND_DELETED = sql("find_deleted_queue")
# How many old deletions each deletion forgets at most.
_FORGOTTEN_MAX = 1_000


async def merge(transaction: Transaction, queues: Sequence[Queue], now_ms: int) -> list[Queue]:
    """As `Shard.merge_queues`. Nothing is locked if there is nothing to do; a refused insert would use a number up, too."""
    return [await _merge(transaction, queue, now_ms) for queue in queues]


async def _merge(transaction: Transaction, given: Queue, now_ms: int) -> Queue:
    name = given.name.encode()
    found, deleted = await transaction.select(_FIND_SETTINGS(name=name), _FIND_DELETED(name=name))
    if found.rows:
        [(paused, config)] = found.rows
        queue = queue_of(given.name, config, bool(paused))
        if queue.newest(given) == queue:
            return queue
    else:
        queue = given.made_after(_first(deleted.rows))
        if queue.life.over:
            return queue
    return await _merge_locked(transaction, given, now_ms, there=bool(found.rows))


async def _merge_locked(transaction: Transaction, given: Queue, now_ms: int, *, there: bool) -> Queue:
    """The row is made before the look for a deletion, and `delete` does it the other way round: one of the two sees the other."""
    name = given.name.encode()
    insert = sql("insert_queue")(name=name, now_ms=now_ms)
    look = (sql("lock_queue")(name=name), sql("lock_deleted_queue")(name=name))
    made = not there and await transaction.change_now(insert) == 1
    row, deleted = await transaction.select(*look)
    if not row.rows:  # deleted since the first look
        made = await transaction.change_now(insert) == 1
        row, deleted = await transaction.select(*look)
    [(queue_id, paused, config)] = row.rows
    before = queue_of(given.name, config, bool(paused))
    queue = given.made_after(_first(deleted.rows)) if made else before.newest(given)
    if queue.life.over:
        transaction.change(sql("drop_queues")(ids=[queue_id]))
    elif queue != before:
        _save(transaction, queue_id, queue)
    return queue


def _first(rows: Sequence[Sequence[int]]) -> int:
    return rows[0][0] if rows else 0


async def delete(transaction: Transaction, names: Sequence[str], deleted_ms: int, now_ms: int) -> int:
    """As `Shard.delete_queues`. At once for every caller, however much a queue held. Waits for the transactions that count for it now.

    Forgets some old deletions.
    """
    gone, newest_ms = [], 0
    for name in sorted(names):
        if deleted_ms:
            transaction.change(sql("hold_deleted_queue")(name=name.encode()))
        [found] = await transaction.select(sql("lock_queue")(name=name.encode()))
        rows_ = [(queue_id, queue_of(name, config, bool(paused))) for queue_id, paused, config in found.rows]
        newest_ms = max([newest_ms, *(queue.newest_ms for _, queue in rows_)])
        if deleted_ms and any(queue.life.made_ms > deleted_ms for _, queue in rows_):
            continue
        gone += [(queue_id,) for queue_id, _ in rows_]
        if deleted_ms:
            remembered_ms = max([deleted_ms, *(queue.newest_ms + 1 for _, queue in rows_)])
            transaction.change(sql("save_deleted_queue")(name=name.encode(), deleted_ms=remembered_ms))
    if gone:
        transaction.change(sql("insert_dropped_queues")(rows=rows(gone)))
        transaction.change(sql("drop_queues")(ids=[queue_id for (queue_id,) in gone]))
    if deleted_ms:
        before_ms = now_ms - DELETION_KEPT_MS
        transaction.change(sql("forget_deleted_queues")(before_ms=before_ms, limit=_FORGOTTEN_MAX))
    return newest_ms


async def configure(
    transaction: Transaction, name: str, config: QueueConfig | None, paused: bool | None, version: str, by: str
) -> bool:
    """False if there is no such queue."""
    [found] = await transaction.select(sql("lock_queue")(name=name.encode()))
    if not found.rows:
        return False
    queue_id, was_paused, text = found.rows[0]
    queue = queue_of(name, text, bool(was_paused)).changed(config, paused, version, by)
    _save(transaction, queue_id, queue)
    return True


def _save(transaction: Transaction, queue_id: int, queue: Queue) -> None:
    transaction.change(sql("configure_queue")(queue_id=queue_id, paused=int(queue.paused), config=settings_text(queue)))
