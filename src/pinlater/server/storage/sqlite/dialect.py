"""SQLite as a dialect of the relational code: its statements answer at once, so a coroutine over them runs to its end without waiting."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncGenerator, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any, TypeVar

from pinlater.domain.queue import Queue
from pinlater.server.storage.record import JobRecord, record_of
from pinlater.server.storage.relational.dialect import Keys, OrderedRow, OrderingKey
from pinlater.server.storage.relational.reading import BoundStatement
from pinlater.server.storage.relational.rows import Row
from pinlater.server.storage.sqlite.queue_cache import Counter, QueueEntry
from pinlater.server.storage.sqlite.queues import SqliteQueueTable
from pinlater.server.storage.sqlite.statements import PairSelect, Rows, in_order, merged_pages, of_ids, sql, union
from pinlater.server.storage.sqlite.transaction import Transaction
from pinlater.server.storage.values import JobKey

T = TypeVar("T")

_SAVE_UNIQUE_KEY = sql("save_unique_key")
_FIRST_PLACES = sql("first_places")
_ROWS = {name: Rows(name) for name in ("insert_done", "insert_ready", "insert_expiries", "insert_ordered")}
_LAST_NUMBERS = PairSelect("last_numbers")
_PAIRS = {"first_of_keys": PairSelect("first_of_keys")}


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

    __slots__ = ("_connection", "shard")

    def __init__(self, connection: sqlite3.Connection, shard: str) -> None:
        self._connection = connection
        self.shard = shard

    async def select(self, name: str, /, **values: object) -> list[Row]:
        return self._connection.execute(sql(name), _packed(name, values)).fetchall()

    async def select_union(self, looks: Sequence[BoundStatement], newest: int | None = None) -> list[Row]:
        names = tuple([name for name, _ in looks])
        values = [value for look in looks for value in _packed(*look)]
        if newest is None:
            return self._connection.execute(union(names), values).fetchall()
        return self._connection.execute(merged_pages(names), [*values, newest]).fetchall()

    async def jobs(
        self, ids: Sequence[int], *, bodies: bool, at_once: int
    ) -> AsyncGenerator[tuple[JobKey, JobRecord], None]:
        """Reads row by row."""
        with closing(self._connection.execute(sql("lookup_jobs"), (str(ids), bodies))) as found:
            for queue, *values in found:
                job = record_of(values)
                yield JobKey(queue, job.priority, job.id), job


def _packed(name: str, values: Mapping[str, object]) -> list[object]:
    """The values of a statement's parameters, lists as JSON."""
    return [json.dumps(value) if isinstance(value, list) else value for value in in_order(name, values)]


