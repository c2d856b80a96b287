"""The rows of queues in the file, and in the queue cache."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.domain.queue import Queue, settings_text
from pinlater.server.storage.relational.dialect import QueueLook, QueueRow
from pinlater.server.storage.relational.queues import merged
from pinlater.server.storage.sqlite.statements import sql
from pinlater.server.storage.sqlite.transaction import Transaction


class SqliteQueueTable:
    """Implements `relational.dialect.QueueTable`. The cache has all queues, and no other transaction runs meanwhile."""

    __slots__ = ("_queue_cache", "_transaction")

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._queue_cache = transaction.queue_cache

    async def look(self, name: str) -> QueueLook:
        entry = self._queue_cache.queues.get(name)
        if entry is not None:
            return QueueLook(entry.settings, 0)
        row = self._transaction.execute(sql("find_deleted_queue"), (name,)).fetchone()
        return QueueLook(None, row[0] if row else 0)

    async def write_merged(self, given: Queue, looked: QueueLook, now_ms: int) -> Queue:
        queue = merged(self._queue_cache.shard, given, looked)
        if looked.queue is not None:
            self.save(self._queue_cache.queues[given.name].queue_id, queue)
            return queue
        values = (queue.name, queue.paused, settings_text(queue), now_ms)
        cursor = self._transaction.execute(sql("insert_queue"), values)
        self._queue_cache.add(cursor.lastrowid or 0, queue)
        return queue

    async def lock(self, name: str) -> QueueRow | None:
        entry = self._queue_cache.queues.get(name)
        return None if entry is None else QueueRow(entry.queue_id, entry.settings)

    def save(self, queue_id: int, queue: Queue) -> None:
        entry = self._queue_cache.by_id[queue_id]
        self._queue_cache.will_change(entry)
        entry.settings = queue
        self._transaction.execute(sql("configure_queue"), (queue.paused, settings_text(queue), queue_id))

    def drop(self, queue_ids: Sequence[int]) -> None:
        self._queue_cache.write(self._transaction.execute)
        for queue_id in queue_ids:
            self._transaction.execute(sql("drop_queue"), (queue_id,))
            self._transaction.execute(sql("insert_dropped_queue"), (queue_id,))
            self._queue_cache.drop(self._queue_cache.by_id[queue_id])

    def hold_deletion(self, name: str) -> None:
        """Does nothing: there is no other transaction."""

    def remember_deletion(self, name: str, deleted_ms: int) -> None:
        self._transaction.execute(sql("save_deleted_queue"), (name, deleted_ms))

    def forget_deletions(self, before_ms: int, limit: int) -> None:
        self._transaction.execute(sql("forget_deleted_queues"), (before_ms, limit))
