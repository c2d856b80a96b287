"""The Redis store's shard: all keys of one hash slot. Each method chooses the module that does the work, and a writer or a reader.

Inserts, claims and ends of attempts each have a connection of their own, so that a large answer of one holds no other up; everything
else that changes something shares a fourth.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import TypeVar

from pinlater.domain.calls import ShardSize
from pinlater.domain.errors import OutcomeUnknown, PinLaterError, ShardConnectionFailed, StoreFull
from pinlater.domain.job import HandedOutJob, JobInfo, JobState
from pinlater.domain.queue import LIFE_UNKNOWN, Life, Queue, QueueConfig, QueueCounts
from pinlater.domain.transitions import REDIS_STATUS
from pinlater.server.storage.connections import WRITERS, Connections
from pinlater.server.storage.redis import (
    audit,
    bulk,
    claiming,
    copies,
    failures,
    finishing,
    inserting,
    moving,
    reading,
    sweeping,
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
from pinlater.server.storage.redis.maintenance_snapshot import MaintenanceSnapshot
from pinlater.server.storage.redis.membership import Membership, change_owners, members, owners
from pinlater.server.storage.redis.migration import migrate
from pinlater.server.storage.redis.nothing_due import NothingDue
from pinlater.server.storage.redis.queue_cache import RedisQueueCache
from pinlater.server.storage.redis.readers import Readers
from pinlater.server.storage.redis.server_requirements import Memory, check_server, memory_size
from pinlater.server.storage.redis.settings import RedisEndpoint, RedisSettings
from pinlater.server.storage.redis.stats import Stats
from pinlater.server.storage.redis.writer import Writer
from pinlater.server.storage.request_keys import InsertAge
from pinlater.server.storage.snapshots import NEVER_MS, Snapshots
from pinlater.server.storage.values import (
    COPIES_STEP_S,
    Acked,
    AuditRecord,
    Capabilities,
    Claimed,
    ClaimOrder,
    ClaimRef,
    CopiesOf,
    DeletedWithCopies,
    Inserted,
    InsertRequest,
    JobAck,
    JobCheckpoint,
    JobKey,
    KeyHolder,
    Member,
    Owners,
    Page,
    PageRow,
    Place,
    Purge,
    RequestRef,
    Requeue,
    Requeued,
    Restored,
    RestoreOrder,
    RunOrder,
    SampleRange,
    ShardTime,
    StoredFailures,
    StoredSample,
    Swept,
    TimedKeys,
    TimeToLive,
    UniqueHeld,
    UniqueKeyPage,
    UniqueRef,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

_STALE_CACHE_TRIES = 5
# A string of Redis has at most 512 MiB (proto-max-bulk-len), and a request is one.
_BODY_BYTES_MAX = 256 * 1024 * 1024


class RedisShard:
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
        self._monotonic = monotonic
        self._front = front_of(self._settings.tag_of(name))
        self._queue_cache = RedisQueueCache()
        self._membership = Membership(self._settings.lease_ms, WRITERS)
        self._connections = Connections(
            Readers(self._connect, endpoint, self._settings, self.stats),
            *[
                Writer(self._connect, endpoint, self._rejoin, self._settings, self.stats, WRITERS)
                for _ in range(WRITERS)
            ],
        )
        self._joining = asyncio.Lock()
        self._master = MasterWatch(endpoint, self._settings, self._leave, monotonic)
        self._snapshots = Snapshots(lambda: self._look(self._opened.readers), lambda: self.stats.changes, monotonic)
        self._memory = Memory(self._settings.memory_used_max_percent, monotonic)
        self._unknown_claims: list[tuple[bytes, str]] = []  # claims of unknown outcome: no worker has their jobs
        self._unsure = False  # whether there may be some
        self._given_back: set[str] = set()  # queues that got such jobs back
        self._nothing_due = NothingDue()
        self._finished = OldestFinished()
        self._repair = IndexRepair()
        self._changes = RedisChangePoller(self._queue_cache, self._refresh, WRITERS)
        self._due_by_ms = 0
        self._highest_id = 0
        self._is_open = False

    # --- life -------------------------------------------------------------------------------------------------------------

    async def open(self, now_ms: int) -> None:
        """Leases a slot, and fills the queue cache."""
        if self._is_open:
            return
        await check_server(self._connections.readers, self.endpoint)
        await self._join()
        await self._refresh()
        self._due_by_ms = now_ms
        await self._look(self._connections.readers)
        self._is_open = True

    async def _join(self) -> None:
        await migrate(self._connections.readers)
        slot, top = await self._membership.join(self._connections.readers.run)
        self._highest_id = max(self._highest_id, top)
        self._membership.slot = slot
        for index, writer in enumerate(self._connections.writers):
            await writer.become(slot * WRITERS + index, self._membership.lease)

    async def _rejoin(self, lost: int) -> None:
        """Leases another slot after this one was lost, unless another call has done so."""
        async with self._joining:
            if lost == self._membership.slot:
                logger.warning("%s: slot %d was taken over while this server was away", self.endpoint, lost)
                self._membership.lost.add(lost)
                await self._join()

    async def close(self) -> None:
        if self._is_open:
            self._is_open = False
            with contextlib.suppress(PinLaterError):  # the lease ends anyway, a little later
                await self._membership.leave(self._connections.readers.run)
        await self._master.close()
        await asyncio.gather(*(writer.close() for writer in self._connections.writers))
        await self._connections.readers.close()
        self._snapshots.forget()

    async def ping(self, now_ms: int | None = None) -> None:
        """Renews this server's lease, which is a write."""
        readers = self._opened.readers
        self._master.look()
        slot, asked = self._membership.slot, self._monotonic()
        time_ms = None if now_ms is None else lambda: now_ms + round((self._monotonic() - asked) * 1000)
        if not await self._membership.renew(readers.run, time_ms):
            self.stats.slots_lost += slot == self._membership.slot
            await self._rejoin(slot)

    async def size(self) -> ShardSize:
        return await memory_size(self._opened.readers)

    def figures(self) -> Mapping[str, float]:
        return {**self.stats.figures(), "claims_from_memory": self._nothing_due.claims}

    async def shard_time(self) -> ShardTime:
        return await self._membership.shard_time(self._opened.readers.run)

    def register_as(self, address: str) -> None:
        self._membership.address = address

    async def announce(self, address: str) -> str:
        return await self._membership.announce(self._opened.readers.run, address)

    async def members(self) -> Sequence[Member]:
        """The servers that use this shard now."""
        return await members(self._opened.readers.run, self._settings.lease_ms)

    async def owners(self) -> Owners:
        return await owners(self._opened.readers.run)

    async def change_owners(self, known: Owners, owners: Owners) -> bool:
        return await change_owners(self._opened.readers.run, known, owners)

    @property
    def slot(self) -> int:
        return self._membership.slot

    @property
    def highest_id(self) -> int:
        return self._highest_id

    @property
    def _opened(self) -> Connections[Readers, Writer]:
        """The connections, for every method of the protocols; raises unless the shard is open."""
        self._check_open()
        return self._connections

    def _check_open(self) -> None:
        if not self._is_open:
            raise ShardConnectionFailed(f"{self.endpoint} is not open")

    async def _connect(self) -> Connection:
        return await connect(self.endpoint, self._front, self._settings, self.stats)

    def _leave(self, address: Address) -> int:
        left = self._connections.readers.leave(address) + sum(
            writer.leave(address) for writer in self._connections.writers
        )
        if left:  # what the new master holds may be older
            self._snapshots.forget()
            self._nothing_due.changed(())
        return left

    async def _refresh(self) -> None:
        """Reads all queues into the queue cache."""
        found = await reading.list_queues(self._connections.readers)
        self._queue_cache.replace([(queue.name, number) for number, queue in found])

    async def _with_queues(self, writer: Writer, names: Sequence[str], work: Callable[[Access], Awaitable[T]]) -> T:
        """Reads the queue cache anew if a name is not in it, or if a queue in it has another id now."""
        for _ in range(_STALE_CACHE_TRIES):
            queues = await self._queues_named(names)
            try:
                return await work(
                    Access(writer, self._opened.readers, self._queue_cache, queues, self.stats, self._refresh)
                )
            except StaleQueues:
                await self._refresh()
        raise conflict()

    async def _queues_named(self, names: Sequence[str]) -> dict[str, bytes]:
        """The ids of the existing queues among these; asks Redis for those that are not in the queue cache."""
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

    async def create_queues(self, names: Sequence[str], now_ms: int, *, life: Life = LIFE_UNKNOWN) -> Sequence[Queue]:
        return await self.merge_queues([Queue(name, life=life) for name in names], now_ms)

    async def merge_queues(self, queues: Sequence[Queue], now_ms: int) -> Sequence[Queue]:
        with self._nothing_due.change([queue.name for queue in queues]):
            return await queue_rows.merge(self._opened.other, self._opened.readers, self._queue_cache, queues)

    async def delete_queues(self, names: Sequence[str], deleted_ms: int = 0, now_ms: int = 0) -> int:
        with self._nothing_due.change(names):
            newest_ms = await queue_rows.delete(self._opened.other, names, deleted_ms, now_ms)
        await self._refresh()
        return newest_ms

    async def list_queues(self) -> Sequence[Queue]:
        found = await reading.list_queues(self._opened.readers)
        self._queue_cache.replace([(queue.name, number) for number, queue in found])
        return [queue for _, queue in found]

    async def configure_queue(
        self,
        name: str,
        *,
        config: QueueConfig | None = None,
        paused: bool | None = None,
        version: str = "",
        by: str = "",
    ) -> None:
        with self._nothing_due.change([name]):
            await queue_rows.configure(self._opened.other, self._opened.readers, name, config, paused, version, by)

    # --- the three hot paths ------------------------------------------------------------------------------------------------

    async def insert_jobs(self, requests: Sequence[InsertRequest], now_ms: int) -> Sequence[Inserted | PinLaterError]:
        await self._check_space()
        lost, age = self._membership.lost, InsertAge()
        names = [request.queue for request in requests]
        with self._nothing_due.change(names):
            return await self._with_queues(
                self._opened.inserting,
                names,
                lambda access: inserting.insert(access, self._front, requests, now_ms, age, lost),
            )

    async def _check_space(self) -> None:
        if await self._memory.is_full(self._opened.readers):
            raise StoreFull.of(f"{self.endpoint}: {self._memory}")

    async def claim_jobs(self, orders: Sequence[ClaimOrder], now_ms: int) -> Sequence[Claimed | PinLaterError]:
        self._check_open()
        now_s = self._monotonic()
        remembered = [self._nothing_due.answer(order, now_ms, now_s) for order in orders]
        asked = [order for order, answer in zip(orders, remembered, strict=True) if answer is None]
        found = iter(await self._search(asked, now_ms, now_s) if asked else ())
        return [next(found) if answer is None else answer for answer in remembered]

    async def _search(
        self, orders: Sequence[ClaimOrder], now_ms: int, now_s: float
    ) -> Sequence[Claimed | PinLaterError]:
        search = self._nothing_due.search_begins(orders)
        results: Sequence[Claimed | PinLaterError] = ()
        try:
            results = await self._with_queues(
                self._opened.claiming,
                [order.queue for order in orders],
                lambda access: claiming.claim(access, orders, now_ms, self._unknown_claims),
            )
        except (OutcomeUnknown, asyncio.CancelledError):
            self._unsure = True
            raise
        finally:
            self._nothing_due.search_ends(search, orders, results, now_s)
        return results

    async def finish_jobs(self, acks: Sequence[JobAck], now_ms: int) -> Sequence[Acked]:
        names = [ack.key.queue for ack in acks]
        put_back = [ack.key.queue for ack in acks if not ack.succeeded]
        with self._nothing_due.change(put_back) if put_back else contextlib.nullcontext():
            return await self._with_queues(
                self._opened.finishing, names, lambda access: finishing.finish(access, acks, now_ms)
            )

    # --- keys across shards ---------------------------------------------------------------------------------------------------

    async def find_requests(
        self, requests: Sequence[RequestRef], now_ms: int
    ) -> Sequence[Inserted | PinLaterError | None]:
        return await reading.find_requests(self._opened.readers, requests, now_ms)

    async def find_unique(self, keys: Sequence[UniqueRef], now_ms: int) -> Sequence[KeyHolder | None]:
        return await reading.find_unique(self._opened.readers, keys, now_ms)

    async def list_unique_queues(self) -> Sequence[UniqueHeld]:
        return await reading.list_unique_queues(self._opened.readers)

    async def list_unique_keys(self, queue: str, made_by_ms: int, limit: int, after: str = "") -> UniqueKeyPage:
        return await reading.list_unique_keys(self._opened.readers, queue, made_by_ms, limit, after)

    async def timed_keys(self, now_ms: int) -> TimedKeys:
        return await reading.timed_keys(self._opened.readers, now_ms)

    @property
    def changes(self) -> int:
        return self.stats.changes

    def follow(self, others: Callable[[], Hashable | None]) -> None:
        self._snapshots.others = others

    async def state(self) -> Hashable | None:
        self._check_open()
        return await self._snapshots.state()

    async def changed_queues(self) -> Sequence[str]:
        await self._snapshots.latest()
        changed = await self._changes.changed(self.slot)
        given_back, self._given_back = self._given_back, set()
        if changed:
            self._nothing_due.changed(list(changed))
        return list(given_back | changed)

    async def note_map(self, shard_map: str, now_ms: int) -> int:
        [since] = await self._opened.other.run("note_map", now_ms, shard_map)
        return int(since)

    # --- audit --------------------------------------------------------------------------------------------------------------

    async def add_audit(self, records: Sequence[AuditRecord], records_max: int) -> None:
        await audit.add(self._opened.other, records, records_max)

    async def list_audit(self, since: str, before: str, limit: int) -> Sequence[AuditRecord]:
        return await audit.read(self._opened.readers, since, before, limit)

    async def prune_audit(self, before: str, limit: int) -> int:
        return await audit.prune(self._opened.other, self._opened.readers, before, limit) if limit > 0 else 0

    # --- failures -----------------------------------------------------------------------------------------------------------

    async def list_failures(self, queues: Sequence[str], from_hour: int) -> Sequence[StoredFailures]:
        return await failures.read(self._opened.readers, await self._queues_named(queues), from_hour)

    async def prune_failures(self, before_ms: int, before_hour: int, limit: int) -> int:
        if limit <= 0:
            return 0
        await self._refresh()
        known = list(self._queue_cache.names)
        return await failures.prune(self._opened.other, self._opened.readers, known, before_ms, before_hour, limit)

    # --- claimed jobs -------------------------------------------------------------------------------------------------------

    async def checkpoint_jobs(
        self, checkpoints: Sequence[JobCheckpoint], now_ms: int
    ) -> Sequence[Acked | PinLaterError]:
        with self._nothing_due.change([item.key.queue for item in checkpoints]):
            return await self._with_queues(
                self._opened.other,
                [item.key.queue for item in checkpoints],
                lambda access: finishing.checkpoint(access, checkpoints, now_ms),
            )

    async def extend_claims(self, claims: Sequence[ClaimRef], now_ms: int) -> Sequence[Acked]:
        return await self._with_queues(
            self._opened.other,
            [ref.key.queue for ref in claims],
            lambda access: finishing.extend(access, claims, now_ms),
        )

    async def release_jobs(self, claims: Sequence[ClaimRef], now_ms: int) -> Sequence[Acked]:
        with self._nothing_due.change([ref.key.queue for ref in claims]):
            return await self._with_queues(
                self._opened.other,
                [ref.key.queue for ref in claims],
                lambda access: finishing.release(access, claims, now_ms),
            )

    async def cancel_jobs(
        self, keys: Sequence[JobKey], now_ms: int, only_state: JobState | None = None
    ) -> Sequence[Acked]:
        return await self._with_queues(
            self._opened.other,
            [key.queue for key in keys],
            lambda access: finishing.cancel(access, keys, now_ms, only_state),
        )

    async def run_jobs(self, orders: Sequence[RunOrder], now_ms: int) -> Sequence[Acked]:
        with self._nothing_due.change([order.key.queue for order in orders]):
            return await self._with_queues(
                self._opened.other,
                [order.key.queue for order in orders],
                lambda access: bulk.run(access, orders, now_ms),
            )

    async def move_jobs(self, keys: Sequence[JobKey], priority: int, now_ms: int) -> Sequence[Acked]:
        return await self._with_queues(
            self._opened.other,
            [key.queue for key in keys],
            lambda access: moving.move(access, keys, priority, now_ms),
        )

    # --- bulk ---------------------------------------------------------------------------------------------------------------

    async def requeue_failed_jobs(self, order: Requeue, now_ms: int) -> Requeued | PinLaterError:
        with self._nothing_due.change([order.queue]):
            return await self._with_queues(
                self._opened.other, [order.queue], lambda access: bulk.requeue(access, order, now_ms)
            )

    async def purge_jobs(self, order: Purge) -> int | PinLaterError:
        return await self._with_queues(self._opened.other, [order.queue], lambda access: bulk.purge(access, order, 0))

    async def delete_jobs(self, keys: Sequence[JobKey], state: JobState | None = None) -> int:
        return await self._with_queues(
            self._opened.other, [key.queue for key in keys], lambda access: bulk.delete_named(access, keys, state, 0)
        )

    # --- copies of deleted jobs ---------------------------------------------------------------------------------------------

    async def delete_with_copies(
        self, keys: Sequence[JobKey], state: JobState, of: CopiesOf, now_ms: int
    ) -> DeletedWithCopies:
        return await self._with_queues(
            self._opened.other,
            [key.queue for key in keys],
            lambda access: copies.delete(access, keys, state, of, now_ms),
        )

    async def restore_jobs(self, order: RestoreOrder, now_ms: int) -> Restored:
        await self._check_space()
        with self._nothing_due.change([order.queue]):
            return await self._with_queues(
                self._opened.other, [order.queue], lambda access: copies.restore(access, order, now_ms)
            )

    # --- reading ------------------------------------------------------------------------------------------------------------

    async def peek_jobs(
        self, queue: str, limit: int, now_ms: int, max_bytes: int
    ) -> Sequence[HandedOutJob] | PinLaterError:
        return await self._with_queues(
            self._opened.other, [queue], lambda access: reading.peek(access, queue, limit, now_ms, max_bytes)
        )

    async def lookup_jobs(self, keys: Sequence[JobKey], *, bodies: bool) -> Sequence[JobInfo | None]:
        return await self._with_queues(
            self._opened.other,
            [key.queue for key in keys],
            lambda access: reading.lookup(access, self.name, keys, bodies=bodies),
        )

    async def scan_jobs(self, page: Page) -> Sequence[PageRow] | PinLaterError:
        return await self._with_queues(
            self._opened.other, [page.queue], lambda access: reading.scan(access, self.name, page)
        )

    async def count_ahead(self, place: Place) -> int | PinLaterError:
        return await self._with_queues(
            self._opened.other, [place.queue], lambda access: reading.count_ahead(access, place)
        )

    async def count_jobs(self, queues: Sequence[str] | None = None) -> Sequence[QueueCounts]:
        due_by_ms = self._due_by_ms
        rows = await reading.count_rows(self._opened.readers, queues, due_by_ms)
        if queues is None:
            self._repair.compare(rows)
        return reading.counts(rows, due_by_ms)

    # --- maintenance --------------------------------------------------------------------------------------------------------------

    async def _look(self, readers: Readers) -> MaintenanceSnapshot:
        self._master.look()
        found = await readers.run("maintenance_snapshot", self._changes.seen)
        self._changes.note(found[7], found[8])
        deadline, expiry, seen, until = [int(float(score)) if score else NEVER_MS for score in found[:4]]
        gone, changes = found[6].decode(), found[9].decode()
        return MaintenanceSnapshot(deadline, expiry, seen, until, int(found[4]), int(found[5]), gone, changes)

    async def advance_due(self, now_ms: int, limit: int) -> int:
        """Only sets the time up to which jobs count as due: Redis keeps no split of due and future jobs."""
        self._check_open()  # nothing here needs a connection
        self._due_by_ms = now_ms
        return 0

    async def time_out_claims(self, now_ms: int, limit: int, quarantine_after: int = 0) -> Sequence[Swept]:
        self._master.look()
        if self._unsure or self._unknown_claims:
            await self._give_back_unknown_claims(now_ms)
        if limit <= 0 and not self._repair.is_urgent:
            return []
        gone = (await self._snapshots.latest()).gone
        if gone or self._repair.is_urgent:
            with self._nothing_due.change(()):
                await self._with_queues(self._opened.other, (), lambda access: self._repair.repair(access, gone))
            self._snapshots.forget()
        if limit <= 0 or (await self._snapshots.latest()).first_deadline_ms >= now_ms:
            return []
        with self._nothing_due.change(()):
            return await self._with_queues(
                self._opened.other,
                (),
                lambda access: sweeping.time_out_claims(access, now_ms, limit, quarantine_after),
            )

    async def _give_back_unknown_claims(self, now_ms: int) -> None:
        """Gives back claims that were made although their callers were told that the outcome is unknown: no worker has these jobs."""
        await self._opened.claiming.settle()
        self._unsure = False
        claims = list(self._unknown_claims)
        if claims:
            with self._nothing_due.change(()):
                self._given_back |= await self._with_queues(
                    self._opened.other, (), lambda access: finishing.release_claims(access, claims, now_ms)
                )
            # In place: a claim under way holds this very list.
            self._unknown_claims[:] = [claim for claim in self._unknown_claims if claim not in claims]

    async def expire_jobs(self, now_ms: int, limit: int) -> Sequence[Swept]:
        if limit <= 0 or (await self._snapshots.latest()).first_expiry_ms >= now_ms:
            return []
        return await self._with_queues(
            self._opened.other, (), lambda access: sweeping.expire_jobs(access, now_ms, limit)
        )

    async def collect_garbage(self, ttls: Sequence[TimeToLive], now_ms: int, limit: int) -> Sequence[Swept]:
        if limit <= 0:
            return []
        state, most = await self._snapshots.state(), self._settings.finished_bytes_max
        snapshot = await self._snapshots.latest()
        repaired = self.stats.jobs_repaired
        await self._with_queues(
            self._opened.other,
            (),
            lambda access: self._repair.look_around(access, snapshot.finished_bytes, state, now_ms),
        )
        if self.stats.jobs_repaired != repaired:
            self._nothing_due.changed(())
        return await self._with_queues(
            self._opened.other,
            (),
            lambda access: sweeping.collect_garbage(access, self._finished, snapshot, ttls, now_ms, limit, most, state),
        )

    # --- history ------------------------------------------------------------------------------------------------------------------

    async def save_samples(self, samples: Sequence[StoredSample]) -> None:
        await sample_rows.save(self._opened.readers, samples)

    async def list_samples(self, ranges: Sequence[SampleRange]) -> Sequence[StoredSample]:
        return await sample_rows.find(self._opened.readers, ranges)

    async def trim_samples(self, step_s: int, before_ms: int, limit: int) -> int:
        if step_s == COPIES_STEP_S:
            return await copies.trim(self._opened.readers, before_ms, limit)
        return await sample_rows.trim(self._opened.readers, step_s, before_ms, limit)
