"""Queues: made, dropped, configured. Deleting one deletes its row; the garbage collection frees its jobs piece by piece."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from pinlater.domain.queue import Queue, QueueConfig
from pinlater.server.storage.values import DELETION_KEPT_MS

# How many old deletions each deletion forgets at most.
_FORGOTTEN_MAX = 1_000


class QueueRow(NamedTuple):
    """The row of a queue that exists."""

    queue_id: int
    queue: Queue


class QueueLook(NamedTuple):
    """`queue`: None if there is none of this name; `deleted_ms`: when one was last deleted, 0 for never. Read only if there is none."""

    queue: Queue | None
    deleted_ms: int


class QueueTable(Protocol):
    """The rows of queues and of their deletions, in one transaction."""

    async def look(self, name: str) -> QueueLook:
        """Reads a queue without a lock."""
        ...

    async def write_merged(self, given: Queue, looked: QueueLook, now_ms: int) -> Queue:
        """Stores what `merged` gives; the queue as it is from then on. Looks again where another server may have come between."""
        ...

    async def lock(self, name: str) -> QueueRow | None:
        """The queue, which no other transaction changes meanwhile."""
        ...

    def save(self, queue_id: int, queue: Queue) -> None:
        """The settings of a queue that exists."""
        ...

    def drop(self, queue_ids: Sequence[int]) -> None:
        """Deletes queues, at once for every caller, however much they held."""
        ...

    def hold_deletion(self, name: str) -> None:
        """Before `lock`, where a deletion is to be remembered: of a merge and a deletion at the same time one sees the other."""
        ...

    def remember_deletion(self, name: str, deleted_ms: int) -> None:
        """Keeps the newest."""
        ...

    def forget_deletions(self, before_ms: int, limit: int) -> None:
        """Forgets deletions before that time, at most `limit`."""
        ...


def merged(given: Queue, looked: QueueLook) -> Queue:
    """What becomes of a queue when another shard's view of it is merged; one whose life is over does not exist."""
    return given.made_after(looked.deleted_ms) if looked.queue is None else looked.queue.newest(given)


async def merge(table: QueueTable, queues: Sequence[Queue], now_ms: int) -> list[Queue]:
    """Does what `Shard.merge_queues` says. Nothing is locked or written if there is nothing to do."""
    return [await _merge(table, queue, now_ms) for queue in queues]


async def _merge(table: QueueTable, given: Queue, now_ms: int) -> Queue:
    looked = await table.look(given.name)
    queue = merged(given, looked)
    if queue == looked.queue or (looked.queue is None and queue.life.over):
        return queue
    return await table.write_merged(given, looked, now_ms)


async def delete(table: QueueTable, names: Sequence[str], deleted_ms: int, now_ms: int) -> int:
    """Does what `Shard.delete_queues` says. Forgets some old deletions."""
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
    table: QueueTable, name: str, config: QueueConfig | None, paused: bool | None, version: str, by: str
) -> bool:
    """False if there is no such queue."""
    found = await table.lock(name)
    if found is None:
        return False
    table.save(found.queue_id, found.queue.changed(config, paused, version, by))
    return True
