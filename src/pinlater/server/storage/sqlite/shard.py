"""The shard of the SQLite store: which function executes each command, and whether on the writer or on a reader."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, TypeVar

from pinlater.domain.errors import PinLaterError, ShardConnectionFailed
from pinlater.domain.job import HandedOutJob, JobState
from pinlater.domain.queue import QueueCounts
from pinlater.domain.transitions import CUSTOM_STATUS_CHARS_MAX
from pinlater.server.storage import commands
from pinlater.server.storage.interface import WaitingBatch
from pinlater.server.storage.relational import bulk, in_hand
from pinlater.server.storage.relational import reading as relational_reading
from pinlater.server.storage.relational import samples as sample_rows
from pinlater.server.storage.relational.shard import Change, P, Read, RelationalShard, changes
from pinlater.server.storage.relational.sweeping import expire_jobs, time_out_claims
from pinlater.server.storage.sqlite import claiming, due_marks, finishing, garbage, inserting, migration, reading
from pinlater.server.storage.sqlite.checkpointer import Checkpointer
from pinlater.server.storage.sqlite.commit import FileIdentity
from pinlater.server.storage.sqlite.connection import connect, reserve_log, wait_for_locks
from pinlater.server.storage.sqlite.dialect import SqliteDialect, SqliteReader, at_once
from pinlater.server.storage.sqlite.errors import translate
from pinlater.server.storage.sqlite.lock import FileLock
from pinlater.server.storage.sqlite.queue_cache import SqliteQueueCache
from pinlater.server.storage.sqlite.readers import Readers
from pinlater.server.storage.sqlite.settings import SqliteSettings
from pinlater.server.storage.sqlite.statements import sql
from pinlater.server.storage.sqlite.transaction import Transaction
from pinlater.server.storage.sqlite.writer import Work, Works, Writer
from pinlater.server.storage.table import entry_of
from pinlater.server.storage.values import (
    Capabilities,
    JobKey,
    Purge,
    StoredSample,
    Swept,
    TimeToLive,
)
from pinlater.wire.generated.structs import JobInfo, ShardSize

T = TypeVar("T")
logger = logging.getLogger(__name__)

# SQLite's own limit is 1 GB a row.
_BODY_BYTES_MAX = 900_000_000
_QUEUES_A_COLLECTION = 200
_SAMPLES_A_TRANSACTION = 200


class _OpenShard:
    """What an open shard has."""

    def __init__(
        self, shard: str, path: Path, lock: Path, settings: SqliteSettings, monotonic: Callable[[], float]
    ) -> None:
        self.connection = connect(path, settings)
        try:
            migration.migrate(self.connection, path)
            reserve_log(path, settings)
            self.queue_cache = SqliteQueueCache(shard)
            self.connection.execute("BEGIN IMMEDIATE")
            self.queue_cache.reload(self.connection.execute)
            self.queue_cache.write(self.connection.execute)
            self.connection.execute("COMMIT")
            self.highest_id = self.queue_cache.highest_id
            self.readers = Readers(path, settings)
            wait_for_locks(self.connection, 0)  # it works on the event loop: the writer waits, and other tasks run
        except BaseException:
            self.connection.close()
            raise
        self.file_identity = FileIdentity(path, lock)
        checkpointer = Checkpointer(self.connection, path, settings)
        self.writer = Writer(
            self.connection, path, self.queue_cache, settings, monotonic, self.file_identity, checkpointer
        )

    async def close(self) -> None:
        await self.writer.close()
        await self.readers.close()
        self.connection.close()  # the last one: SQLite checkpoints and removes the log


def _relational(work: Change[P, T]) -> Callable[P, Work[T]]:
    """Returns what makes relational code the work of a writer."""

    def make(*args: P.args, **kwargs: P.kwargs) -> Work[T]:
        return Work(lambda t: at_once(work(SqliteDialect(t), *args, **kwargs)))

    return make


# The commands that wait in lanes, and the only place that names the functions which execute them: `join` and `submit` both use it.
_WORKS: Works = {
    commands.InsertJobs: inserting.insert,
    commands.ClaimJobs: claiming.claim,
    commands.FinishJobs: finishing.finish,
    commands.CheckpointJobs: _relational(in_hand.checkpoint),
    commands.ExtendClaims: _relational(in_hand.extend),
    commands.ReleaseJobs: _relational(in_hand.release),
}


def _carries_out(work_of: Callable[P, Work[T]]) -> Callable[Concatenate[SqliteShard, P], Coroutine[Any, Any, T]]:
    """Returns an operation that is a call of the writer."""

    async def operation(shard: SqliteShard, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await shard._open.writer.carry_out(work_of(*args, **kwargs))  # noqa: SLF001 it is a method of that class

    return operation


class SqliteShard(RelationalShard):
    """Implements `storage.interface.Shard` on one file. `monotonic` (seconds) only measures commits, and the age of memory."""

    capabilities = Capabilities(
        kind="sqlite",
        shared=False,
        durable=True,
        custom_status_chars_max=CUSTOM_STATUS_CHARS_MAX,
        body_bytes_max=_BODY_BYTES_MAX,
        in_order=True,
    )
    slot = 0  # no other server uses the file

    def __init__(
        self,
        path: Path,
        settings: SqliteSettings | None = None,
        name: str = "1",
        monotonic: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.name = name
        self.path = Path(path).resolve()  # SQLite names the log after the file, not after a link to it
        self._settings = settings or SqliteSettings()
        self._monotonic = monotonic
        self._lock = FileLock(self.path)
        self._opened: _OpenShard | None = None
        self._came_first: Callable[[str, int], bool] = lambda _queue, _due_ms: False

    # --- life -------------------------------------------------------------------------------------------------------------

    async def open(self, now_ms: int) -> None:
        """Locks the file, migrates its schema, starts the threads."""
        if self._opened is not None:
            return
        if not self.path.parent.is_dir():
            raise ShardConnectionFailed(f"The folder of {self.path} does not exist", retryable=False)
        self._lock.take()
        try:
            self._opened = _OpenShard(self.name, self.path, self._lock.path, self._settings, self._monotonic)
        except sqlite3.Error as error:
            self._lock.drop()
            raise translate(error, self.path) from error
        except BaseException:
            self._lock.drop()
            raise
        self._opened.queue_cache.came_first = self._came_first
        logger.info("store %s: opened with SQLite %s", self.path, sqlite3.sqlite_version)

    async def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            await asyncio.shield(opened.close())
        self._lock.drop()

    async def ping(self, now_ms: int | None = None) -> None:
        """A read of the file; after a failed transaction, a write."""
        opened = self._open
        opened.file_identity.check()
        if opened.writer.failed:
            await opened.writer.carry_out(
                Work(lambda t: t.execute(sql("save_meta"), ("probe", str(t.queue_cache.highest_id))))
            )
        else:
            opened.readers.quick(reading.list_first)

    async def size(self) -> ShardSize:
        """The lengths of the file and of its log."""
        return ShardSize(*self._open.file_identity.lengths())

    def on_came_first(self, tell: Callable[[str, int], bool]) -> None:
        self._came_first = tell
        if self._opened is not None:
            self._opened.queue_cache.came_first = tell

    @property
    def highest_id(self) -> int:
        return self._open.highest_id

    def figures(self) -> Mapping[str, float]:
        if self._opened is None:
            return {}
        queue_cache = self._opened.queue_cache
        return {
            "transactions": self._opened.writer.commits,
            "claims_from_memory": queue_cache.claims,
            "jobs_lost": queue_cache.lost.jobs,
        }

    @property
    def commits(self) -> int:
        """How many transactions changed something since the shard was opened."""
        return self._open.writer.commits

    async def _change(self, work: Change[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs relational code as one call of the writer."""
        return await self._open.writer.carry_out(_relational(work)(*args, **kwargs))

    async def _look_up(self, work: Read[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._open.readers.quick(lambda c: at_once(work(SqliteReader(c, self.name), *args, **kwargs)))

    async def _walk(self, work: Read[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._open.readers.long(lambda c: at_once(work(SqliteReader(c, self.name), *args, **kwargs)))

    def join(self, batch: WaitingBatch) -> None:
        """Executes the waiting calls of a lane: its commands by `_WORKS`, as `submit` does."""
        if self._opened is None:
            raise self._not_open()
        self._opened.writer.join(batch, _WORKS)

    @property
    def _open(self) -> _OpenShard:
        if self._opened is None:
            raise self._not_open()
        return self._opened

    def _not_open(self) -> ShardConnectionFailed:
        return ShardConnectionFailed(f"{self.path} is not open")

    # --- bulk ---------------------------------------------------------------------------------------------------------------

    async def _purge(self, order: Purge) -> int | PinLaterError:
        opened = self._open
        if order.state is not JobState.IN_PROGRESS:
            return await self._change(bulk.purge, order)
        return await self._purge_claims(opened, order)

    async def _purge_claims(self, opened: _OpenShard, order: Purge) -> int | PinLaterError:
        """Deletes the oldest claims of one queue; a reader thread finds them by a scan of all claims. Skips a claim that ends
        before the delete and looks for the next one, so that fewer than the limit means that there are no more.
        """
        done = 0
        while True:
            wanted = order._replace(limit=order.limit - done)
            found = await opened.readers.long(partial(reading.oldest_claims, order=wanted))
            if isinstance(found, PinLaterError):
                return done or found
            deleted = await self._change(bulk.delete_named, found, order.state)
            done += deleted
            if not deleted or done >= order.limit or len(found) < wanted.limit:
                return done

    # --- reading ------------------------------------------------------------------------------------------------------------

    async def _peek(
        self, queue: str, limit: int, now_ms: int, max_bytes: int
    ) -> Sequence[HandedOutJob] | PinLaterError:
        return await self._open.readers.long(lambda c: reading.peek(c, queue, limit, now_ms, max_bytes))

    async def _lookup(self, keys: Sequence[JobKey], bodies: bool) -> list[JobInfo | None]:
        if len(keys) <= self._settings.lookup_inline_max:
            return await self._look_up(relational_reading.lookup, keys, bodies)
        return await self._walk(relational_reading.lookup, keys, bodies)

    async def _count(self, queues: Sequence[str] | None = None) -> Sequence[QueueCounts]:
        opened = self._open
        if queues is None:
            counts, miscounted = await opened.readers.long(reading.all_counts)
            if miscounted:
                await opened.writer.carry_out(Work(lambda t: t.queue_cache.recount_named(t.execute, miscounted)))
            return counts
        return await self._look_up(relational_reading.counts, queues)

    # --- maintenance: costs no query if there is nothing to do ------------------------------------------------------------------

    async def _advance_due(self, now_ms: int, limit: int) -> int:
        opened = self._open
        if limit <= 0 or not due_marks.advance_wanted(opened.queue_cache, now_ms):
            return 0
        return await opened.writer.carry_out(Work(lambda t: due_marks.advance_due(t, now_ms, limit)))

    async def _time_out_claims(self, now_ms: int, limit: int, quarantine_after: int = 0) -> Sequence[Swept]:
        queues = self._open.queue_cache.queues.values()
        if limit <= 0 or not any(counter.in_progress for queue in queues for counter in queue.counters.values()):
            return []
        return await self._change(time_out_claims, now_ms, limit, quarantine_after)

    async def _expire(self, now_ms: int, limit: int) -> Sequence[Swept]:
        opened = self._open
        if limit <= 0 or opened.queue_cache.first_expiry_ms >= now_ms:
            return []

        def expire(transaction: Transaction) -> list[Swept]:
            swept = at_once(expire_jobs(SqliteDialect(transaction), now_ms, limit))
            transaction.queue_cache.reload_expiry(transaction.execute)
            return swept

        return await opened.writer.carry_out(Work(expire))

    async def _collect_garbage(self, ttls: Sequence[TimeToLive], now_ms: int, limit: int) -> Sequence[Swept]:
        """Collects garbage in a transaction for each part of the queues: reading thousands of them would block the loop."""
        opened = self._open
        if limit <= 0 or not garbage.collect_wanted(opened.queue_cache, now_ms):
            return []
        swept: list[Swept] = []
        left = limit
        wanted = garbage.with_finished(opened.queue_cache, ttls)
        for start in range(0, len(wanted) or 1, _QUEUES_A_COLLECTION):
            part = wanted[start : start + _QUEUES_A_COLLECTION]
            collect = partial(garbage.collect_garbage, ttls=part, now_ms=now_ms, limit=left)
            found: list[Swept] = await opened.writer.carry_out(Work(collect))
            swept += found
            left -= sum(row.deleted_succeeded + row.deleted_failed + row.freed for row in found)
            if left <= 0:
                break
        return swept

    # --- history ----------------------------------------------------------------------------------------------------------------

    async def _save_samples(self, samples: Sequence[StoredSample]) -> None:
        for start in range(0, len(samples), _SAMPLES_A_TRANSACTION):
            await self._change(sample_rows.save, samples[start : start + _SAMPLES_A_TRANSACTION])

    table = (
        RelationalShard.table
        | {kind: _carries_out(work_of) for kind, work_of in _WORKS.items()}
        | dict(
            [
                entry_of(commands.PurgeJobs)(_purge),
                entry_of(commands.PeekJobs)(_peek),
                entry_of(commands.LookupJobs)(_lookup),
                entry_of(commands.CountJobs)(_count),
                entry_of(commands.AdvanceDue)(_advance_due),
                entry_of(commands.TimeOutClaims)(_time_out_claims),
                entry_of(commands.ExpireJobs)(_expire),
                entry_of(commands.CollectGarbage)(_collect_garbage),
                entry_of(commands.SaveSamples)(_save_samples),
                entry_of(commands.TrimSamples)(changes(sample_rows.trim)),
            ]
        )
    )
