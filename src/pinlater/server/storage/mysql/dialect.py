"""MySQL as a dialect of the relational code: changes wait for the next statement that needs an answer, so a call takes few packets."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from functools import partial

from pinlater.domain.queue import Queue, queue_of
from pinlater.server.storage.mysql.connection import MysqlConnection
from pinlater.server.storage.mysql.counters import Counter
from pinlater.server.storage.mysql.partitions import kept_before
from pinlater.server.storage.mysql.queue_cache import QueueEntry
from pinlater.server.storage.mysql.queues import MysqlQueueTable
from pinlater.server.storage.mysql.statements import (
    JOBS,
    KEPT_JOBS,
    Sql,
    Template,
    delete_ready,
    delete_rows,
    in_statements,
    json_ids,
    json_rows,
    keys_in_statements,
    row,
    sql,
    union,
)
from pinlater.server.storage.mysql.transaction import Transaction
from pinlater.server.storage.options import BEHIND_MS
from pinlater.server.storage.record import STATE_AT, JobRecord, record_of
from pinlater.server.storage.relational.dialect import Keys, OrderedRow, OrderingKey
from pinlater.server.storage.relational.reading import BoundStatement
from pinlater.server.storage.relational.rows import Row
from pinlater.server.storage.values import JobKey

# Flags of a row of `ready`: the job has a row in `progress`; the counters count it as future; the job has options.
CHANGED, FUTURE, OPTIONS = 1, 2, 4

# A job that is in no state has just moved to a state that was already read, and its transaction has committed by now; or another
# transaction deletes the job.
_LOOKS_MAX = 5

_MERGE_PAGES = sql("merge_pages")
_LOOKUP_JOBS = sql("lookup_jobs")
_LOAD_JOBS = sql("load_jobs")
_MOVE_ROWS = sql("move_rows")
_KEEP_MOVED_JOBS = sql("keep_moved_jobs")
_DELETE_UNIQUE_KEY = sql("delete_unique_key")
_SAVE_UNIQUE_KEY = sql("save_unique_key")
_LOCK_ORDERING_KEYS = sql("lock_ordering_keys")
_LAST_NUMBERS = sql("last_numbers")
_FORGET_ORDERING_KEYS = sql("forget_ordering_keys")
_FIRST_PLACES = sql("first_places")
_SELECT_CONFIGS, _HOLD_CONFIGS = sql("select_configs"), sql("hold_configs")
_BODY, _NO_BODY = Sql(b"coalesce(progress.body, jobs.body)"), Sql(b"NULL")


class MysqlReader:
    """A reader's connection. The columns of names and keys are bytes."""

    __slots__ = ("_connection", "shard")

    def __init__(self, connection: MysqlConnection, shard: str) -> None:
        self._connection = connection
        self.shard = shard

    async def select(self, name: str, /, **values: object) -> Sequence[Row]:
        return await self._run(_filled(BoundStatement(name, values)))

    async def select_union(self, looks: Sequence[BoundStatement], newest: int | None = None) -> Sequence[Row]:
        found = union([_filled(look) for look in looks])
        return await self._run(found if newest is None else _MERGE_PAGES(pages=found, limit=newest))

    async def jobs(
        self, ids: Sequence[int], *, bodies: bool, at_once: int
    ) -> AsyncGenerator[tuple[JobKey, JobRecord], None]:
        for start in range(0, len(ids), at_once):
            part = ids[start : start + at_once]
            rows = await self.select_jobs(_LOOKUP_JOBS, sorted(part), body=_BODY if bodies else _NO_BODY)
            found = {job_id: (queue, (job_id, *values)) for job_id, queue, *values in rows}
            for queue, values in [found[job_id] for job_id in part if job_id in found]:
                if values[STATE_AT] is not None:  # otherwise it belongs to a deleted job
                    job = record_of(values)
                    yield JobKey(queue.decode(), job.priority, job.id), job

    async def select_jobs(self, statement: Template, ids: Sequence[int], **values: object) -> list[Row]:
        """The rows of a statement about these jobs, wherever they are kept."""
        found = await self._run(statement(jobs=JOBS, ids=ids, **values))
        there = {row[0] for row in found}
        missing = [job_id for job_id in ids if job_id not in there]
        if not missing:
            return list(found)
        return [*found, *await self._run(statement(jobs=KEPT_JOBS, ids=missing, **values))]

    async def _run(self, statement: bytes) -> Sequence[Row]:
        [found] = await self._connection.run([statement])
        return found.rows


def _filled(look: BoundStatement) -> bytes:
    return sql(look.name)(**{name: _packed(value) for name, value in look.values.items()})


