"""The operations of a shard that relational code does alone, and what each works with. How it gets that is the store's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from pinlater.domain.errors import QueueNotFound
from pinlater.domain.queue import LIFE_UNKNOWN, Life, Queue, QueueConfig
from pinlater.server.storage.relational import audit, bulk, copies, failures, in_hand, moving, reading, samples
from pinlater.server.storage.relational import queues as queue_rules
from pinlater.server.storage.relational.dialect import Dialect
from pinlater.server.storage.relational.reading import Reader
from pinlater.server.storage.relational.shard_map import note_map

P = ParamSpec("P")
T = TypeVar("T")
Change: TypeAlias = Callable[Concatenate[Dialect, P], Coroutine[Any, Any, T]]
Read: TypeAlias = Callable[Concatenate[Reader, P], Coroutine[Any, Any, T]]
Operation: TypeAlias = "Callable[Concatenate[RelationalShard, P], Coroutine[Any, Any, T]]"


def _changes(work: Change[P, T]) -> Operation[P, T]:
    """Makes an operation that is one transaction."""

    async def operation(shard: RelationalShard, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await shard._change(work, *args, **kwargs)  # noqa: SLF001 it is a method of that class

    return operation


def _looks_up(work: Read[P, T]) -> Operation[P, T]:
    """Makes an operation of a few seeks on committed rows."""

    async def operation(shard: RelationalShard, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await shard._look_up(work, *args, **kwargs)  # noqa: SLF001

    return operation


def _walks(work: Read[P, T]) -> Operation[P, T]:
    """Makes an operation that looks at any number of committed rows."""

    async def operation(shard: RelationalShard, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await shard._walk(work, *args, **kwargs)  # noqa: SLF001

    return operation


class RelationalShard(ABC):
    """Methods of `storage.interface.Shard`. A store overrides those that it does in a way of its own."""

    @abstractmethod
    async def _change(self, work: Change[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs `work` as one transaction."""

    @abstractmethod
    async def _look_up(self, work: Read[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a few seeks on committed rows."""

    @abstractmethod
    async def _walk(self, work: Read[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a look at any number of committed rows."""

    checkpoint_jobs = _changes(in_hand.checkpoint)
    extend_claims = _changes(in_hand.extend)
    release_jobs = _changes(in_hand.release)
    cancel_jobs = _changes(in_hand.cancel)
    run_jobs = _changes(bulk.run)
    move_jobs = _changes(moving.move)
    requeue_failed_jobs = _changes(bulk.requeue)
    purge_jobs = _changes(bulk.purge)
    delete_jobs = _changes(bulk.delete_named)
    delete_with_copies = _changes(copies.delete)
    restore_jobs = _changes(copies.restore)
    lookup_jobs = _looks_up(reading.lookup)
    scan_jobs = _walks(reading.scan)
    count_ahead = _walks(reading.count_ahead)

    merge_queues = _changes(queue_rules.merge)
    delete_queues = _changes(queue_rules.delete)
    list_queues = _walks(reading.list_queues)

    find_requests = _looks_up(reading.find_requests)
    find_unique = _looks_up(reading.find_unique)
    list_unique_queues = _walks(reading.list_unique_queues)
    list_unique_keys = _walks(reading.list_unique_keys)
    timed_keys = _walks(reading.timed_keys)
    note_map = _changes(note_map)

    add_audit = _changes(audit.add)
    list_audit = _walks(audit.read)
    list_failures = _walks(failures.read)
    list_samples = _walks(samples.find)

    async def create_queues(self, names: Sequence[str], now_ms: int, *, life: Life = LIFE_UNKNOWN) -> Sequence[Queue]:
        return await self.merge_queues([Queue(name, life=life) for name in names], now_ms)

    async def configure_queue(
        self,
        name: str,
        *,
        config: QueueConfig | None = None,
        paused: bool | None = None,
        version: str = "",
        by: str = "",
    ) -> None:
        if not await self._change(queue_rules.configure, name, config, paused, version, by):
            raise QueueNotFound.of(name)

    async def prune_audit(self, before: str, limit: int) -> int:
        """Looks first: a change makes other servers look at the shard anew."""
        if limit <= 0 or not await self._look_up(audit.any_before, before):
            return 0
        return await self._change(audit.prune, before, limit)

    async def prune_failures(self, before_ms: int, before_hour: int, limit: int) -> int:
        """Looks first: a change makes other servers look at the shard anew."""
        if limit <= 0 or not await self._look_up(failures.any_before, before_ms, before_hour):
            return 0
        return await self._change(failures.prune, before_ms, before_hour, limit)
