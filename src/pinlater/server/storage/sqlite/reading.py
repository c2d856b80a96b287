"""Reads that are specific to SQLite: the jobs that a claim would return, the oldest claims, the counters of all queues."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

from pinlater.domain.errors import PinLaterError, QueueNotFound
from pinlater.domain.job import HandedOutJob
from pinlater.domain.queue import QueueCounts
from pinlater.server.storage.options import BEHIND_MAX, BEHIND_MS, has_expired, options_of
from pinlater.server.storage.peeked_jobs import PeekedJobs
from pinlater.server.storage.relational.reading import counted
from pinlater.server.storage.sqlite.statements import sql
from pinlater.server.storage.values import JobKey, Purge

_PEEK_READ_MAX = 10_000

_SELECT_DUE = sql("select_due")
_SELECT_PROGRESS = sql("select_progress")
_OLDEST_CLAIMS = sql("oldest_claims")
_FIND_QUEUE = sql("find_queue")
_SELECT_PRIORITIES = sql("select_priorities")


def oldest_claims(connection: sqlite3.Connection, order: Purge) -> list[JobKey] | PinLaterError:
    """The jobs with the oldest claims, at most `order.limit`."""
    row = connection.execute(_FIND_QUEUE, (order.queue,)).fetchone()
    if row is None:
        return QueueNotFound.of(order.queue)
    where = (row[0], order.priority, max(0, order.limit))
    return [JobKey(order.queue, order.priority, job_id) for (job_id,) in connection.execute(_OLDEST_CLAIMS, where)]


def peek(
    connection: sqlite3.Connection, queue: str, limit: int, now_ms: int, max_bytes: int
) -> list[HandedOutJob] | PinLaterError:
    """Returns the jobs that a claim would give to one call."""
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
    """The job as a claim would hand it out, or None for one that has expired or is gone."""
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


def all_counts(connection: sqlite3.Connection) -> tuple[list[QueueCounts], list[str]]:
    """The counters of all queues, and the names of those whose counters are wrong."""
    miscounted = [name for (name,) in connection.execute(sql("list_miscounted"))]
    return counted(connection.execute(sql("count_all_jobs"), (BEHIND_MS, BEHIND_MAX))), miscounted


def list_first(connection: sqlite3.Connection) -> None:
    """The cheapest proof that the file can be read."""
    connection.execute(_FIND_QUEUE, ("",)).fetchone()
