"""Queues: made, dropped, configured. Deleting one deletes its row; the garbage collection frees its jobs piece by piece."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.domain.queue import Queue, QueueConfig, queue_of, settings_text
from pinlater.storage.mysql.statements import rows, sql
from pinlater.storage.mysql.transaction import Transaction

_FIND_SETTINGS = sql("find_settings")


async def create(transaction: Transaction, names: Sequence[str], now_ms: int) -> list[Queue]:
    """One that exists stays as it is; looked for first, because a refused insert uses a number up. All of them as they are now."""
    queues = []
    for name in names:
        [found] = await transaction.select(_FIND_SETTINGS(name=name.encode()))
        if found.rows:
            [(paused, config)] = found.rows
            queues.append(queue_of(name, config, bool(paused)))
        else:
            transaction.change(sql("insert_queue")(name=name.encode(), now_ms=now_ms))
            queues.append(Queue(name))
    return queues


async def delete(transaction: Transaction, names: Sequence[str]) -> None:
    """At once for every caller, however much it held. Waits for the transactions that count for it now."""
    gone = []
    for name in sorted(names):
        [found] = await transaction.select(sql("lock_queue")(name=name.encode()))
        gone += [(line[0],) for line in found.rows]
    if gone:
        transaction.change(sql("insert_dropped_queues")(rows=rows(gone)))
        transaction.change(sql("drop_queues")(ids=[queue_id for (queue_id,) in gone]))


async def configure(
    transaction: Transaction, name: str, config: QueueConfig | None, paused: bool | None, version: str
) -> bool:
    """False where there is no such queue."""
    [found] = await transaction.select(sql("lock_queue")(name=name.encode()))
    if not found.rows:
        return False
    queue_id, was_paused, text = found.rows[0]
    queue = queue_of(name, text, bool(was_paused)).changed(config, paused, version)
    transaction.change(sql("configure_queue")(queue_id=queue_id, paused=int(queue.paused), config=settings_text(queue)))
    return True
