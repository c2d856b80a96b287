"""The Redis store's shard: all keys of one hash slot. Its table names the module that executes each command, with a writer or a reader.

Inserts, claims and ends of attempts each have a connection of their own, so that a large answer of one delays no other; all other changes
share a fourth.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from pinlater.domain.errors import OutcomeUnknown, PinLaterError, ShardRefused, StoreFull
from pinlater.domain.queue import Home, Queue, QueueConfig, QueueCounts
from pinlater.domain.transitions import REDIS_STATUS
from pinlater.server.storage import commands
from pinlater.server.storage.connections import WRITERS, Connections
from pinlater.server.storage.redis import (
    bulk,
    claiming,
    copies,
    failures,
    finishing,
    inserting,
    moving,
    reading,
    sweeping,
    trail,
)
from pinlater.server.storage.redis import queues as queue_rows
from pinlater.server.storage.redis import samples as sample_rows
from pinlater.server.storage.redis.access import Access, conflict
from pinlater.server.storage.redis.arguments import encode
from pinlater.server.storage.redis.change_poller import RedisChangePoller
from pinlater.server.storage.redis.connection import Address, Connection, connect
from pinlater.server.storage.redis.errors import StaleQueues
from pinlater.server.storage.redis.failover import MasterWatch
from pinlater.server.storage.redis.garbage import OldestFinished
from pinlater.server.storage.redis.index_repair import IndexRepair
from pinlater.server.storage.redis.keys import front_of
from pinlater.server.storage.redis.membership import Membership, Run
from pinlater.server.storage.redis.migration import migrate
from pinlater.server.storage.redis.nothing_due import NothingDue
from pinlater.server.storage.redis.queue_cache import RedisQueueCache
from pinlater.server.storage.redis.readers import Readers
from pinlater.server.storage.redis.server_requirements import Memory, check_server, memory_size
from pinlater.server.storage.redis.settings import RedisEndpoint, RedisSettings
from pinlater.server.storage.redis.stats import Stats
from pinlater.server.storage.redis.writer import Writer
from pinlater.server.storage.request_keys import InsertAge
from pinlater.server.storage.shared_shard import LeasedShard
from pinlater.server.storage.snapshots import NEVER_MS, MaintenanceSnapshot
from pinlater.server.storage.table import entry_of
from pinlater.server.storage.values import (
    COPIES_STEP_S,
    Acked,
    Capabilities,
    Claimed,
    ClaimOrder,
    Inserted,
    InsertRequest,
    JobAck,
    Restored,
    RestoreOrder,
    StoredFailures,
    Swept,
    TimeToLive,
    TrailEntry,
)
from pinlater.wire.generated.structs import ShardSize

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_STALE_CACHE_TRIES = 5
# A string of Redis has at most 512 MiB (proto-max-bulk-len), and a request is one.
_BODY_BYTES_MAX = 256 * 1024 * 1024


def _of_jobs(items: Sequence[Any]) -> Sequence[str]:
    """The queues of jobs that are named by keys, or by what has keys."""
    return [getattr(item, "key", item).queue for item in items]


def _of_queue(order: Any) -> Sequence[str]:
    """The queue that is named, or that an order has."""
    return [order if isinstance(order, str) else order.queue]


def _on(
    queues_of: Callable[[Any], Sequence[str]],
    work: Callable[Concatenate[Access, P], Awaitable[T]],
    *,
    wakes: bool = False,
) -> Callable[Concatenate[RedisShard, P], Coroutine[Any, Any, T]]:
    """Returns an operation on the queues that the first field of its command names. `wakes`: afterwards jobs of these queues may be due."""

    async def operation(shard: RedisShard, /, *args: P.args, **kwargs: P.kwargs) -> T:
        names = queues_of(args[0])
        with shard._nothing_due.change(names) if wakes else contextlib.nullcontext():  # noqa: SLF001 it is a method of that class
            return await shard._change(names, lambda access: work(access, *args, **kwargs))  # noqa: SLF001

    return operation


def _reads(
    work: Callable[Concatenate[Readers, P], Awaitable[T]],
) -> Callable[Concatenate[RedisShard, P], Coroutine[Any, Any, T]]:
    """Returns an operation of the readers."""

    async def operation(shard: RedisShard, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await work(shard._opened.readers, *args, **kwargs)  # noqa: SLF001

    return operation


class RedisShard(LeasedShard[Readers, Writer, Run]):
    """Implements `storage.interface.SharedShard` on the keys of one hash tag. `monotonic` in seconds."""

    capabilities = Capabilities(
        kind="redis",
        shared=True,
        durable=True,
        custom_status_chars_max=REDIS_STATUS.chars_max,
        ack_replaces_status=REDIS_STATUS.ack_replaces,
        body_bytes_max=_BODY_BYTES_MAX,
        body_bytes_bound="what fits into one command of Redis",
    )

    endpoint: RedisEndpoint
    stats: Stats
    _membership: Membership

    def __init__(
        self,
        endpoint: RedisEndpoint,
        settings: RedisSettings | None = None,
        name: str = "1",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.endpoint = endpoint
        self.stats = Stats()
        self._settings = settings or RedisSettings()
        self._front = front_of(self._settings.tag_of(name))
        self._queue_cache = RedisQueueCache()
        self._membership = Membership(self._settings.lease_ms, WRITERS)
        connections = Connections(
            Readers(self._connect, endpoint, self._settings, self.stats),
            *[
                Writer(self._connect, endpoint, self._rejoin, self._settings, self.stats, WRITERS)
                for _ in range(WRITERS)
            ],
        )
        super().__init__(connections, monotonic)
        self._master = MasterWatch(endpoint, self._settings, self._leave, monotonic)
        self._memory = Memory(self._settings.memory_used_max_percent, monotonic)
        self._unknown_claims: list[tuple[bytes, str]] = []  # claims of unknown outcome: no worker has their jobs
        self._unsure = False  # whether there may be some
        self._nothing_due = NothingDue(lambda: self._snapshots.others())
        self._tell_came_first: Callable[[str, int], object] = lambda _queue, _due_ms: None
        self._queue_cache.came_first = self._came_first
        self._finished = OldestFinished()
        self._repair = IndexRepair()
        self._changes = RedisChangePoller(self._queue_cache, self._refresh, WRITERS)
        self._due_by_ms = 0

    # --- life -------------------------------------------------------------------------------------------------------------

    async def open(self, now_ms: int) -> None:
        """Leases a slot, and fills the queue cache."""
        if self._is_open:
            return
        await check_server(self._connections.readers, self.endpoint)
        await self._join()
        await self._refresh()
        self._due_by_ms = now_ms
        self._is_open = True
        try:
            await self._look()
        except BaseException:
            self._is_open = False
            raise

    async def _join(self) -> None:
        await migrate(self._connections.readers)
        slot, top = await self._membership.join(self._connections.readers.run)
        self._highest_id = max(self._highest_id, top)
        self._membership.slot = slot
        for index, writer in enumerate(self._connections.writers):
            await writer.become(slot * WRITERS + index, self._membership.lease)

    async def _leave_slot(self) -> None:
        await self._membership.leave(self._connections.readers.run)

    async def _ask(self, work: Callable[[Run], Awaitable[T]]) -> T:
        return await work(self._opened.readers.run)

    async def close(self) -> None:
        await self._master.close()
        await super().close()

    async def ping(self, now_ms: int | None = None) -> None:
        self._check_open()
        self._master.look()
        await super().ping(now_ms)

    def _slot_is_lost(self, slot: int) -> None:
        self.stats.slots_lost += slot == self.slot

    async def size(self) -> ShardSize:
        return await memory_size(self._opened.readers)

    def on_came_first(self, tell: Callable[[str, int], bool]) -> None:
        self._tell_came_first = tell

    def _came_first(self, queue: str, due_ms: int) -> None:
        self._nothing_due.changed([queue])
        self._tell_came_first(queue, due_ms)

    def figures(self) -> Mapping[str, float]:
        return {**self.stats.figures(), "claims_from_memory": self._nothing_due.claims}

    async def _connect(self) -> Connection:
        return await connect(self.endpoint, self._front, self._settings, self.stats)

    def _leave(self, address: Address) -> int:
        left = self._connections.readers.leave(address) + sum(
            writer.leave(address) for writer in self._connections.writers
        )
        if left:  # the data of the new master may be older
            self._snapshots.forget()
            self._nothing_due.changed(())
        return left

    async def _refresh(self) -> None:
        """Reads all queues into the queue cache."""
        found = await reading.list_queues(self._connections.readers)
        self._queue_cache.replace([(queue.name, number) for number, queue in found])

    async def _change(self, names: Sequence[str], work: Callable[[Access], Awaitable[T]]) -> T:
        return await self._with_queues(self._opened.other, names, work)

    async def _with_queues(self, writer: Writer, names: Sequence[str], work: Callable[[Access], Awaitable[T]]) -> T:
        """Refreshes the queue cache if a name is not in it, or if the id of a queue in it has changed."""
        for _ in range(_STALE_CACHE_TRIES):
            queues = await self._queues_named(names)
            try:
                return await work(
                    Access(
                        self.name, writer, self._opened.readers, self._queue_cache, queues, self.stats, self._refresh
                    )
                )
            except StaleQueues:
                await self._refresh()
        raise conflict()

    async def _queues_named(self, names: Sequence[str]) -> dict[str, bytes]:
        """The ids of the existing queues among these; queries Redis for those that are not in the queue cache."""
        known = self._queue_cache.queues
        named = dict.fromkeys(names)  # many requests name one queue
        queues = {name: known[name] for name in named if name in known}
        unknown = sorted([name for name in named if name not in queues])
        if unknown:
            found = list(zip(unknown, await self._opened.readers.run("find_queues", encode(unknown)), strict=True))
            self._queue_cache.learn(found)
            queues.update((name, queue) for name, queue in found if queue)
        return queues

    # --- queues -----------------------------------------------------------------------------------------------------------

    async def _merge_queues(self, queues: Sequence[Queue], now_ms: int) -> Sequence[Queue]:
        if any(queue.in_order for queue in queues) and (refusal := await self._admit_order()) is not None:
            raise ShardRefused(refusal.message)
        with self._nothing_due.change([queue.name for queue in queues]):
            return await queue_rows.merge(
                self._opened.other, self._opened.readers, self._queue_cache, self.name, queues
            )

    async def _admit_order(self) -> PinLaterError | None:
        """The refusal of a queue with ordering keys, if there is one."""
        if self._membership.keeps_order:
            return None
        return await self._membership.admit_order(self._opened.readers.run, self._opened.readers.endpoint)

    async def _move_home(self, queue: str, known: Home, home: Home) -> Home | PinLaterError:
        refusal = await self._admit_order()
        if refusal is not None:
            return refusal
        opened = self._opened
        return await queue_rows.move_home(opened.other, opened.readers, self.name, queue, known, home)

    async def _delete_queues(self, names: Sequence[str], deleted_ms: int = 0, now_ms: int = 0) -> int:
        with self._nothing_due.change(names):
            newest_ms = await queue_rows.delete(self._opened.other, names, deleted_ms, now_ms)
        await self._refresh()
        return newest_ms

    async def _list_queues(self) -> Sequence[Queue]:
        found = await reading.list_queues(self._opened.readers)
        self._queue_cache.replace([(queue.name, number) for number, queue in found])
        return [queue for _, queue in found]

    async def _configure_queue(
        self, name: str, config: QueueConfig | None = None, paused: bool | None = None, version: str = "", by: str = ""
    ) -> None:
        with self._nothing_due.change([name]):
            await queue_rows.configure(
                self._opened.other, self._opened.readers, self.name, name, config, paused, version, by
            )

    # --- the three hot paths ------------------------------------------------------------------------------------------------

    async def _insert(self, requests: Sequence[InsertRequest], now_ms: int) -> Sequence[Inserted | PinLaterError]:
        await self._check_space()
        membership, age = self._membership, InsertAge()
        names = [request.queue for request in requests]
        with self._nothing_due.change(names):
            return await self._with_queues(
                self._opened.inserting,
                names,
                lambda access: inserting.insert(access, self._front, requests, now_ms, age, membership),
            )

    async def _check_space(self) -> None:
        if await self._memory.is_full(self._opened.readers):
            raise StoreFull.of(f"{self.endpoint}: {self._memory}")

    async def _claim(self, orders: Sequence[ClaimOrder], now_ms: int) -> Sequence[Claimed | PinLaterError]:
        self._check_open()
        now_s = self._monotonic()
        remembered = [self._nothing_due.answer(order, now_ms, now_s) for order in orders]
        asked = [order for order, answer in zip(orders, remembered, strict=True) if answer is None]
        found = iter(await self._search(asked, now_ms, now_s) if asked else ())
        return [next(found) if answer is None else answer for answer in remembered]

    async def _search(
        self, orders: Sequence[ClaimOrder], now_ms: int, now_s: float
    ) -> Sequence[Claimed | PinLaterError]:
        search = self._nothing_due.search_begins(orders, now_s)
        found: Sequence[claiming.FoundJobs | PinLaterError] = ()
        try:
            found = await self._with_queues(
                self._opened.claiming,
                [order.queue for order in orders],
                lambda access: claiming.claim(access, orders, now_ms, self._unknown_claims),
            )
        except (OutcomeUnknown, asyncio.CancelledError):
            self._unsure = True
            raise
        finally:
            self._nothing_due.search_ends(search, orders, found)
        return [each.claimed if isinstance(each, claiming.FoundJobs) else each for each in found]

    async def _finish(self, acks: Sequence[JobAck], now_ms: int) -> Sequence[Acked]:
        names = [ack.key.queue for ack in acks]
        put_back = [ack.key.queue for ack in acks if not ack.succeeded]
        with self._nothing_due.change(put_back) if put_back else contextlib.nullcontext():
            return await self._with_queues(
                self._opened.finishing, names, lambda access: finishing.finish(access, acks, now_ms)
            )

    # --- keys across shards ---------------------------------------------------------------------------------------------------

    async def _list_changed_queues(self) -> Sequence[str]:
        await self._snapshots.latest()
        changed = await self._changes.changed(self.slot)
        given_back, self._given_back = self._given_back, set()
        if changed:
            self._nothing_due.changed(list(changed))
        return list(given_back | changed)

    async def _note_map(self, shard_map: str, now_ms: int) -> int:
        [since] = await self._opened.other.run("note_map", now_ms, shard_map)
        return int(since)

    # --- trail --------------------------------------------------------------------------------------------------------------

    async def _add_to_trail(self, records: Sequence[TrailEntry], records_max: int) -> None:
        await trail.add(self._opened.other, records, records_max)

    async def _prune_trail(self, before: str, limit: int) -> int:
        return await trail.prune(self._opened.other, self._opened.readers, before, limit) if limit > 0 else 0

    # --- failures -----------------------------------------------------------------------------------------------------------

    async def _list_failures(self, queues: Sequence[str], from_hour: int) -> Sequence[StoredFailures]:
        return await failures.read(self._opened.readers, await self._queues_named(queues), from_hour)

    async def _prune_failures(self, before_ms: int, before_hour: int, limit: int) -> int:
        if limit <= 0:
            return 0
        await self._refresh()
        known = list(self._queue_cache.names)
        return await failures.prune(self._opened.other, self._opened.readers, known, before_ms, before_hour, limit)

    # --- jobs ---------------------------------------------------------------------------------------------------------------

    async def _restore(self, order: RestoreOrder, now_ms: int) -> Restored:
        await self._check_space()
        with self._nothing_due.change([order.queue]):
            return await self._change([order.queue], lambda access: copies.restore(access, order, now_ms))

    async def _count(self, queues: Sequence[str] | None = None) -> Sequence[QueueCounts]:
        due_by_ms = self._due_by_ms
        rows = await reading.count_rows(self._opened.readers, queues, due_by_ms)
        if queues is None:
            self._repair.compare(rows)
        return reading.counts(rows, due_by_ms)

    # --- maintenance --------------------------------------------------------------------------------------------------------------

    async def _look(self) -> MaintenanceSnapshot:
        self._master.look()
        found = await self._opened.readers.run("maintenance_snapshot", self._changes.seen)
        self._changes.note(found[7], found[8])
        deadline, expiry, seen, until = [int(float(score)) if score else NEVER_MS for score in found[:4]]
        gone, changes = found[6].decode(), found[9].decode()
        return MaintenanceSnapshot(NEVER_MS, deadline, expiry, seen, until, int(found[4]), changes, int(found[5]), gone)

    async def _advance_due(self, now_ms: int, limit: int) -> int:
        """Sets the time up to which jobs count as due: Redis keeps no split of due and future jobs."""
        self._check_open()  # nothing here needs a connection
        self._due_by_ms = now_ms
        return 0

    async def _time_out_claims(self, now_ms: int, limit: int, quarantine_after: int = 0) -> Sequence[Swept]:
        self._master.look()
        if self._unsure or self._unknown_claims:
            await self._give_back_unknown_claims(now_ms)
        if limit <= 0 and not self._repair.is_urgent:
            return []
        gone = (await self._snapshots.latest()).gone
        if gone or self._repair.is_urgent:
            with self._nothing_due.change(()):
                await self._change((), lambda access: self._repair.repair(access, gone))
            self._snapshots.forget()
        if limit <= 0 or (await self._snapshots.latest()).first_deadline_ms >= now_ms:
            return []
        with self._nothing_due.change(()):
            return await self._change(
                (), lambda access: sweeping.time_out_claims(access, now_ms, limit, quarantine_after)
            )

    async def _give_back_unknown_claims(self, now_ms: int) -> None:
        """Gives back claims that were made although their callers were told that the outcome is unknown: no worker has these jobs."""
        await self._opened.claiming.settle()
        self._unsure = False
        claims = list(self._unknown_claims)
        if claims:
            with self._nothing_due.change(()):
                self._given_back |= await self._change(
                    (), lambda access: finishing.release_claims(access, claims, now_ms)
                )
            # In place: a claim under way uses this very list.
            self._unknown_claims[:] = [claim for claim in self._unknown_claims if claim not in claims]

    async def _expire(self, now_ms: int, limit: int) -> Sequence[Swept]:
        if limit <= 0 or (await self._snapshots.latest()).first_expiry_ms >= now_ms:
            return []
        return await self._change((), lambda access: sweeping.expire_jobs(access, now_ms, limit))

    async def _collect_garbage(self, ttls: Sequence[TimeToLive], now_ms: int, limit: int) -> Sequence[Swept]:
        if limit <= 0:
            return []
        state, most = await self._snapshots.state(), self._settings.finished_bytes_max
        snapshot = await self._snapshots.latest()
        repaired = self.stats.jobs_repaired
        await self._change((), lambda access: self._repair.look_around(access, snapshot.finished_bytes, state, now_ms))
        if self.stats.jobs_repaired != repaired:
            self._nothing_due.changed(())
        finished = self._finished
        return await self._change(
            (), lambda access: sweeping.collect_garbage(access, finished, snapshot, ttls, now_ms, limit, most, state)
        )

    # --- history ------------------------------------------------------------------------------------------------------------------

    async def _trim_samples(self, step_s: int, before_ms: int, limit: int) -> int:
        if step_s == COPIES_STEP_S:
            return await copies.trim(self._opened.readers, before_ms, limit)
        return await sample_rows.trim(self._opened.readers, step_s, before_ms, limit)

    table = LeasedShard.table | dict(
        [
            entry_of(commands.FindRequests)(_reads(reading.find_requests)),
            entry_of(commands.FindUnique)(_reads(reading.find_unique)),
            entry_of(commands.ListUniqueQueues)(_reads(reading.list_unique_queues)),
            entry_of(commands.CountTimedKeys)(_reads(reading.timed_keys)),
            entry_of(commands.ListTrail)(_reads(trail.read)),
            entry_of(commands.CheckpointJobs)(_on(_of_jobs, finishing.checkpoint, wakes=True)),
            entry_of(commands.ExtendClaims)(_on(_of_jobs, finishing.extend)),
            entry_of(commands.ReleaseJobs)(_on(_of_jobs, finishing.release, wakes=True)),
            entry_of(commands.CancelJobs)(_on(_of_jobs, finishing.cancel)),
            entry_of(commands.RunJobs)(_on(_of_jobs, bulk.run, wakes=True)),
            entry_of(commands.MoveJobs)(_on(_of_jobs, moving.move)),
            entry_of(commands.RequeueFailedJobs)(_on(_of_queue, bulk.requeue, wakes=True)),
            entry_of(commands.UnblockKey)(_on(_of_queue, bulk.unblock, wakes=True)),
            entry_of(commands.LiftBarrier)(_on(_of_queue, bulk.lift_barrier, wakes=True)),
            entry_of(commands.PurgeJobs)(_on(_of_queue, bulk.purge)),
            entry_of(commands.DeleteJobs)(_on(_of_jobs, bulk.delete_named)),
            entry_of(commands.DeleteWithCopies)(_on(_of_jobs, copies.delete)),
            entry_of(commands.PeekJobs)(_on(_of_queue, reading.peek)),
            entry_of(commands.LookupJobs)(_on(_of_jobs, reading.lookup)),
            entry_of(commands.ScanJobs)(_on(_of_queue, reading.scan)),
            entry_of(commands.CountAhead)(_on(_of_queue, reading.count_ahead)),
            entry_of(commands.FindAheadInKey)(_on(_of_queue, reading.find_ahead_in_key)),
            entry_of(commands.CountOrdered)(_reads(reading.count_ordered)),
            entry_of(commands.MoveHome)(_move_home),
            entry_of(commands.SaveSamples)(_reads(sample_rows.save)),
            entry_of(commands.ListSamples)(_reads(sample_rows.find)),
            entry_of(commands.MergeQueues)(_merge_queues),
            entry_of(commands.DeleteQueues)(_delete_queues),
            entry_of(commands.ListQueues)(_list_queues),
            entry_of(commands.ConfigureQueue)(_configure_queue),
            entry_of(commands.InsertJobs)(_insert),
            entry_of(commands.ClaimJobs)(_claim),
            entry_of(commands.FinishJobs)(_finish),
            entry_of(commands.ListChangedQueues)(_list_changed_queues),
            entry_of(commands.NoteMap)(_note_map),
            entry_of(commands.AddToTrail)(_add_to_trail),
            entry_of(commands.PruneTrail)(_prune_trail),
            entry_of(commands.ListFailures)(_list_failures),
            entry_of(commands.PruneFailures)(_prune_failures),
            entry_of(commands.RestoreJobs)(_restore),
            entry_of(commands.CountJobs)(_count),
            entry_of(commands.AdvanceDue)(_advance_due),
            entry_of(commands.TimeOutClaims)(_time_out_claims),
            entry_of(commands.ExpireJobs)(_expire),
            entry_of(commands.CollectGarbage)(_collect_garbage),
            entry_of(commands.TrimSamples)(_trim_samples),
        ]
    )
