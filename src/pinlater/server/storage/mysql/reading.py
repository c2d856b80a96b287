"""Reads that are specific to MySQL: the jobs that a claim would return, the counters of all queues, the data for sweeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pinlater.domain.errors import PinLaterError, QueueNotFound
from pinlater.domain.job import HandedOutJob
from pinlater.domain.queue import QueueCounts
from pinlater.server.storage.mysql.connection import MysqlConnection
from pinlater.server.storage.mysql.dialect import CHANGED, OPTIONS, MysqlReader
from pinlater.server.storage.mysql.queue_cache import LOWEST_MS
from pinlater.server.storage.mysql.statements import Sql, sql
from pinlater.server.storage.options import BEHIND_MAX, BEHIND_MS, has_expired, options_of
from pinlater.server.storage.peeked_jobs import PeekedJobs
from pinlater.server.storage.relational.reading import BoundStatement, counted, queue_id_of
from pinlater.server.storage.relational.rows import Row
from pinlater.server.storage.snapshots import NEVER_MS, MaintenanceSnapshot
from pinlater.wire.generated.structs import ShardSize

_PEEK_MAX = 1_000

_SELECT_BODIES = sql("select_bodies")
_SELECT_SPECIAL = sql("select_special")
_SELECT_NEWEST_BODIES = sql("select_newest_bodies")
_COUNT_JOBS = sql("count_jobs")
_LIST_MISCOUNTED = sql("list_miscounted")
_WANT_FRESH_STATISTICS = sql("want_fresh_statistics")
_SELECT_SIZE = sql("select_size")


async def peek(
    reader: MysqlReader, queue: str, limit: int, now_ms: int, max_bytes: int
) -> list[HandedOutJob] | PinLaterError:
    """Returns the jobs that a claim would give to one call."""
    queue_id = await queue_id_of(reader, queue)
    if queue_id is None:
        return QueueNotFound.of(queue)
    used = await reader.select("list_priorities_of", queue_id=queue_id)
    if not used:
        return []
    ranges = [b"(priority=%d AND run_after_ms BETWEEN %d AND %d)" % (p, LOWEST_MS, now_ms) for (p,) in used]
    most = min(max(0, limit) + 100, _PEEK_MAX)
    peeked = PeekedJobs(limit, max_bytes)
    for line in await reader.select("select_due", queue_id=queue_id, ranges=Sql(b" OR ".join(ranges)), limit=most):
        body_bytes = line[4]
        if not peeked.has_space_for(body_bytes):
            break
        job = await _peeked(reader, line, now_ms)
        if job is not None and not peeked.add(job):
            break
    return peeked.jobs


async def _peeked(reader: MysqlReader, due: tuple[Any, ...], now_ms: int) -> HandedOutJob | None:
    """The job as a claim would hand it out, or None for one that has expired or is gone."""
    priority, run_after_ms, job_id, flags, _ = due
    if flags & (CHANGED | OPTIONS):
        about = await reader.select_jobs(_SELECT_SPECIAL, [job_id])
        newest = await reader.select_jobs(_SELECT_NEWEST_BODIES, [job_id])
        if not about or not newest:
            return None
        _, allowed, remaining, ended, created_ms, text, _ = about[0]
        options = options_of(text)
        if has_expired(options, now_ms):
            return None
        attempt = (allowed, remaining, ended + 1, options.headers)
        return HandedOutJob(job_id, priority, newest[0][1], *attempt, created_ms, run_after_ms, 0)
    about = await reader.select_jobs(_SELECT_BODIES, [job_id])
    if not about:
        return None
    _, allowed, created_ms, body = about[0]
    return HandedOutJob(job_id, priority, body, allowed, allowed, 1, None, created_ms, run_after_ms, 0)


async def counts(reader: MysqlReader, queues: Sequence[str]) -> list[QueueCounts]:
    """Counters as they are; one seek each for the jobs that are due first and last."""
    return await _counted(reader, await reader.select("count_jobs", names=list(queues))) if queues else []


async def all_counts(connection: MysqlConnection) -> tuple[list[QueueCounts], list[str]]:
    """The counters of all queues, and the names of those whose counters are wrong."""
    miscounted, found = await connection.run([_LIST_MISCOUNTED(), _COUNT_JOBS(names=Sql(b"queues.name"))])
    counts_found = await _counted(MysqlReader(connection, ""), found.rows)
    return counts_found, [name.decode() for (name,) in miscounted.rows]


async def _counted(reader: MysqlReader, rows: Sequence[Row]) -> list[QueueCounts]:
    """Returns the counts from the rows of `count_jobs`. Those of the jobs behind others are looked up by constants: MySQL finds no range
    of an index that ends with each row."""
    looks = [
        BoundStatement(
            "count_behind", {"queue_id": queue, "priority": row[1], "from_ms": BEHIND_MS, "limit": BEHIND_MAX}
        )
        for row in rows
        for queue, last_ms in [row[-2:]]
        if last_ms is not None and last_ms >= BEHIND_MS
    ]
    behind = {(queue, priority): jobs for queue, priority, jobs in (await reader.select_union(looks) if looks else ())}
    return counted([(*values, behind.get((queue, values[1]), 0)) for *values, queue, _ in rows])


async def maintenance_snapshot(connection: MysqlConnection, own_first: int, own_last: int) -> MaintenanceSnapshot:
    """Returns the data that sweeps need. `own_first`, `own_last`: this server's writers, whose changes do not count as another server's."""
    [found] = await connection.run([sql("maintenance_snapshot")(own_first=own_first, own_last=own_last)])
    future_ms, deadline_ms, expiry_ms, request_key_ms, until_ms, dropped, others = [
        NEVER_MS if value is None else value for value in found.rows[0]
    ]
    return MaintenanceSnapshot(future_ms, deadline_ms, expiry_ms, request_key_ms, until_ms, dropped, str(others))


async def highest_id(connection: MysqlConnection) -> int:
    """The highest job id in the database, or 0 for none."""
    [found] = await connection.run([sql("select_highest_id")()])
    return int(found.rows[0][0])


async def size(connection: MysqlConnection) -> ShardSize:
    """The size of the data and indexes of the database, according to its statistics."""
    _, found = await connection.run([_WANT_FRESH_STATISTICS(), _SELECT_SIZE()])
    return ShardSize(used_bytes=int(found.rows[0][0]))
