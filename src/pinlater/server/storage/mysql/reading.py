"""Looking: lookups, scans, counts, and what a claim would give. On readers' connections, which see what was committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pinlater.domain.calls import ShardSize
from pinlater.domain.errors import PinLaterError, QueueNotFound
from pinlater.domain.job import HandedOutJob, JobInfo, JobState
from pinlater.domain.queue import PriorityCounts, Queue, QueueCounts, queue_of
from pinlater.server.storage.lookup_row import LookupRow, job_of
from pinlater.server.storage.mysql.connection import MysqlConnection
from pinlater.server.storage.mysql.dialect import CHANGED, OPTIONS, MysqlReader
from pinlater.server.storage.mysql.maintenance_snapshot import MaintenanceSnapshot
from pinlater.server.storage.mysql.queue_cache import LOWEST_MS
from pinlater.server.storage.mysql.statements import JOBS, KEPT_JOBS, Sql, Template, sql
from pinlater.server.storage.options import has_expired, options_of
from pinlater.server.storage.peeked_jobs import PeekedJobs
from pinlater.server.storage.relational import reading as relational
from pinlater.server.storage.relational.reading import in_order_of, queue_id_of
from pinlater.server.storage.snapshots import NEVER_MS
from pinlater.server.storage.values import JobKey, Page, PageRow

_LOOKUP_MAX = 200
_PEEK_MAX = 1_000
_BODY = Sql(b"coalesce(progress.body, jobs.body)")
_NO_BODY = Sql(b"NULL")

_LOOKUP_JOBS = sql("lookup_jobs")
_SELECT_DUE = sql("select_due")
_LIST_PRIORITIES_OF = sql("list_priorities_of")
_SELECT_BODIES = sql("select_bodies")
_SELECT_SPECIAL = sql("select_special")
_SELECT_NEWEST_BODIES = sql("select_newest_bodies")
_COUNT_JOBS = sql("count_jobs")
_LIST_MISCOUNTED = sql("list_miscounted")
_WANT_FRESH_STATISTICS = sql("want_fresh_statistics")
_SELECT_SIZE = sql("select_size")


async def lookup(
    connection: MysqlConnection, shard: str, keys: Sequence[JobKey], *, bodies: bool
) -> list[JobInfo | None]:
    """All that is known of each."""
    found: list[LookupRow] = []
    ids = sorted({key.id for key in keys})
    for start in range(0, len(ids), _LOOKUP_MAX):
        found += await _rows(connection, ids[start : start + _LOOKUP_MAX], bodies=bodies)
    return in_order_of(keys, found, shard)


async def _rows(connection: MysqlConnection, ids: Sequence[int], *, bodies: bool) -> list[LookupRow]:
    """Of the jobs that exist; a row that is in no state remains of a deleted job."""
    body = _BODY if bodies else _NO_BODY
    found = await _select_jobs(connection, _LOOKUP_JOBS, ids, body=body)
    rows = [LookupRow(job_id, queue.decode(), *others) for job_id, queue, *others in found]
    return [row for row in rows if row.waits or row.state is not JobState.PENDING]


async def _select_jobs(
    connection: MysqlConnection, statement: Template, ids: Sequence[int], **values: object
) -> list[tuple[Any, ...]]:
    """The rows of a statement about these jobs, wherever they are kept."""
    [found] = await connection.run([statement(jobs=JOBS, ids=ids, **values)])
    there = {line[0] for line in found.rows}
    missing = [job_id for job_id in ids if job_id not in there]
    if not missing:
        return list(found.rows)
    [kept] = await connection.run([statement(jobs=KEPT_JOBS, ids=missing, **values)])
    return [*found.rows, *kept.rows]


async def scan(connection: MysqlConnection, shard: str, page: Page) -> list[PageRow] | PinLaterError:
    """Two statements if no job moves on in between."""
    return await relational.scan(
        MysqlReader(connection), page, lambda order: _with_jobs(connection, shard, order, page)
    )


async def _with_jobs(
    connection: MysqlConnection, shard: str, order: Sequence[tuple[int, int]], page: Page
) -> list[PageRow]:
    """Of those still in the state, in pieces, so that not much more than `max_bytes` is ever in memory."""
    rows: list[PageRow] = []
    size_bytes = 0
    step = 20 if page.bodies else _LOOKUP_MAX
    for start in range(0, len(order), step):
        part = order[start : start + step]
        ids = sorted(job_id for _, job_id in part)
        found = {row.id: row for row in await _rows(connection, ids, bodies=page.bodies)}
        for sort_ms, job_id in part:
            row = found.get(job_id)
            if row is None or row.state is not page.state:
                continue
            if page.bodies and size_bytes > page.max_bytes:
                return rows
            job = job_of(row, shard)
            rows.append(PageRow(sort_ms, row.key, job))
            size_bytes += len(job.body or b"")
    return rows


async def peek(
    connection: MysqlConnection, queue: str, limit: int, now_ms: int, max_bytes: int
) -> list[HandedOutJob] | PinLaterError:
    """What a claim would give to one call."""
    queue_id = await queue_id_of(MysqlReader(connection), queue)
    if queue_id is None:
        return QueueNotFound.of(queue)
    [used] = await connection.run([_LIST_PRIORITIES_OF(queue_id=queue_id)])
    if not used.rows:
        return []
    ranges = [b"(priority=%d AND run_after_ms BETWEEN %d AND %d)" % (p, LOWEST_MS, now_ms) for (p,) in used.rows]
    wanted = _SELECT_DUE(queue_id=queue_id, ranges=Sql(b" OR ".join(ranges)), limit=min(max(0, limit) + 100, _PEEK_MAX))
    [due] = await connection.run([wanted])
    peeked = PeekedJobs(limit, max_bytes)
    for line in due.rows:
        body_bytes = line[4]
        if not peeked.has_space_for(body_bytes):
            break
        job = await _peeked(connection, line, now_ms)
        if job is not None and not peeked.add(job):
            break
    return peeked.jobs


async def _peeked(connection: MysqlConnection, due: tuple[Any, ...], now_ms: int) -> HandedOutJob | None:
    """The job as a claim would hand it out; None for one that has expired or is gone."""
    priority, run_after_ms, job_id, flags, _ = due
    if flags & (CHANGED | OPTIONS):
        about = await _select_jobs(connection, _SELECT_SPECIAL, [job_id])
        newest = await _select_jobs(connection, _SELECT_NEWEST_BODIES, [job_id])
        if not about or not newest:
            return None
        _, allowed, remaining, ended, created_ms, text = about[0]
        options = options_of(text)
        if has_expired(options, now_ms):
            return None
        attempt = (allowed, remaining, ended + 1, options.headers)
        return HandedOutJob(job_id, priority, newest[0][1], *attempt, created_ms, run_after_ms, 0)
    about = await _select_jobs(connection, _SELECT_BODIES, [job_id])
    if not about:
        return None
    _, allowed, created_ms, body = about[0]
    return HandedOutJob(job_id, priority, body, allowed, allowed, 1, None, created_ms, run_after_ms, 0)


async def counts(connection: MysqlConnection, queues: Sequence[str]) -> list[QueueCounts]:
    """Counters as they stand, over all writers; one seek each for the job that waits longest."""
    if not queues:
        return []
    names = b",".join([b"_binary'" + name.encode() + b"'" for name in queues])
    [found] = await connection.run([_COUNT_JOBS(which=Sql(b"queues.name IN (" + names + b")"))])
    return _counted(found.rows)


async def all_counts(connection: MysqlConnection) -> tuple[list[QueueCounts], list[str]]:
    """The same of all queues, and the names of those whose counters are wrong."""
    miscounted, found = await connection.run([_LIST_MISCOUNTED(), _COUNT_JOBS(which=Sql(b"TRUE"))])
    return _counted(found.rows), [name.decode() for (name,) in miscounted.rows]


def _counted(rows: Sequence[tuple[Any, ...]]) -> list[QueueCounts]:
    return [QueueCounts(queue.decode(), PriorityCounts._make(counts)) for queue, *counts in rows]


async def list_queues(connection: MysqlConnection) -> list[tuple[int, Queue]]:
    """All queues with their ids."""
    [found] = await connection.run([sql("list_queues")()])
    return [(queue_id, queue_of(name.decode(), config, bool(paused))) for queue_id, name, paused, config in found.rows]


async def maintenance_snapshot(connection: MysqlConnection, own_first: int, own_last: int) -> MaintenanceSnapshot:
    """What sweeps have to know. `own_first`, `own_last`: this server's writers, whose changes count for no other server's."""
    [found] = await connection.run([sql("maintenance_snapshot")(own_first=own_first, own_last=own_last)])
    future_ms, deadline_ms, expiry_ms, request_key_ms, until_ms, dropped, others = [
        NEVER_MS if value is None else value for value in found.rows[0]
    ]
    return MaintenanceSnapshot(future_ms, deadline_ms, expiry_ms, request_key_ms, until_ms, dropped, str(others))


async def highest_id(connection: MysqlConnection) -> int:
    """The highest job id in the database; 0 for none."""
    [found] = await connection.run([sql("select_highest_id")()])
    return int(found.rows[0][0])


async def size(connection: MysqlConnection) -> ShardSize:
    """The data and indexes of the database, as its statistics have it."""
    _, found = await connection.run([_WANT_FRESH_STATISTICS(), _SELECT_SIZE()])
    return ShardSize(used_bytes=int(found.rows[0][0]))
