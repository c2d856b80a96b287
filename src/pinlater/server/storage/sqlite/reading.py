"""Looking: lookups, scans, counts and what a claim would give. Statements on a reader's connection, which sees what was committed."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any

from pinlater.domain.errors import PinLaterError, QueueNotFound
from pinlater.domain.job import HandedOutJob, JobInfo
from pinlater.domain.queue import PriorityCounts, Queue, QueueCounts, queue_of
from pinlater.server.storage.lookup_row import LookupRow, job_of
from pinlater.server.storage.options import has_expired, options_of
from pinlater.server.storage.peeked_jobs import PeekedJobs
from pinlater.server.storage.relational import reading as relational
from pinlater.server.storage.relational.reading import in_order_of
from pinlater.server.storage.sqlite.dialect import SqliteReader, at_once
from pinlater.server.storage.sqlite.statements import sql
from pinlater.server.storage.values import JobKey, Page, PageRow, Purge

_PEEK_READ_MAX = 10_000

_LOOKUP_JOBS = sql("lookup_jobs")
_SELECT_DUE = sql("select_due")
_SELECT_PROGRESS = sql("select_progress")
_OLDEST_CLAIMS = sql("oldest_claims")
_FIND_QUEUE = sql("find_queue")
_SELECT_PRIORITIES = sql("select_priorities")


def lookup(connection: sqlite3.Connection, shard: str, keys: Sequence[JobKey], *, bodies: bool) -> list[JobInfo | None]:
    """All that is known of each."""
    ids = str([key.id for key in keys])
    rows = connection.execute(_LOOKUP_JOBS, (ids, bodies))
    return in_order_of(keys, map(LookupRow._make, rows), shard)


def scan(connection: sqlite3.Connection, shard: str, page: Page) -> list[PageRow] | PinLaterError:
    """Two statements if no job moves on in between."""

    async def read(order: Sequence[tuple[int, int]]) -> list[PageRow]:
        return _with_jobs(connection, shard, order, page)

    return at_once(relational.scan(SqliteReader(connection), page, read))


def oldest_claims(connection: sqlite3.Connection, order: Purge) -> list[JobKey] | PinLaterError:
    """The jobs with the oldest claims, at most `order.limit`."""
    row = connection.execute(_FIND_QUEUE, (order.queue,)).fetchone()
    if row is None:
        return QueueNotFound.of(order.queue)
    where = (row[0], order.priority, max(0, order.limit))
    return [JobKey(order.queue, order.priority, job_id) for (job_id,) in connection.execute(_OLDEST_CLAIMS, where)]


def _with_jobs(
    connection: sqlite3.Connection, shard: str, order: Sequence[tuple[int, int]], page: Page
) -> list[PageRow]:
    """The jobs that are still in the state, row by row, so that no more than `max_bytes` and one body are ever in memory."""
    rows: list[PageRow] = []
    size_bytes = 0
    sorted_by = {job_id: sort_ms for sort_ms, job_id in order}
    with closing(connection.execute(_LOOKUP_JOBS, (str(list(sorted_by)), page.bodies))) as found:
        for row in map(LookupRow._make, found):
            if page.bodies and size_bytes > page.max_bytes:
                break
            if row.state is not page.state:
                continue
            job = job_of(row, shard)
            rows.append(PageRow(sorted_by[row.id], row.key, job))
            size_bytes += len(job.body or b"")
    return rows


def peek(
    connection: sqlite3.Connection, queue: str, limit: int, now_ms: int, max_bytes: int
) -> list[HandedOutJob] | PinLaterError:
    """What a claim would give to one call."""
    row = connection.execute(_FIND_QUEUE, (queue,)).fetchone()
    if row is None:
        return QueueNotFound.of(queue)
    peeked = PeekedJobs(limit, max_bytes)
    for (priority,) in connection.execute(_SELECT_PRIORITIES, (row[0],)).fetchall():
        if peeked.full:
            break
        where = (row[0], priority, now_ms, _PEEK_READ_MAX)
        with closing(connection.execute(_SELECT_DUE, where)) as rows:
            for due in rows:
                job = _peeked(connection, priority, due, now_ms)
                if job is None:
                    continue
                if not peeked.add(job):
                    return peeked.jobs
                if peeked.full:
                    break
    return peeked.jobs


def _peeked(connection: sqlite3.Connection, priority: int, due: tuple[Any, ...], now_ms: int) -> HandedOutJob | None:
    """The job as a claim would hand it out; None for one that has expired or is gone."""
    run_after_ms, job_id, changed, allowed, created_ms, options_text, body = due
    if body is None:
        return None
    options = options_of(options_text)
    if has_expired(options, now_ms):
        return None
    remaining, ended = allowed, 0
    if changed:
        progress = connection.execute(_SELECT_PROGRESS, (job_id,)).fetchone()
        if progress is not None:
            allowed, remaining, ended, new_body = progress
            body = body if new_body is None else new_body
    return HandedOutJob(
        job_id, priority, body, allowed, remaining, ended + 1, options.headers, created_ms, run_after_ms, 0
    )


def counts(connection: sqlite3.Connection, queues: Sequence[str]) -> list[QueueCounts]:
    """Counters as they stand; one seek each for the job that waits longest."""
    return _counted(connection.execute(sql("count_jobs"), (json.dumps(list(queues)),)))


def all_counts(connection: sqlite3.Connection) -> tuple[list[QueueCounts], list[str]]:
    """The same of all queues, and the names of those whose counters are wrong."""
    miscounted = [name for (name,) in connection.execute(sql("list_miscounted"))]
    return _counted(connection.execute(sql("count_all_jobs"))), miscounted


def _counted(rows: Iterable[tuple[Any, ...]]) -> list[QueueCounts]:
    return [QueueCounts(queue, PriorityCounts._make(counts)) for queue, *counts in rows]


def list_first(connection: sqlite3.Connection) -> None:
    """The cheapest proof that the file can be read."""
    connection.execute(_FIND_QUEUE, ("",)).fetchone()


def list_queues(connection: sqlite3.Connection) -> list[Queue]:
    return [queue_of(name, config, bool(paused)) for _, name, paused, config in connection.execute(sql("list_queues"))]
