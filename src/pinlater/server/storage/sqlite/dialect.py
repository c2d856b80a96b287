"""SQLite as a dialect of the relational code: its statements answer at once, so a coroutine over them runs to its end without waiting."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from pinlater.server.storage.record import JobRecord
from pinlater.server.storage.relational.dialect import Keys
from pinlater.server.storage.relational.rows import ClaimRow, DoneRow, Row, StateRow
from pinlater.server.storage.sqlite.queue_cache import Counter, QueueEntry
from pinlater.server.storage.sqlite.statements import OfIds, Rows, in_order, merged_pages, sql
from pinlater.server.storage.sqlite.transaction import Transaction

T = TypeVar("T")

_LOAD_JOBS = OfIds("load_jobs")
_LOAD_CLAIMS = OfIds("load_claims")
_LOAD_DONE = OfIds("load_done")
_LOAD_STATES = OfIds("load_states")
_FIND_UNFINISHED = OfIds("find_unfinished")
_LOAD_SIZES = OfIds("load_sizes")
_LOAD_CONTENTS = OfIds("load_contents")
_DELETE_ROWS = {table: OfIds("delete_rows", table) for table in ("jobs", "progress", "claims", "done", "audit")}
_MOVE_ROWS = [OfIds("move_rows", table) for table in ("jobs", "done")]
_FREE_UNIQUE_KEY = sql("free_unique_key")
_MOVE_UNIQUE_KEY = sql("move_unique_key")
_SAVE_UNIQUE_KEY = sql("save_unique_key")
_FIND_UNIQUE_KEY = sql("find_unique_key")
_ROWS = {name: Rows(name) for name in ("insert_done", "insert_ready", "insert_expiries")}


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """The result of relational code on `SqliteDialect`."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    raise AssertionError("a statement of SQLite waited")


class SqliteReader:
    """A reader's connection."""

    __slots__ = ("_connection",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def select(self, name: str, /, **values: object) -> list[tuple[Any, ...]]:
        packed = {key: json.dumps(value) if isinstance(value, list) else value for key, value in values.items()}
        return self._connection.execute(sql(name), in_order(name, packed)).fetchall()

    async def select_page(
        self, name: str, priorities: Sequence[int], limit: int, /, **values: object
    ) -> list[tuple[Any, ...]]:
        packed: list[object] = []
        for priority in priorities:
            packed += in_order(name, {**values, "priority": priority, "limit": limit})
        return self._connection.execute(merged_pages(name, len(priorities)), [*packed, limit]).fetchall()


class SqliteDialect:
    """One transaction of the writer."""

    __slots__ = ("_given_keys", "_queue_cache", "_transaction")

    job_tables = ("progress", "jobs")

    def __init__(self, transaction: Transaction) -> None:
        self._given_keys: set[int] = set()
        self._transaction = transaction
        self._queue_cache = transaction.queue_cache

    async def queues_named(self, names: Iterable[str]) -> Mapping[str, QueueEntry]:
        known = self._queue_cache.queues
        return {name: known[name] for name in names if name in known}

    async def queues_of(self, ids: Iterable[int]) -> Mapping[int, QueueEntry]:
        known = self._queue_cache.by_id
        return {queue_id: known[queue_id] for queue_id in ids if queue_id in known}

    def counter(self, queue_id: int, priority: int) -> Counter:
        return self._queue_cache.counter(self._queue_cache.by_id[queue_id], priority)

    async def load_jobs(self, ids: Sequence[int]) -> list[Row]:
        return _LOAD_JOBS.run(self._transaction.execute, ids).fetchall()

    async def load_claims(self, ids: Sequence[int]) -> list[ClaimRow]:
        return [ClaimRow._make(row) for row in _LOAD_CLAIMS.run(self._transaction.execute, ids)]

    async def load_done(self, ids: Sequence[int]) -> list[DoneRow]:
        return [DoneRow._make(row) for row in _LOAD_DONE.run(self._transaction.execute, ids)]

    async def load_states(self, ids: Sequence[int]) -> list[StateRow]:
        return [StateRow._make(row) for row in _LOAD_STATES.run(self._transaction.execute, ids)]

    async def find_unfinished(self, ids: Sequence[int]) -> set[int]:
        found = {job_id for (job_id,) in _FIND_UNFINISHED.run(self._transaction.execute, ids)}
        return found | self._given_keys.intersection(ids)

    async def body_sizes(self, jobs: Sequence[JobRecord]) -> Mapping[int, int]:
        return dict(_LOAD_SIZES.run(self._transaction.execute, [job.id for job in jobs])) if jobs else {}

    async def load_contents(self, ids: Sequence[int]) -> list[tuple[int, bytes, str | None]]:
        return _LOAD_CONTENTS.run(self._transaction.execute, ids).fetchall()

    async def select(self, name: str, /, **values: object) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self._transaction.execute(sql(name), in_order(name, values)).fetchall()
        return found

    async def change_now(self, name: str, /, **values: object) -> int:
        changed: int = self._transaction.execute(sql(name), in_order(name, values)).rowcount
        return changed

    async def key_holder(self, queue_id: int, key: str) -> tuple[int, int, int | None] | None:
        row: tuple[int, int, int | None] | None = self._transaction.execute(
            _FIND_UNIQUE_KEY, (queue_id, key)
        ).fetchone()
        return row

    def save_key(self, queue_id: int, key: str, scope: int, job: JobRecord) -> None:
        self._given_keys.add(job.id)
        self._transaction.execute(_SAVE_UNIQUE_KEY, (queue_id, key, scope, job.id, job.priority, None))

    def free_key(self, queue_id: int, key: str, job_id: int) -> None:
        self._transaction.execute(_FREE_UNIQUE_KEY, (queue_id, key, job_id))

    def move_key(self, queue_id: int, key: str, job_id: int, priority: int) -> None:
        self._transaction.execute(_MOVE_UNIQUE_KEY, (queue_id, key, job_id, priority))

    def set_priority(self, ids: Sequence[int], priority: int, now_ms: int) -> None:
        for move_rows in _MOVE_ROWS:
            move_rows.run(self._transaction.execute, ids, priority)

    def insert(self, name: str, rows: Sequence[Sequence[object]]) -> None:
        if not rows:
            return
        several = _ROWS.get(name)
        if several is None:
            self._transaction.executemany(sql(name), rows)
        else:
            several.run(self._transaction.execute, [value for row in rows for value in row])

    def insert_jobs(self, rows: Sequence[Row]) -> None:
        self.insert("insert_jobs_with_options", rows)

    def for_each(self, name: str, keys: Keys) -> None:
        if keys:
            self._transaction.executemany(sql(name), keys)

    def delete(self, table: str, ids: Sequence[int]) -> None:
        if ids:
            _DELETE_ROWS[table].run(self._transaction.execute, ids)

    def save_body(self, job_id: int, body: bytes) -> None:
        self._transaction.execute(sql("save_body"), (body, job_id))

    def enter_ready(self, jobs: Sequence[JobRecord]) -> None:
        rows = [(job.queue_id, job.priority, job.run_after_ms, job.id, 1) for job in jobs]
        self.insert("insert_ready", rows)
        expiries = [(job.options.expires_ms, job.id) for job in jobs if job.options.expires_ms is not None]
        self.insert("insert_expiries", expiries)
        for expires_ms, _ in expiries:
            self._queue_cache.first_expiry_ms = min(self._queue_cache.first_expiry_ms, expires_ms)

    def jobs_deleted(self) -> None:
        self._queue_cache.jobs_deleted()

    def count_lost(self, jobs: int) -> None:
        self._queue_cache.lost.count(jobs, "the file")
