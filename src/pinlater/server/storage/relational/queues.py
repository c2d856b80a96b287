"""Creates, drops and configures queues. Deleting one deletes its row; the garbage collection frees its jobs piece by piece."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.domain.errors import PinLaterError, QueueNotFound
from pinlater.domain.queue import Home, Queue, QueueConfig
from pinlater.server.storage.relational.dialect import Dialect, QueueLook, QueueTable
from pinlater.server.storage.values import DELETION_KEPT_MS

# How many old deletions each deletion forgets at most.
_FORGOTTEN_MAX = 1_000


def merged(shard: str, given: Queue, looked: QueueLook) -> Queue:
    """Returns the result for a queue on a shard when another shard's view of it is merged; a queue whose life is over does not exist."""
    return given.made_after(looked.deleted_ms) if looked.queue is None else looked.queue.row_of(shard, given)


async def merge(dialect: Dialect, queues: Sequence[Queue], now_ms: int) -> list[Queue]:
    """Executes `MergeQueues`. Nothing is locked or written if there is nothing to do."""
    table = dialect.queue_table()
    return [await _merge(table, dialect.shard, queue, now_ms) for queue in queues]


async def _merge(table: QueueTable, shard: str, given: Queue, now_ms: int) -> Queue:
    looked = await table.look(given.name)
    queue = merged(shard, given, looked)
    if queue == looked.queue or (looked.queue is None and queue.life.over):
        return queue
    return await table.write_merged(given, looked, now_ms)


async def delete(dialect: Dialect, names: Sequence[str], deleted_ms: int = 0, now_ms: int = 0) -> int:
    """Executes `DeleteQueues`. Forgets some old deletions."""
    table = dialect.queue_table()
    gone: list[int] = []
    newest_ms = 0
    for name in sorted(set(names)):
        if deleted_ms:
            table.hold_deletion(name)
        found, remembered_ms = await table.lock(name), deleted_ms
        if found is not None:
            newest_ms = max(newest_ms, found.queue.newest_ms)
            if deleted_ms and found.queue.life.made_ms > deleted_ms:
                continue
            remembered_ms = max(deleted_ms, found.queue.newest_ms + 1)
            gone.append(found.queue_id)
        if deleted_ms:
            table.remember_deletion(name, remembered_ms)
    if gone:
        table.drop(gone)
    if deleted_ms:
        table.forget_deletions(now_ms - DELETION_KEPT_MS, _FORGOTTEN_MAX)
    return newest_ms


async def configure(
    dialect: Dialect, name: str, config: QueueConfig | None, paused: bool | None, version: str, by: str
) -> bool:
    """Changes the queue. Returns False if it does not exist."""
    table = dialect.queue_table()
    found = await table.lock(name)
    if found is None:
        return False
    table.save(found.queue_id, found.queue.changed(config, paused, version, by))
    return True


async def move_home(dialect: Dialect, queue: str, known: Home, home: Home) -> Home | PinLaterError:
    """Executes `MoveHome`. Waits for the inserts that have read the row of the queue."""
    table = dialect.queue_table()
    found = await table.lock(queue)
    if found is None:
        return QueueNotFound.of(queue)
    if found.queue.home != known:
        return found.queue.home
    table.save(found.queue_id, found.queue._replace(home=home))
    return home
