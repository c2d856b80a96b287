"""What a shard of a relational store does by relational code alone. How that code gets its transaction or its reader is the store's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar, TypeVarTuple

from pinlater.domain.errors import PinLaterError, QueueNotFound
from pinlater.domain.job import JobState
from pinlater.domain.queue import LIFE_UNKNOWN, Life, Queue, QueueConfig
from pinlater.server.storage.relational import audit, bulk, copies, failures, in_hand, moving, reading
from pinlater.server.storage.relational import queues as queue_rules
from pinlater.server.storage.relational.dialect import Dialect
from pinlater.server.storage.relational.queues import QueueTable
from pinlater.server.storage.relational.reading import Reader
from pinlater.server.storage.relational.shard_map import note_map
from pinlater.server.storage.values import (
    Acked,
    AuditRecord,
    ClaimRef,
    CopiesOf,
    DeletedWithCopies,
    Inserted,
    JobCheckpoint,
    JobKey,
    KeyHolder,
    Place,
    Purge,
    RequestRef,
    Requeue,
    Requeued,
    Restored,
    RestoreOrder,
    RunOrder,
    StoredFailures,
    TimedKeys,
    UniqueHeld,
    UniqueKeyPage,
    UniqueRef,
)

T = TypeVar("T")
Args = TypeVarTuple("Args")


class RelationalShard(ABC):
    """Methods of `storage.interface.Shard`. A store overrides those that it does in a way of its own."""

    @abstractmethod
    async def _change(self, work: Callable[[Dialect, *Args], Coroutine[Any, Any, T]], *args: *Args) -> T:
        """Runs `work` as one transaction."""

    @abstractmethod
    async def _look_up(self, work: Callable[[Reader, *Args], Coroutine[Any, Any, T]], *args: *Args) -> T:
        """Runs a few seeks on committed rows."""

    @abstractmethod
    async def _walk(self, work: Callable[[Reader, *Args], Coroutine[Any, Any, T]], *args: *Args) -> T:
        """Runs a look at any number of committed rows."""

    @abstractmethod
    async def _change_queues(self, work: Callable[[QueueTable, *Args], Coroutine[Any, Any, T]], *args: *Args) -> T:
        """Runs `work` as one transaction."""

    # --- queues -------------------------------------------------------------------------------------------------------------

    async def merge_queues(self, queues: Sequence[Queue], now_ms: int) -> Sequence[Queue]:
        return await self._change_queues(queue_rules.merge, queues, now_ms)

    async def create_queues(self, names: Sequence[str], now_ms: int, *, life: Life = LIFE_UNKNOWN) -> Sequence[Queue]:
        return await self.merge_queues([Queue(name, life=life) for name in names], now_ms)

    async def delete_queues(self, names: Sequence[str], deleted_ms: int = 0, now_ms: int = 0) -> int:
        return await self._change_queues(queue_rules.delete, names, deleted_ms, now_ms)

    async def configure_queue(
        self,
        name: str,
        *,
        config: QueueConfig | None = None,
        paused: bool | None = None,
        version: str = "",
        by: str = "",
    ) -> None:
        if not await self._change_queues(queue_rules.configure, name, config, paused, version, by):
            raise QueueNotFound.of(name)

    # --- keys across shards ---------------------------------------------------------------------------------------------------

    async def find_requests(
        self, requests: Sequence[RequestRef], now_ms: int
    ) -> Sequence[Inserted | PinLaterError | None]:
        return await self._look_up(reading.find_requests, requests, now_ms)

    async def find_unique(self, keys: Sequence[UniqueRef], now_ms: int) -> Sequence[KeyHolder | None]:
        return await self._look_up(reading.find_unique, keys, now_ms)

    async def list_unique_queues(self) -> Sequence[UniqueHeld]:
        return await self._walk(reading.list_unique_queues)

    async def list_unique_keys(self, queue: str, made_by_ms: int, limit: int, after: str = "") -> UniqueKeyPage:
        return await self._walk(reading.list_unique_keys, queue, made_by_ms, limit, after)

    async def timed_keys(self, now_ms: int) -> TimedKeys:
        return await self._walk(reading.timed_keys, now_ms)

    async def note_map(self, shard_map: str, now_ms: int) -> int:
        return await self._change(note_map, shard_map, now_ms)

    # --- claimed jobs -------------------------------------------------------------------------------------------------------

    async def checkpoint_jobs(
        self, checkpoints: Sequence[JobCheckpoint], now_ms: int
    ) -> Sequence[Acked | PinLaterError]:
        return await self._change(in_hand.checkpoint, checkpoints, now_ms)

    async def extend_claims(self, claims: Sequence[ClaimRef], now_ms: int) -> Sequence[Acked]:
        return await self._change(in_hand.extend, claims, now_ms)

    async def release_jobs(self, claims: Sequence[ClaimRef], now_ms: int) -> Sequence[Acked]:
        return await self._change(in_hand.release, claims, now_ms)

    async def cancel_jobs(
        self, keys: Sequence[JobKey], now_ms: int, only_state: JobState | None = None
    ) -> Sequence[Acked]:
        return await self._change(in_hand.cancel, keys, now_ms, only_state)

    async def run_jobs(self, orders: Sequence[RunOrder], now_ms: int) -> Sequence[Acked]:
        return await self._change(bulk.run, orders, now_ms)

    async def move_jobs(self, keys: Sequence[JobKey], priority: int, now_ms: int) -> Sequence[Acked]:
        return await self._change(moving.move, keys, priority, now_ms)

    # --- reading ------------------------------------------------------------------------------------------------------------

    async def count_ahead(self, place: Place) -> int | PinLaterError:
        return await self._walk(reading.count_ahead, place)

    # --- bulk ---------------------------------------------------------------------------------------------------------------

    async def requeue_failed_jobs(self, order: Requeue, now_ms: int) -> Requeued | PinLaterError:
        return await self._change(bulk.requeue, order, now_ms)

    async def purge_jobs(self, order: Purge) -> int | PinLaterError:
        return await self._change(bulk.purge, order)

    async def delete_jobs(self, keys: Sequence[JobKey], state: JobState | None = None) -> int:
        return await self._change(bulk.delete_named, keys, state)

    # --- copies of deleted jobs -----------------------------------------------------------------------------------------------

    async def delete_with_copies(
        self, keys: Sequence[JobKey], state: JobState, of: CopiesOf, now_ms: int
    ) -> DeletedWithCopies:
        return await self._change(copies.delete, keys, state, of, now_ms)

    async def restore_jobs(self, order: RestoreOrder, now_ms: int) -> Restored:
        return await self._change(copies.restore, order, now_ms)

    # --- audit --------------------------------------------------------------------------------------------------------------

    async def add_audit(self, records: Sequence[AuditRecord], records_max: int) -> None:
        await self._change(audit.add, records, records_max)

    async def list_audit(self, since: str, before: str, limit: int) -> Sequence[AuditRecord]:
        return await self._walk(audit.read, since, before, limit)

    async def prune_audit(self, before: str, limit: int) -> int:
        """Looks first: a change makes other servers look at the shard anew."""
        if limit <= 0 or not await self._look_up(audit.any_before, before):
            return 0
        return await self._change(audit.prune, before, limit)

    # --- failures -----------------------------------------------------------------------------------------------------------

    async def list_failures(self, queues: Sequence[str], from_hour: int) -> Sequence[StoredFailures]:
        return await self._walk(failures.read, queues, from_hour)

    async def prune_failures(self, before_ms: int, before_hour: int, limit: int) -> int:
        """Looks first: a change makes other servers look at the shard anew."""
        if limit <= 0 or not await self._look_up(failures.any_before, before_ms, before_hour):
            return 0
        return await self._change(failures.prune, before_ms, before_hour, limit)
