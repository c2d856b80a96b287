"""The rows of queues in the database, with the locks that keep two servers' changes apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pinlater.domain.queue import Queue, queue_of, settings_text
from pinlater.server.storage.mysql.statements import rows, sql
from pinlater.server.storage.mysql.transaction import Transaction
from pinlater.server.storage.relational.dialect import QueueLook, QueueRow
from pinlater.server.storage.relational.queues import merged

_FIND_SETTINGS = sql("find_settings")
_FIND_DELETED = sql("find_deleted_queue")
_LOCK_QUEUE = sql("lock_queue")
_LOCK_DELETED = sql("lock_deleted_queue")


class MysqlQueueTable:
    """Implements `relational.dialect.QueueTable`."""

    __slots__ = ("_transaction",)

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    async def look(self, name: str) -> QueueLook:
        packed = name.encode()
        found, deleted = await self._transaction.select(_FIND_SETTINGS(name=packed), _FIND_DELETED(name=packed))
        if not found.rows:
            return QueueLook(None, _first(deleted.rows))
        paused, config = found.rows[0]
        return QueueLook(queue_of(name, config, bool(paused)), _first(deleted.rows))

    async def write_merged(self, given: Queue, looked: QueueLook, now_ms: int) -> Queue:
        """Writes the merged queue. Inserts the row before the look for a deletion, while a deletion does the reverse, so that one of the
        two sees the other. Inserts only if there was no row, since a refused insert would use up a number.
        """
        insert = sql("insert_queue")(name=given.name.encode(), now_ms=now_ms)
        made = looked.queue is None and await self._transaction.change_now(insert) == 1
        row, deleted_ms = await self._lock_with_deletion(given.name)
        if row is None:  # deleted since the first look
            made = await self._transaction.change_now(insert) == 1
            row, deleted_ms = await self._lock_with_deletion(given.name)
        if row is None:
            raise AssertionError("a queue is gone whose row this transaction has made or found")
        queue = merged(self._transaction.queue_cache.shard, given, QueueLook(None if made else row.queue, deleted_ms))
        if queue.life.over:
            self._transaction.change(sql("drop_queues")(ids=[row.queue_id]))
        elif queue != row.queue:
            self.save(row.queue_id, queue)
        return queue

    async def _lock_with_deletion(self, name: str) -> tuple[QueueRow | None, int]:
        packed = name.encode()
        found, deleted = await self._transaction.select(_LOCK_QUEUE(name=packed), _LOCK_DELETED(name=packed))
        return _row(name, found.rows), _first(deleted.rows)

    async def lock(self, name: str) -> QueueRow | None:
        """Waits for the transactions that count for the queue now."""
        [found] = await self._transaction.select(_LOCK_QUEUE(name=name.encode()))
        return _row(name, found.rows)

    def save(self, queue_id: int, queue: Queue) -> None:
        config = settings_text(queue)
        self._transaction.change(sql("configure_queue")(queue_id=queue_id, paused=int(queue.paused), config=config))

    def drop(self, queue_ids: Sequence[int]) -> None:
        self._transaction.change(sql("insert_dropped_queues")(rows=rows([(queue_id,) for queue_id in queue_ids])))
        self._transaction.change(sql("drop_queues")(ids=queue_ids))

    def hold_deletion(self, name: str) -> None:
        self._transaction.change(sql("hold_deleted_queue")(name=name.encode()))

    def remember_deletion(self, name: str, deleted_ms: int) -> None:
        self._transaction.change(sql("save_deleted_queue")(name=name.encode(), deleted_ms=deleted_ms))

    def forget_deletions(self, before_ms: int, limit: int) -> None:
        self._transaction.change(sql("forget_deleted_queues")(before_ms=before_ms, limit=limit))


def _row(name: str, found: Sequence[tuple[Any, ...]]) -> QueueRow | None:
    if not found:
        return None
    queue_id, paused, config = found[0]
    return QueueRow(queue_id, queue_of(name, config, bool(paused)))


def _first(found: Sequence[tuple[Any, ...]]) -> int:
    return found[0][0] if found else 0