def _packed(value: object) -> object:
    """Returns text as the bytes that columns hold."""
    if isinstance(value, list):
        return [_packed(each) for each in value]
    return value.encode() if isinstance(value, str) else value


class MysqlDialect:
    """One transaction."""

    __slots__ = ("_locked", "_transaction", "given_keys", "shard")

    job_tables = ("progress", "jobs", "kept_jobs")

    def __init__(self, transaction: Transaction) -> None:
        self.given_keys: set[int] = set()
        self._locked: set[OrderingKey] = set()
        self._transaction = transaction
        self.shard = transaction.queue_cache.shard

    def queue_table(self) -> MysqlQueueTable:
        return MysqlQueueTable(self._transaction)

    async def queues_named(self, names: Iterable[str]) -> Mapping[str, QueueEntry]:
        return await self._transaction.queues_named(names)

    async def queues_of(self, ids: Iterable[int]) -> Mapping[int, QueueEntry]:
        return await self._transaction.queues_of(ids)

    def counter(self, queue_id: int, priority: int) -> Counter:
        return self._transaction.counters.of(queue_id, priority)

    async def load_jobs(self, ids: Sequence[int]) -> list[JobRecord]:
        found: list[JobRecord] = []
        left = sorted(set(ids))
        for _ in range(_LOOKS_MAX):
            if not left:
                break
            rows = await self._transaction.select_jobs(_LOAD_JOBS, left)
            left = [row[0] for row in rows if row[STATE_AT] is None]
            found += [record_of(row) for row in rows if row[STATE_AT] is not None]
        return found

    async def select(self, name: str, /, **values: object) -> Sequence[Row]:
        [found] = await self._transaction.select(sql(name)(**values))
        return found.rows

    async def select_of(self, name: str, ids: Sequence[int]) -> Sequence[Row]:
        return await self.select(name, ids=ids) if ids else []

    async def select_jobs(self, name: str, ids: Sequence[int]) -> Sequence[Row]:
        return await self._transaction.select_jobs(sql(name), ids)

    async def change_now(self, name: str, /, **values: object) -> int:
        return await self._transaction.change_now(sql(name)(**values))

    def change(self, name: str, /, **values: object) -> None:
        self._transaction.change(sql(name)(**values))

    def save_key(self, queue_id: int, key: str, scope: int, job: JobRecord) -> None:
        """Saves a key in place of one that has ended."""
        self.given_keys.add(job.id)
        self._transaction.change(_DELETE_UNIQUE_KEY(queue_id=queue_id, key=key))
        self._insert(_SAVE_UNIQUE_KEY, [(queue_id, key.encode(), scope, job.id, job.priority, None)])

    def set_priority(self, ids: Sequence[int], priority: int, now_ms: int) -> None:
        """Changes the priority, and copies a job that is old enough for its partition to be dropped: a server that drops one copies its
        jobs without locks, and skips those that have a copy.
        """
        packed = json_ids(sorted(ids))
        for table in (b"jobs", b"kept_jobs", b"done"):
            self._transaction.change(_MOVE_ROWS(table=Sql(table), priority=priority, ids=packed))
        old = sorted([job_id for job_id in ids if job_id < kept_before(now_ms)])
        if old:
            self._transaction.change(_KEEP_MOVED_JOBS(ids=old))

    def insert(self, name: str, rows: Sequence[Sequence[object]]) -> None:
        if rows:
            self._insert(sql(name), rows)

    def _insert(self, statement: Template, rows: Sequence[Sequence[object]]) -> None:
        """Inserts the rows, in as many statements as their length requires."""
        for part in in_statements([row(line) for line in rows], self._transaction.statement_bytes_max):
            self._transaction.change(statement(rows=part))

    def for_each(self, name: str, keys: Keys) -> None:
        if name == "delete_ready" and keys:
            self._transaction.change(delete_ready(keys))
            for queue_id in {queue_id for queue_id, *_ in keys}:
                self._transaction.after_commit.append(partial(self._transaction.queue_cache.forget_ready, queue_id))
        elif keys:
            self._transaction.change(sql(name)(keys=json_rows(sorted(keys))))

    def delete(self, table: str, ids: Sequence[int]) -> None:
        if ids:
            self._transaction.change(delete_rows(table.encode(), ids))

    def enter_ready(self, jobs: Sequence[JobRecord]) -> None:
        """Inserts into `ready` in the order of the tables' keys, so that two servers lock rows in the same order."""
        self.insert("insert_ready", sorted(_ready_row(job) for job in jobs))
        future = [
            (job.run_after_ms, job.id, job.queue_id, job.priority)
            for job in jobs
            if job.counted_future and job.run_after_ms < BEHIND_MS  # no code looks for jobs behind others by their time
        ]
        self.insert("insert_future", sorted(future))
        expiries = [(job.options.expires_ms, job.id) for job in jobs if job.options.expires_ms is not None]
        self.insert("insert_expiries", expiries)
        cache = self._transaction.queue_cache
        for job in jobs:
            cache.waits_from(job.queue_id, job.priority, job.run_after_ms)
        earliest: dict[int, int] = {}
        for job in jobs:
            earliest[job.queue_id] = min(job.run_after_ms, earliest.get(job.queue_id, job.run_after_ms))
        for queue_id, run_after_ms in earliest.items():
            self._transaction.after_commit.append(partial(cache.waits_elsewhere, queue_id, run_after_ms))

    def lock_keys(self, keys: Collection[OrderingKey]) -> None:
        """Locks the keys in order, so that two servers do not wait for each other."""
        wanted = sorted({*keys} - self._locked)
        self._insert(_LOCK_ORDERING_KEYS, wanted)
        self._locked.update(wanted)

    def forget_keys(self, keys: Sequence[OrderingKey]) -> None:
        self._locked.difference_update(keys)
        for some in self._conditions(keys):
            self._transaction.change(_FORGET_ORDERING_KEYS(keys=some))

    async def last_numbers(self, keys: Collection[OrderingKey]) -> tuple[dict[OrderingKey, int], Mapping[int, Queue]]:
        found, queues = await self._select_keys(_LAST_NUMBERS, keys, _HOLD_CONFIGS)
        return {(queue_id, key.decode()): number for queue_id, key, number in found if number is not None}, queues

    def insert_ordered(self, rows: Sequence[OrderedRow]) -> None:
        self.insert("insert_ordered", rows)

    def delete_ordered(self, ids: Sequence[int]) -> None:
        self.delete("ordered", ids)

    async def select_keys(self, name: str, keys: Collection[OrderingKey]) -> tuple[list[Row], Mapping[int, Queue]]:
        return await self._select_keys(sql(name), keys, _SELECT_CONFIGS)

    async def _select_keys(
        self, statement: Template, keys: Collection[OrderingKey], of_queues: Template
    ) -> tuple[list[Row], Mapping[int, Queue]]:
        queue_ids = {queue_id for queue_id, _ in keys}
        looks = [statement(keys=some) for some in self._conditions(keys)]
        *found, configs = await self._transaction.select(*looks, of_queues(ids=sorted(queue_ids)))
        return [row for part in found for row in part.rows], _queues(queue_ids, configs.rows)

    async def first_places(self, keys: Sequence[tuple[OrderingKey, int]]) -> list[Row]:
        if not keys:
            return []
        looks = [_FIRST_PLACES(queue_id=queue_id, key=key.encode(), limit=limit) for (queue_id, key), limit in keys]
        return [row for part in await self._transaction.select(*looks) for row in part.rows]

    async def stored_queues(self, queue_ids: Collection[int]) -> Mapping[int, Queue]:
        [found] = await self._transaction.select(_SELECT_CONFIGS(ids=sorted(queue_ids)))
        return _queues(queue_ids, found.rows)

    async def held_queues(self, queue_ids: Collection[int]) -> Mapping[int, Queue]:
        [found] = await self._transaction.select(_HOLD_CONFIGS(ids=sorted(queue_ids)))
        return _queues(queue_ids, found.rows)

    def _conditions(self, keys: Collection[OrderingKey]) -> list[Sql]:
        named = [(queue_id, key.encode()) for queue_id, key in keys]
        return keys_in_statements("ordering_key", named, self._transaction.statement_bytes_max)

    def came_first(self, queue_id: int, due_ms: int) -> None:
        cache = self._transaction.queue_cache
        queue = cache.by_id.get(queue_id)
        if queue is not None:  # otherwise it was deleted elsewhere meanwhile
            self._transaction.after_commit.append(partial(cache.came_first, queue.name, due_ms))

    def jobs_deleted(self) -> None:
        """Does nothing: the highest id is read again with each lease of a slot."""

    def count_lost(self, jobs: int) -> None:
        transaction = self._transaction
        transaction.after_commit.append(partial(transaction.queue_cache.lost.count, jobs, str(transaction.endpoint)))


def _queues(queue_ids: Collection[int], rows: Sequence[Row]) -> dict[int, Queue]:
    found = {queue_id: queue_of("", config, paused=False) for queue_id, config in rows}
    return {queue_id: found.get(queue_id, Queue("")) for queue_id in queue_ids}


def _ready_row(job: JobRecord) -> tuple[int, ...]:
    flags = CHANGED | (FUTURE if job.counted_future else 0)
    return (job.queue_id, job.priority, job.run_after_ms, job.id, flags, job.body_bytes)
