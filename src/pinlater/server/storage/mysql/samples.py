"""The history of queues, on readers' connections, each statement committed by itself: a save may be repeated, and none is a change that
other servers look for."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.server.storage.mysql.connection import MysqlConnection
from pinlater.server.storage.mysql.statements import in_statements, row, sql, union
from pinlater.server.storage.sample_order import in_order
from pinlater.server.storage.values import SampleRange, StoredSample

_SAVE_SAMPLES = sql("save_samples")
_LIST_SAMPLES = sql("list_samples")
_LIST_SAMPLES_OF = sql("list_samples_of")
_DELETE_SAMPLES = sql("delete_samples")
_BEGIN = (-(2**63), "", "")


async def save(connection: MysqlConnection, samples: Sequence[StoredSample]) -> None:
    """Each in the place of one with the same key, in key order, so that two servers lock in the same order."""
    rows = [
        row((step_s, at_ms, queue.encode(), origin.encode(), data))
        for step_s, at_ms, queue, origin, data in sorted(samples)
    ]
    await connection.run([_SAVE_SAMPLES(rows=part) for part in in_statements(rows, connection.packet_bytes_max)])


async def find(connection: MysqlConnection, ranges: Sequence[SampleRange]) -> list[StoredSample]:
    """The samples of these ranges, in order."""
    wanted = [_statement(each) for each in ranges if each.queues is None or each.queues]
    if not wanted:
        return []
    [found] = await connection.run([union(wanted)])
    samples = (
        StoredSample(step_s, at_ms, queue.decode(), origin.decode(), data)
        for step_s, at_ms, queue, origin, data in found.rows
    )
    return in_order(ranges, samples)


def _statement(wanted: SampleRange) -> bytes:
    after_ms, after_queue, after_origin = wanted.after or _BEGIN
    statement = _LIST_SAMPLES if wanted.queues is None else _LIST_SAMPLES_OF
    return statement(
        queues=[name.encode() for name in wanted.queues or ()],
        step_s=wanted.step_s,
        from_ms=wanted.from_ms,
        until_ms=wanted.until_ms,
        after_ms=after_ms,
        after_queue=after_queue.encode(),
        after_origin=after_origin.encode(),
        limit=wanted.limit,
    )


async def trim(connection: MysqlConnection, step_s: int, before_ms: int, limit: int) -> int:
    """Deletes the oldest; how many."""
    [found] = await connection.run([_DELETE_SAMPLES(step_s=step_s, before_ms=before_ms, limit=limit)])
    return found.affected