class SqliteDialect:
    """One transaction of the writer."""

    __slots__ = ("_execute", "_queue_cache", "_transaction", "given_keys", "shard")

    job_tables = ("progress", "jobs")

    def __init__(self, transaction: Transaction) -> None:
        self.given_keys: set[int] = set()
        self._transaction = transaction
        self._execute = transaction.execute
        self._queue_cache = transaction.queue_cache
        self.shard = transaction.queue_cache.shard

    def queue_table(self) -> SqliteQueueTable:
        return SqliteQueueTable(self._transaction)

    async def queues_named(self, names: Iterable[str]) -> Mapping[str, QueueEntry]:
        known = self._queue_cache.queues
        return {name: known[name] for name in names if name in known}

    async def queues_of(self, ids: Iterable[int]) -> Mapping[int, QueueEntry]:
        known = self._queue_cache.by_id
        return {queue_id: known[queue_id] for queue_id in ids if queue_id in known}

    def counter(self, queue_id: int, priority: int) -> Counter:
        return self._queue_cache.counter(self._queue_cache.by_id[queue_id], priority)

    async def load_jobs(self, ids: Sequence[int]) -> list[JobRecord]:
        return [record_of(row) for row in of_ids("load_jobs").run(self._execute, ids)]

    async def select(self, name: str, /, **values: object) -> list[Row]:
        found: list[Row] = self._execute(sql(name), in_order(name, values)).fetchall()
        return found

    async def select_of(self, name: str, ids: Sequence[int]) -> list[Row]:
        return of_ids(name).run(self._execute, ids).fetchall() if ids else []

    select_jobs = select_of

    async def change_now(self, name: str, /, **values: object) -> int:
        changed: int = self._execute(sql(name), in_order(name, values)).rowcount
        return changed

    def change(self, name: str, /, **values: object) -> None:
        self._execute(sql(name), in_order(name, values))

    def save_key(self, queue_id: int, key: str, scope: int, job: JobRecord) -> None:
        self.given_keys.add(job.id)
        self._execute(_SAVE_UNIQUE_KEY, (queue_id, key, scope, job.id, job.priority, None))

    def set_priority(self, ids: Sequence[int], priority: int, now_ms: int) -> None:
        for table in ("jobs", "done"):
            of_ids("move_rows", table).run(self._execute, ids, priority)

    def insert(self, name: str, rows: Sequence[Sequence[object]]) -> None:
        if not rows:
            return
        several = _ROWS.get(name)
        if several is None:
            self._transaction.executemany(sql(name), rows)
        else:
            several.run(self._execute, [value for row in rows for value in row])

    def for_each(self, name: str, keys: Keys) -> None:
        if keys:
            self._transaction.executemany(sql(name), keys)

    def delete(self, table: str, ids: Sequence[int]) -> None:
        if ids:
            of_ids("delete_rows", table).run(self._execute, ids)

    def enter_ready(self, jobs: Sequence[JobRecord]) -> None:
        rows = [(job.queue_id, job.priority, job.run_after_ms, job.id, 1) for job in jobs]
        self.insert("insert_ready", rows)
        expiries = [(job.options.expires_ms, job.id) for job in jobs if job.options.expires_ms is not None]
        self.insert("insert_expiries", expiries)
        for expires_ms, _ in expiries:
            self._queue_cache.first_expiry_ms = min(self._queue_cache.first_expiry_ms, expires_ms)

    def lock_keys(self, keys: Collection[OrderingKey]) -> None:
        """Does nothing: there is one writer."""

    def forget_keys(self, keys: Sequence[OrderingKey]) -> None:
        """Does nothing: only the jobs of keys are kept."""

    async def last_numbers(self, keys: Collection[OrderingKey]) -> tuple[dict[OrderingKey, int], Mapping[int, Queue]]:
        last = self._queue_cache.last_numbers.of(keys)
        if len(last) < len(keys):
            unknown = [value for key in keys if key not in last for value in key]
            last.update(
                {(queue_id, key): number for queue_id, key, number in _LAST_NUMBERS.run(self._execute, unknown)}
            )
        return last, self._queues_of_keys(keys)

    def insert_ordered(self, rows: Sequence[OrderedRow]) -> None:
        self.insert("insert_ordered", rows)
        self._queue_cache.last_numbers.enter(rows)

    def delete_ordered(self, ids: Sequence[int]) -> None:
        self.delete("ordered", ids)
        self._queue_cache.last_numbers.leave(ids)

    async def select_keys(self, name: str, keys: Collection[OrderingKey]) -> tuple[list[Row], Mapping[int, Queue]]:
        found = _PAIRS[name].run(self._execute, [value for key in keys for value in key])
        return found, self._queues_of_keys(keys)

    def _queues_of_keys(self, keys: Collection[OrderingKey]) -> Mapping[int, Queue]:
        return self._queues({queue_id for queue_id, _ in keys})

    async def first_places(self, keys: Sequence[tuple[OrderingKey, int]]) -> list[Row]:
        return [row for key, limit in keys for row in self._execute(_FIRST_PLACES, (*key, limit)).fetchall()]

    async def stored_queues(self, queue_ids: Collection[int]) -> Mapping[int, Queue]:
        return self._queues(queue_ids)

    held_queues = stored_queues  # there is one writer

    def _queues(self, queue_ids: Collection[int]) -> Mapping[int, Queue]:
        known = self._queue_cache.by_id
        return {id_: known[id_].settings if id_ in known else Queue("") for id_ in queue_ids}

    def came_first(self, queue_id: int, due_ms: int) -> None:
        cache = self._queue_cache
        cache.claim_follows |= cache.came_first(cache.by_id[queue_id].name, due_ms)

    def jobs_deleted(self) -> None:
        self._queue_cache.jobs_deleted()

    def count_lost(self, jobs: int) -> None:
        self._queue_cache.lost.count(jobs, "the file")
