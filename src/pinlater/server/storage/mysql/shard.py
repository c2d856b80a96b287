"""The MySQL store's shard: one database. Each operation chooses the statements, and the writer or reader that runs them.

Inserts, claims and ends of attempts each have a connection of their own, so that none waits for another's disk; all other changes share a
fourth. More writing connections would make the shard slower, not faster.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from asyncmy import errors as driver

from pinlater.domain.errors import OutcomeUnknown, PinLaterError, ShardRefused
from pinlater.domain.ids import SLOTS
from pinlater.domain.job import HandedOutJob
from pinlater.domain.queue import Home, Queue, QueueCounts, queue_of
from pinlater.domain.transitions import CUSTOM_STATUS_CHARS_MAX
from pinlater.server.storage import commands
from pinlater.server.storage.connections import WRITERS, Connections, DatabaseConnectionLost
from pinlater.server.storage.mysql import claiming, due_jobs, finishing, garbage, inserting, reading
from pinlater.server.storage.mysql import samples as sample_rows
from pinlater.server.storage.mysql.change_poller import MysqlChangePoller
from pinlater.server.storage.mysql.connection import MysqlConnection, connect
from pinlater.server.storage.mysql.dialect import MysqlDialect, MysqlReader
from pinlater.server.storage.mysql.errors import is_ours, translate
from pinlater.server.storage.mysql.freshness import Freshness
from pinlater.server.storage.mysql.membership import Membership
from pinlater.server.storage.mysql.partition_schedule import PartitionSchedule
from pinlater.server.storage.mysql.partitions import Partitions
from pinlater.server.storage.mysql.preparing import ALTER_MS, prepare
from pinlater.server.storage.mysql.queue_cache import MysqlQueueCache
from pinlater.server.storage.mysql.readers import Readers
from pinlater.server.storage.mysql.ready_jobs import ReadyBytes
from pinlater.server.storage.mysql.recounting import recount
from pinlater.server.storage.mysql.settings import MysqlEndpoint, MysqlSettings
from pinlater.server.storage.mysql.statements import body_bytes_max, sql
from pinlater.server.storage.mysql.stats import Stats
from pinlater.server.storage.mysql.transaction import Writer
from pinlater.server.storage.relational import bulk, in_hand, sweeping
from pinlater.server.storage.relational import queues as queue_rules
from pinlater.server.storage.relational import reading as relational_reading
from pinlater.server.storage.relational.shard import Change, P, Read, RelationalShard
from pinlater.server.storage.request_keys import InsertAge
from pinlater.server.storage.shared_shard import LeasedShard
from pinlater.server.storage.snapshots import MaintenanceSnapshot
from pinlater.server.storage.table import entry_of
from pinlater.server.storage.values import (
    Acked,
    Capabilities,
    Claimed,
    ClaimOrder,
    Inserted,
    InsertRequest,
    JobAck,
    JobCheckpoint,
    StoredSample,
    Swept,
    TimeToLive,
)
from pinlater.wire.generated.structs import ShardSize

T = TypeVar("T")
logger = logging.getLogger(__name__)

_HASTY_LOCK_WAIT_MS = 1_000
# A claim that waits for a lock could have found other jobs meanwhile.
_CLAIMS_LOCK_WAIT_MS = 1_000


class MysqlShard(LeasedShard[Readers, Writer, MysqlConnection], RelationalShard):
    """Implements `storage.interface.SharedShard` on one database. `monotonic` in seconds."""

    # Each connection for reading brings newer knowledge about the longest body: it is the server's setting at that time.
    capabilities = Capabilities(
        kind="mysql",
        shared=True,
        durable=True,
        custom_status_chars_max=CUSTOM_STATUS_CHARS_MAX,
        body_bytes_bound="its database's max_allowed_packet, which must hold more than two such bodies",
    )

    endpoint: MysqlEndpoint
    stats: Stats
    _membership: Membership

    def __init__(
        self,
        endpoint: MysqlEndpoint,
        settings: MysqlSettings | None = None,
        name: str = "1",
        monotonic: Callable[[], float] = time.monotonic,
        ready_bytes: ReadyBytes | None = None,
    ) -> None:
        """`ready_bytes`: shared by the shards of a server; None: its own."""
        self.name = name
        self.endpoint = endpoint
        self.stats = Stats()
        self._settings = settings or MysqlSettings()
        self._queue_cache = MysqlQueueCache(
            name, monotonic, self._settings.priority_levels, ready_bytes or ReadyBytes(self._settings.ready_bytes_max)
        )
        self._membership = Membership(self._settings.lease_ms, WRITERS)
        connections = Connections(
            Readers(self._connect_reader, endpoint, self._settings, self.stats),
            inserting=self._new_writer(),
            claiming=self._new_writer(self._connect_claimer),
            finishing=self._new_writer(),
            other=self._new_writer(),
        )
        super().__init__(connections, monotonic)
        self._freshness = Freshness(endpoint, self._settings.lease_ms, self._committed, monotonic)
        self._memory = garbage.GarbageMemory()
        self._partitions = Partitions(self._connect_hasty, endpoint.database, self._settings.partition_hours)
        self._partition_schedule = PartitionSchedule(self.name, self.keep_partitions, self._make_partitions_ahead)
        self._unknown_claims: set[str] = set()  # tokens of claims with an unknown outcome
        self._changes = MysqlChangePoller(
            self._connections.readers, self._queue_cache, self._refresh, self._own_writers
        )

    # --- life -------------------------------------------------------------------------------------------------------------

    async def open(self, now_ms: int) -> None:
        """Makes or migrates the database, takes a slot, reads the queues."""
        if self._is_open:
            return
        try:
            await prepare(self.endpoint, self._settings, self.stats, self.name)
            await self._join()
            await self._refresh()
            await self._partition_schedule.begin(now_ms)
        except (DatabaseConnectionLost, driver.MySQLError) as error:
            if is_ours(error):
                raise translate(error, self.endpoint) from error
            raise
        self._is_open = True

    async def _join(self) -> None:
        """Takes a slot. The previous server of the slot makes no more ids from then on, so the highest id is read afterwards."""
        joiner = self._new_writer()
        # The slot decides the writers' numbers; until there is one, this writer has a number that no other writer uses.
        await joiner.become_unnumbered(WRITERS * SLOTS + self._membership.incarnation[0])
        try:
            try:
                slot, first = await joiner.carry_out(self._membership.join)
            finally:
                await joiner.close()
            self._highest_id = max(self._highest_id, await self._connections.readers.read(reading.highest_id))
        except BaseException:
            self._membership.lost.discard(
                self.slot
            )  # as long as there is no other slot, this one may turn out to be kept
            raise
        self._membership.slot = slot
        for index, writer in enumerate(self._connections.writers):
            await writer.become(slot * WRITERS + index, first)

    async def _leave_slot(self) -> None:
        await self._connections.other.carry_out(self._membership.leave)

    async def _ask(self, work: Callable[[MysqlConnection], Awaitable[T]]) -> T:
        return await self._opened.readers.read(work)

    async def close(self) -> None:
        await super().close()
        self._queue_cache.close()

    async def size(self) -> ShardSize:
        return await self._opened.readers.read(reading.size)

    def on_came_first(self, tell: Callable[[str, int], bool]) -> None:
        self._queue_cache.came_first = tell

    def figures(self) -> Mapping[str, float]:
        lost = {"jobs_lost": self._queue_cache.lost.jobs}
        return {**self.stats.figures(), **self._queue_cache.ready_memory.figures(), **lost}

    def _own_writers(self) -> tuple[int, int]:
        """The numbers of this server's first and last writer."""
        return self.slot * WRITERS, (self.slot + 1) * WRITERS - 1

    async def _change(self, work: Change[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs relational code as one transaction of the writer, for everything except the hot paths."""
        return await self._opened.other.carry_out(lambda t: work(MysqlDialect(t), *args, **kwargs))

    async def _look_up(self, work: Read[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._opened.readers.read(lambda c: work(MysqlReader(c, self.name), *args, **kwargs))

    _walk = _look_up

    def _new_writer(self, connect_it: Callable[[], Awaitable[MysqlConnection]] | None = None) -> Writer:
        return Writer(
            connect_it or self._connect_writer,
            self.endpoint,
            self._queue_cache,
            self._refresh,
            self._rejoin,
            self._settings,
            self.stats,
        )

    def _committed(self) -> Mapping[int, int]:
        """Returns the number that is known to be committed by each writer of the slot, once there is one."""
        return {writer.number: writer.committed for writer in self._connections.writers if writer.committed}

    async def _connect(self, settings: MysqlSettings, *, autocommit: bool) -> MysqlConnection:
        connection = await connect(self.endpoint, settings, autocommit=autocommit, stats=self.stats)
        try:
            await self._freshness.check(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    async def _connect_writer(self) -> MysqlConnection:
        return await self._connect(self._settings, autocommit=False)

    async def _connect_claimer(self) -> MysqlConnection:
        settings = replace(self._settings, lock_wait_ms=min(self._settings.lock_wait_ms, _CLAIMS_LOCK_WAIT_MS))
        return await self._connect(settings, autocommit=False)

    async def _connect_reader(self) -> MysqlConnection:
        connection = await self._connect(self._settings, autocommit=True)
        self.capabilities = self.capabilities._replace(body_bytes_max=body_bytes_max(connection.packet_bytes_max))
        return connection

    async def _connect_hasty(self) -> MysqlConnection:
        """Opens a connection for changes of tables in use, which may take long but must not wait long: all other transactions would wait
        behind them."""
        settings = replace(self._settings, statement_timeout_ms=ALTER_MS, lock_wait_ms=_HASTY_LOCK_WAIT_MS)
        return await self._connect(settings, autocommit=True)

    async def _refresh(self) -> None:
        """Refreshes the queue cache."""
        look = self._queue_cache.begin_look()
        found, used = await self._connections.readers.read(
            lambda c: c.run([sql("list_queues")(), sql("list_priorities")()])
        )
        self._queue_cache.replace(
            look,
            [(line[0], queue_of(line[1].decode(), line[3], bool(line[2]))) for line in found.rows],
            [(queue_id, priority) for queue_id, priority in used.rows],
        )

    # --- queues -----------------------------------------------------------------------------------------------------------

    async def _merge_queues(self, queues: Sequence[Queue], now_ms: int) -> Sequence[Queue]:
        if any(queue.in_order for queue in queues) and (refusal := await self._admit_order()) is not None:
            raise ShardRefused(refusal.message)
        return await self._change(queue_rules.merge, queues, now_ms)

    async def _admit_order(self) -> PinLaterError | None:
        """The refusal of a queue with ordering keys, if there is one."""
        if self._membership.keeps_order:
            return None
        return await self._opened.other.carry_out(self._membership.admit_order)

    async def _move_home(self, queue: str, known: Home, home: Home) -> Home | PinLaterError:
        refusal = await self._admit_order()
        return await self._change(queue_rules.move_home, queue, known, home) if refusal is None else refusal

    async def _delete_queues(self, names: Sequence[str], deleted_ms: int = 0, now_ms: int = 0) -> int:
        newest_ms = await self._change(queue_rules.delete, names, deleted_ms, now_ms)
        await self._refresh()
        return newest_ms

    async def _list_queues(self) -> list[Queue]:
        look = self._queue_cache.begin_look()
        found = await self._look_up(relational_reading.queues_with_ids)
        self._queue_cache.replace(look, found)
        return [queue for _, queue in found]

    # --- the three hot paths ------------------------------------------------------------------------------------------------

    async def _insert(self, requests: Sequence[InsertRequest], now_ms: int) -> Sequence[Inserted | PinLaterError]:
        membership, age = self._membership, InsertAge()
        return await self._opened.inserting.carry_out(lambda t: inserting.insert(t, requests, now_ms, age, membership))

    async def _claim(self, orders: Sequence[ClaimOrder], now_ms: int) -> Sequence[Claimed | PinLaterError]:
        try:
            claimed = await self._opened.claiming.carry_out(lambda t: claiming.claim(t, orders, now_ms))
        except (OutcomeUnknown, asyncio.CancelledError):
            self._unknown_claims.update(call.holder.token for order in orders for call in order.calls)
            raise
        if claimed.lost:
            await self._delete_lost(claimed.lost)
        return claimed.answers

    async def _delete_lost(self, ids: Sequence[int]) -> None:
        """Deletes the claims of jobs whose own rows are gone. If this fails, the sweep does it at their deadline."""
        try:
            await self._change(bulk.clear_lost, ids)
        except PinLaterError as error:
            logger.warning("%s: the rows of lost jobs can't be deleted yet: %s", self.endpoint, error)

    async def _finish(self, acks: Sequence[JobAck], now_ms: int) -> Sequence[Acked]:
        return await self._opened.finishing.carry_out(lambda t: finishing.finish(t, acks, now_ms))

    async def _list_changed_queues(self) -> Sequence[str]:
        changed = await self._changes.changed((await self._snapshots.latest()).changes)
        given_back, self._given_back = self._given_back, set()
        return list(given_back | changed)

    # --- claimed jobs -------------------------------------------------------------------------------------------------------

    async def _checkpoint(self, checkpoints: Sequence[JobCheckpoint], now_ms: int) -> Sequence[Acked | PinLaterError]:
        return await self._opened.other.carry_out(lambda t: finishing.checkpoint(t, checkpoints, now_ms))

    # --- reading ------------------------------------------------------------------------------------------------------------

    async def _peek(
        self, queue: str, limit: int, now_ms: int, max_bytes: int
    ) -> Sequence[HandedOutJob] | PinLaterError:
        return await self._opened.readers.read(
            lambda c: reading.peek(MysqlReader(c, self.name), queue, limit, now_ms, max_bytes)
        )

    async def _count(self, queues: Sequence[str] | None = None) -> Sequence[QueueCounts]:
        if queues is not None:
            return await self._opened.readers.read(lambda c: reading.counts(MysqlReader(c, self.name), queues))
        counts, miscounted = await self._opened.readers.read(reading.all_counts)
        if miscounted:
            await self._opened.other.carry_out(lambda t: recount(t, miscounted))
        return counts

    # --- maintenance --------------------------------------------------------------------------------------------------------------

    async def _look(self) -> MaintenanceSnapshot:
        first, last = self._own_writers()
        return await self._opened.readers.read(lambda c: reading.maintenance_snapshot(c, first, last))

    async def _advance_due(self, now_ms: int, limit: int) -> int:
        if limit <= 0 or (await self._snapshots.latest()).first_future_ms > now_ms:
            return 0
        return await self._opened.other.carry_out(lambda t: due_jobs.advance_due(t, now_ms, limit))

    async def _time_out_claims(self, now_ms: int, limit: int, quarantine_after: int = 0) -> Sequence[Swept]:
        if self._unknown_claims:
            await self._give_back_unknown_claims(now_ms)
        if limit <= 0 or (await self._snapshots.latest()).first_deadline_ms >= now_ms:
            return []
        return await self._change(sweeping.time_out_claims, now_ms, limit, quarantine_after)

    async def _give_back_unknown_claims(self, now_ms: int) -> None:
        """Gives back claims with an unknown outcome, whose callers were told that they failed: no worker has these jobs.

        On the connection of the writer that claims: it ends its lost connection before it does anything else, so that no COMMIT comes
        after this read.
        """
        tokens = frozenset(self._unknown_claims)
        queues = await self._opened.claiming.carry_out(
            lambda t: in_hand.release_tokens(MysqlDialect(t), tokens, now_ms)
        )
        self._unknown_claims -= tokens
        self._given_back |= queues

    async def _expire(self, now_ms: int, limit: int) -> Sequence[Swept]:
        if limit <= 0 or (await self._snapshots.latest()).first_expiry_ms >= now_ms:
            return []
        return await self._change(sweeping.expire_jobs, now_ms, limit)

    async def _collect_garbage(self, ttls: Sequence[TimeToLive], now_ms: int, limit: int) -> Sequence[Swept]:
        if limit <= 0:
            return []
        state, snapshot = await self._snapshots.state(), await self._snapshots.latest()
        mark = (self.stats.changes, snapshot.changes)
        swept: list[Swept] = []
        if garbage.collect_wanted(self._memory, snapshot, mark, ttls, now_ms):
            swept = await self._opened.other.carry_out(
                lambda t: garbage.collect_garbage(t, self._memory, snapshot, ttls, now_ms, limit)
            )
            all_seen = not swept and not self._memory.left_out
            self._memory.finished_mark = (self.stats.changes, mark[1]) if all_seen else None
        # While there is always garbage, and while there is never any.
        await self._partition_schedule.keep_if_due(now_ms, state)
        return swept

    async def keep_partitions(self, now_ms: int) -> list[str]:
        """Creates partitions for the time to come and drops those that are over. Returns the names of the dropped ones."""
        return await self._change_partitions(self._partitions.keep(now_ms))

    async def _make_partitions_ahead(self, now_ms: int) -> None:
        await self._change_partitions(self._partitions.make_ahead(now_ms))

    async def _change_partitions(self, change: Awaitable[T]) -> T:
        try:
            return await change
        except (DatabaseConnectionLost, driver.MySQLError) as error:
            raise translate(error, self.endpoint) from error

    # --- history ------------------------------------------------------------------------------------------------------------------

    async def _save_samples(self, samples: Sequence[StoredSample]) -> None:
        if samples:
            await self._opened.readers.read(lambda c: sample_rows.save(c, samples))

    async def _trim_samples(self, step_s: int, before_ms: int, limit: int) -> int:
        return await self._opened.readers.read(lambda c: sample_rows.trim(c, step_s, before_ms, limit))

    table = (
        RelationalShard.table
        | LeasedShard.table
        | dict(
            [
                entry_of(commands.InsertJobs)(_insert),
                entry_of(commands.ClaimJobs)(_claim),
                entry_of(commands.FinishJobs)(_finish),
                entry_of(commands.CheckpointJobs)(_checkpoint),
                entry_of(commands.PeekJobs)(_peek),
                entry_of(commands.CountJobs)(_count),
                entry_of(commands.MergeQueues)(_merge_queues),
                entry_of(commands.MoveHome)(_move_home),
                entry_of(commands.DeleteQueues)(_delete_queues),
                entry_of(commands.ListQueues)(_list_queues),
                entry_of(commands.AdvanceDue)(_advance_due),
                entry_of(commands.TimeOutClaims)(_time_out_claims),
                entry_of(commands.ExpireJobs)(_expire),
                entry_of(commands.CollectGarbage)(_collect_garbage),
                entry_of(commands.SaveSamples)(_save_samples),
                entry_of(commands.TrimSamples)(_trim_samples),
                entry_of(commands.ListChangedQueues)(_list_changed_queues),
            ]
        )
    )
