"""The history of queues, on readers' connections, each statement committed by itself: a save may be repeated, and none counts as a change
for other servers."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.server.storage.mysql.connection import MysqlConnection
from pinlater.server.storage.mysql.statements import in_statements, row, sql
from pinlater.server.storage.values import StoredSample

_SAVE_SAMPLES = sql("save_samples")
_DELETE_SAMPLES = sql("delete_samples")


async def save(connection: MysqlConnection, samples: Sequence[StoredSample]) -> None:
    """Saves samples, each replacing the one with the same key, in key order, so that two servers lock in the same order."""
    rows = [
        row((step_s, at_ms, queue.encode(), origin.encode(), data))
        for step_s, at_ms, queue, origin, data in sorted(samples)
    ]
    await connection.run([_SAVE_SAMPLES(rows=part) for part in in_statements(rows, connection.packet_bytes_max)])


async def trim(connection: MysqlConnection, step_s: int, before_ms: int, limit: int) -> int:
    """Deletes the oldest. Returns how many."""
    [found] = await connection.run([_DELETE_SAMPLES(step_s=step_s, before_ms=before_ms, limit=limit)])
    return found.affected
