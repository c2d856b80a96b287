"""The memory store's shard: finds the queue, hands over to the module that knows the rule, keeps the order of the answers.

No method waits for anything, so each is one step for all other callers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import nsmallest
from itertools import count

from pinlater.domain.calls import ShardSize
from pinlater.domain.errors import PinLaterError, QueueNotFound
from pinlater.domain.ids import made_at_ms
from pinlater.domain.job import HandedOutJob, JobInfo, JobState, UniqueScope
from pinlater.domain.queue import LIFE_UNKNOWN, Life, Queue, QueueConfig, QueueCounts
from pinlater.domain.transitions import MYSQL_STATUS, StatusRule
from pinlater.server.storage.claim_bytes import BytesTogether
from pinlater.server.storage.memory import bulk, claiming, copies, finishing, inserting, reading, sweeping
from pinlater.server.storage.memory.audit import Audit
from pinlater.server.storage.memory.queue_state import QueueState
from pinlater.server.storage.memory.record import MemoryJob
from pinlater.server.storage.memory.samples import MemorySamples
from pinlater.server.storage.values import (
    DELETION_KEPT_MS,
    NOT_FOUND,
    TIMED_KEYS_COUNTED,
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
    StoredFailures,
    StoredSample,
    Swept,
    TimedKeys,
    TimeToLive,
    UniqueHeld,
    UniqueKeyPage,
    UniqueRef,
)


class MemoryShard:
    """Implements `storage.interface.Shard`. What was stored outlives `close`, but not the object."""

    capabilities = Capabilities(
        kind="memory",
        shared=False,
        durable=False,
        custom_status_chars_max=MYSQL_STATUS.chars_max,
        in_order=True,
    )

    def __init__(self, name: str = "1", status_rule: StatusRule = MYSQL_STATUS) -> None:
        """`status_rule`: whose rule for custom statuses to follow, as that is what stores differ in."""
        self.name = name
        if status_rule is not MYSQL_STATUS:
            self.capabilities = self.capabilities._replace(
                custom_status_chars_max=status_rule.chars_max, ack_replaces_status=status_rule.ack_replaces
            )
        self._status_rule = status_rule
        self._queues: dict[str, QueueState] = {}
        self._numbers = count(1)
        self._deleted: dict[str, int] = {}
        self._highest_id = 0
        self._map: tuple[str, int] | None = None
        self._audit = Audit()
        self._samples = MemorySamples()

    # --- life -----------------------------------------------------------------------------------------------------------

    async def open(self, now_ms: int) -> None:
        self._highest_id = max((job_id for queue in self._queues.values() for job_id in queue.jobs), default=0)

    async def close(self) -> None:
        """Nothing to let go of."""

    async def ping(self, now_ms: int | None = None) -> None:
        """Always there."""

    @property
    def slot(self) -> int:
        return 0

    @property
    def highest_id(self) -> int:
        return self._highest_id

    def figures(self) -> Mapping[str, float]:
        return {}

    async def size(self) -> ShardSize:
        """Nothing: what jobs take is not counted."""
        return ShardSize()

    # --- queues ---------------------------------------------------------------------------------------------------------

    async def create_queues(self, names: Sequence[str], now_ms: int, *, life: Life = LIFE_UNKNOWN) -> Sequence[Queue]:
        return await self.merge_queues([Queue(name, life=life) for name in names], now_ms)

    async def merge_queues(self, queues: Sequence[Queue], now_ms: int) -> Sequence[Queue]:
        return [self._merge(queue) for queue in queues]

    def _merge(self, given: Queue) -> Queue:
        state = self._queues.get(given.name)
        if state is not None:
            state.settings = state.settings.newest(given)
            return state.settings
        queue = given.made_after(self._deleted.get(given.name, 0))
        if not queue.life.over:
            self._queues[given.name] = QueueState(queue, self._status_rule, next(self._numbers))
        return queue

    async def delete_queues(self, names: Sequence[str], deleted_ms: int = 0, now_ms: int = 0) -> int:
        newest_ms = 0
        for name in names:
            state, remembered_ms = self._queues.get(name), deleted_ms
            if state is not None:
                newest_ms = max(newest_ms, state.settings.newest_ms)
                if deleted_ms and state.settings.life.made_ms > deleted_ms:
                    continue
                remembered_ms = max(deleted_ms, state.settings.newest_ms + 1)
                del self._queues[name]
            if deleted_ms:
                self._deleted[name] = max(remembered_ms, self._deleted.get(name, 0))
        before_ms = now_ms - DELETION_KEPT_MS
        for name in [name for name, at_ms in self._deleted.items() if at_ms < before_ms]:
            del self._deleted[name]
        return newest_ms

    async def list_queues(self) -> Sequence[Queue]:
        return [self._queues[name].settings for name in sorted(self._queues)]

    async def configure_queue(
        self,
        name: str,
        *,
        config: QueueConfig | None = None,
        paused: bool | None = None,
        version: str = "",
        by: str = "",
    ) -> None:
        queue = self._queues.get(name)
        if queue is None:
            raise QueueNotFound.of(name)
        queue.settings = queue.settings.changed(config, paused, version, by)

    # --- the three hot paths --------------------------------------------------------------------------------------------

    async def insert_jobs(
        self, requests: Sequence[InsertRequest], now_ms: int, *, claim_follows: bool = False
    ) -> Sequence[Inserted | PinLaterError]:
        return [
            inserting.insert(queue, request, now_ms)
            if (queue := self._queues.get(request.queue))
            else QueueNotFound.of(request.queue)
            for request in requests
        ]

    async def claim_jobs(self, orders: Sequence[ClaimOrder], now_ms: int) -> Sequence[Claimed | PinLaterError]:
        together = BytesTogether(orders)
        return [
            claiming.claim(queue, order, now_ms, together)
            if (queue := self._queues.get(order.queue))
            else QueueNotFound.of(order.queue)
            for order in orders
        ]

    async def finish_jobs(self, acks: Sequence[JobAck], now_ms: int) -> Sequence[Acked]:
        return [finishing.finish(*found, ack, now_ms) if (found := self._find(ack.key)) else NOT_FOUND for ack in acks]

    # --- keys across shards ---------------------------------------------------------------------------------------------

    async def find_requests(
        self, requests: Sequence[RequestRef], now_ms: int
    ) -> Sequence[Inserted | PinLaterError | None]:
        return [
            inserting.answered(queue, ref.request_key, ref.fingerprint, now_ms)
            if (queue := self._queues.get(ref.queue))
            else None
            for ref in requests
        ]

    async def find_unique(self, keys: Sequence[UniqueRef], now_ms: int) -> Sequence[KeyHolder | None]:
        queues = (self._queues.get(ref.queue) for ref in keys)
        holds = [queue.key_holder(ref.key, now_ms) if queue else None for queue, ref in zip(queues, keys, strict=True)]
        return [KeyHolder(hold.job_id, hold.priority) if hold else None for hold in holds]

    async def list_unique_queues(self) -> Sequence[UniqueHeld]:
        return [
            UniqueHeld(name, min(hold.job_id for hold in queue.unique_keys.values()))
            for name, queue in sorted(self._queues.items())
            if queue.unique_keys
        ]

    async def list_unique_keys(self, queue: str, made_by_ms: int, limit: int, after: str = "") -> UniqueKeyPage:
        held = self._queues[queue].unique_keys if queue in self._queues else {}
        page = nsmallest(limit, (key for key in held if key > after))
        keys = [key for key in page if made_at_ms(held[key].job_id) <= made_by_ms]
        return UniqueKeyPage(keys, page[-1] if len(page) == limit else None)

    async def timed_keys(self, now_ms: int) -> TimedKeys:
        ends = [
            hold.until_ms
            for queue in self._queues.values()
            for hold in queue.unique_keys.values()
            if hold.scope is UniqueScope.TIME and hold.until_ms > now_ms
        ]
        return TimedKeys(min(len(ends), TIMED_KEYS_COUNTED), max(ends, default=None))

    async def note_map(self, shard_map: str, now_ms: int) -> int:
        if self._map is None or self._map[0] != shard_map:
            self._map = (shard_map, now_ms)
        return self._map[1]

    # --- claimed jobs ---------------------------------------------------------------------------------------------------

    async def checkpoint_jobs(self, checkpoints: Sequence[JobCheckpoint], now_ms: int) -> Sequence[Acked]:
        return [
            finishing.checkpoint(*found, progress, now_ms) if (found := self._find(progress.key)) else NOT_FOUND
            for progress in checkpoints
        ]

    async def extend_claims(self, claims: Sequence[ClaimRef], now_ms: int) -> Sequence[Acked]:
        return [
            finishing.extend(*found, ref, now_ms) if (found := self._find(ref.key)) else NOT_FOUND for ref in claims
        ]

    async def release_jobs(self, claims: Sequence[ClaimRef], now_ms: int) -> Sequence[Acked]:
        return [
            finishing.release(*found, ref, now_ms) if (found := self._find(ref.key)) else NOT_FOUND for ref in claims
        ]

    async def cancel_jobs(
        self, keys: Sequence[JobKey], now_ms: int, only_state: JobState | None = None
    ) -> Sequence[Acked]:
        return [
            finishing.cancel(*found, now_ms, only_state) if (found := self._find(key)) else NOT_FOUND for key in keys
        ]

    async def run_jobs(self, orders: Sequence[RunOrder], now_ms: int) -> Sequence[Acked]:
        return [bulk.run(*found, order, now_ms) if (found := self._find(order.key)) else NOT_FOUND for order in orders]

    async def move_jobs(self, keys: Sequence[JobKey], priority: int, now_ms: int) -> Sequence[Acked]:
        return [
            bulk.move(*found, priority, now_ms)
            if (found := self._find(key) or self._find(key._replace(priority=priority)))
            else NOT_FOUND
            for key in keys
        ]

    # --- bulk -----------------------------------------------------------------------------------------------------------

    async def requeue_failed_jobs(self, order: Requeue, now_ms: int) -> Requeued | PinLaterError:
        queue = self._queues.get(order.queue)
        return bulk.requeue_failed(queue, order, now_ms) if queue else QueueNotFound.of(order.queue)

    async def purge_jobs(self, order: Purge) -> int | PinLaterError:
        queue = self._queues.get(order.queue)
        return bulk.purge(queue, order) if queue else QueueNotFound.of(order.queue)

    async def delete_jobs(self, keys: Sequence[JobKey], state: JobState | None = None) -> int:
        return sum(bulk.delete(queue, [key], state) for key in keys if (queue := self._queues.get(key.queue)))

    # --- copies of deleted jobs -----------------------------------------------------------------------------------------

    async def delete_with_copies(
        self, keys: Sequence[JobKey], state: JobState, of: CopiesOf, now_ms: int
    ) -> DeletedWithCopies:
        return copies.delete(self._queues, self._samples, keys, state, of, now_ms)

    async def restore_jobs(self, order: RestoreOrder, now_ms: int) -> Restored:
        return copies.restore(self._queues, self._samples, order, now_ms)

    # --- reading --------------------------------------------------------------------------------------------------------

    async def peek_jobs(
        self, queue: str, limit: int, now_ms: int, max_bytes: int
    ) -> Sequence[HandedOutJob] | PinLaterError:
        found = self._queues.get(queue)
        return claiming.peek(found, limit, now_ms, max_bytes) if found else QueueNotFound.of(queue)

    async def lookup_jobs(self, keys: Sequence[JobKey], *, bodies: bool) -> Sequence[JobInfo | None]:
        return [found[1].shown(self.name, body=bodies) if (found := self._find(key)) else None for key in keys]

    async def scan_jobs(self, page: Page) -> Sequence[PageRow] | PinLaterError:
        queue = self._queues.get(page.queue)
        return reading.scan(queue, page, self.name) if queue else QueueNotFound.of(page.queue)

    async def count_ahead(self, place: Place) -> int | PinLaterError:
        queue = self._queues.get(place.queue)
        return reading.count_ahead(queue, place) if queue else QueueNotFound.of(place.queue)

    async def count_jobs(self, queues: Sequence[str] | None = None) -> Sequence[QueueCounts]:
        names = self._queues if queues is None else set(queues) & set(self._queues)
        return [
            QueueCounts(name, queue.line(priority).counts(priority))
            for name in sorted(names)
            for queue in [self._queues[name]]
            for priority in queue.priorities()
        ]

    # --- audit ----------------------------------------------------------------------------------------------------------

    async def add_audit(self, records: Sequence[AuditRecord], records_max: int) -> None:
        self._audit.add(records, records_max)

    async def list_audit(self, since: str, before: str, limit: int) -> Sequence[AuditRecord]:
        return self._audit.newest(since, before, limit)

    async def prune_audit(self, before: str, limit: int) -> int:
        return self._audit.prune(before, limit)

    # --- failures -------------------------------------------------------------------------------------------------------

    async def list_failures(self, queues: Sequence[str], from_hour: int) -> Sequence[StoredFailures]:
        known = [self._queues[name] for name in dict.fromkeys(queues) if name in self._queues]
        return [found for queue in known for found in queue.failures.all(queue.settings.name, from_hour)]

    async def prune_failures(self, before_ms: int, before_hour: int, limit: int) -> int:
        if limit <= 0:
            return 0
        return sum(queue.failures.prune(before_ms, before_hour) for queue in self._queues.values())

    # --- maintenance ----------------------------------------------------------------------------------------------------

    async def advance_due(self, now_ms: int, limit: int) -> int:
        moved = 0
        for queue in self._queues.values():
            for priority in queue.priorities():
                moved += queue.line(priority).advance(now_ms, limit - moved)
        return moved

    async def time_out_claims(self, now_ms: int, limit: int, quarantine_after: int = 0) -> Sequence[Swept]:
        return sweeping.time_out_claims(self._queues.values(), now_ms, limit, quarantine_after)

    async def expire_jobs(self, now_ms: int, limit: int) -> Sequence[Swept]:
        return sweeping.expire_jobs(self._queues.values(), now_ms, limit)

    async def collect_garbage(self, ttls: Sequence[TimeToLive], now_ms: int, limit: int) -> Sequence[Swept]:
        return sweeping.collect_garbage(self._queues, ttls, now_ms, limit)

    # --- history --------------------------------------------------------------------------------------------------------

    async def save_samples(self, samples: Sequence[StoredSample]) -> None:
        self._samples.save(samples)

    async def list_samples(self, ranges: Sequence[SampleRange]) -> Sequence[StoredSample]:
        return [sample for wanted in ranges for sample in self._samples.list(wanted)]

    async def trim_samples(self, step_s: int, before_ms: int, limit: int) -> int:
        return self._samples.trim(step_s, before_ms, limit)

    def _find(self, key: JobKey) -> tuple[QueueState, MemoryJob] | None:
        queue = self._queues.get(key.queue)
        job = queue.find(key) if queue else None
        return (queue, job) if queue and job else None
