"""The commands of a shard that only relational code executes. The store determines the transaction or reader of each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeAlias, TypeVar

from pinlater.domain.errors import QueueNotFound
from pinlater.domain.queue import QueueConfig
from pinlater.server.storage import commands
from pinlater.server.storage.relational import bulk, copies, failures, in_hand, moving, reading, samples, trail
from pinlater.server.storage.relational import queues as queue_rules
from pinlater.server.storage.relational.dialect import Dialect
from pinlater.server.storage.relational.reading import Reader
from pinlater.server.storage.relational.shard_map import note_map
from pinlater.server.storage.table import CommandTable, Table, entry_of

P = ParamSpec("P")
T = TypeVar("T")
Change: TypeAlias = Callable[Concatenate[Dialect, P], Coroutine[Any, Any, T]]
Read: TypeAlias = Callable[Concatenate[Reader, P], Coroutine[Any, Any, T]]
Operation: TypeAlias = "Callable[Concatenate[RelationalShard, P], Coroutine[Any, Any, T]]"


def changes(work: Change[P, T]) -> Operation[P, T]:
    """Returns an operation that is one transaction."""

    async def operation(shard: RelationalShard, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await shard._change(work, *args, **kwargs)  # noqa: SLF001 it is a method of that class

    return operation


def looks_up(work: Read[P, T]) -> Operation[P, T]:
    """Returns an operation of a few seeks on committed rows."""

    async def operation(shard: RelationalShard, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await shard._look_up(work, *args, **kwargs)  # noqa: SLF001

    return operation


def walks(work: Read[P, T]) -> Operation[P, T]:
    """Returns an operation that reads any number of committed rows."""

    async def operation(shard: RelationalShard, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await shard._walk(work, *args, **kwargs)  # noqa: SLF001

    return operation


class RelationalShard(CommandTable, ABC):
    """The operations that SQLite and MySQL share. A store replaces those that it implements in its own way."""

    @abstractmethod
    async def _change(self, work: Change[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs `work` as one transaction."""

    @abstractmethod
    async def _look_up(self, work: Read[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a few seeks on committed rows."""

    @abstractmethod
    async def _walk(self, work: Read[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a read of any number of committed rows."""

    async def _configure_queue(
        self, name: str, config: QueueConfig | None = None, paused: bool | None = None, version: str = "", by: str = ""
    ) -> None:
        if not await self._change(queue_rules.configure, name, config, paused, version, by):
            raise QueueNotFound.of(name)

    async def _prune_trail(self, before: str, limit: int) -> int:
        """Deletes what is old. Reads first, because a change makes other servers refresh the shard."""
        if limit <= 0 or not await self._look_up(trail.any_before, before):
            return 0
        return await self._change(trail.prune, before, limit)

    async def _prune_failures(self, before_ms: int, before_hour: int, limit: int) -> int:
        """Deletes what is old. Reads first, because a change makes other servers refresh the shard."""
        if limit <= 0 or not await self._look_up(failures.any_before, before_ms, before_hour):
            return 0
        return await self._change(failures.prune, before_ms, before_hour, limit)

    table: ClassVar[Table] = dict(
        [
            entry_of(commands.CheckpointJobs)(changes(in_hand.checkpoint)),
            entry_of(commands.ExtendClaims)(changes(in_hand.extend)),
            entry_of(commands.ReleaseJobs)(changes(in_hand.release)),
            entry_of(commands.CancelJobs)(changes(in_hand.cancel)),
            entry_of(commands.RunJobs)(changes(bulk.run)),
            entry_of(commands.MoveJobs)(changes(moving.move)),
            entry_of(commands.RequeueFailedJobs)(changes(bulk.requeue)),
            entry_of(commands.UnblockKey)(changes(bulk.unblock)),
            entry_of(commands.LiftBarrier)(changes(bulk.lift_barrier)),
            entry_of(commands.PurgeJobs)(changes(bulk.purge)),
            entry_of(commands.DeleteJobs)(changes(bulk.delete_named)),
            entry_of(commands.DeleteWithCopies)(changes(copies.delete)),
            entry_of(commands.RestoreJobs)(changes(copies.restore)),
            entry_of(commands.LookupJobs)(looks_up(reading.lookup)),
            entry_of(commands.ScanJobs)(walks(reading.scan)),
            entry_of(commands.CountAhead)(walks(reading.count_ahead)),
            entry_of(commands.FindAheadInKey)(looks_up(reading.find_ahead_in_key)),
            entry_of(commands.CountOrdered)(looks_up(reading.count_ordered)),
            entry_of(commands.MoveHome)(changes(queue_rules.move_home)),
            entry_of(commands.MergeQueues)(changes(queue_rules.merge)),
            entry_of(commands.DeleteQueues)(changes(queue_rules.delete)),
            entry_of(commands.ListQueues)(walks(reading.list_queues)),
            entry_of(commands.FindRequests)(looks_up(reading.find_requests)),
            entry_of(commands.FindUnique)(looks_up(reading.find_unique)),
            entry_of(commands.ListUniqueQueues)(walks(reading.list_unique_queues)),
            entry_of(commands.CountTimedKeys)(walks(reading.timed_keys)),
            entry_of(commands.NoteMap)(changes(note_map)),
            entry_of(commands.AddToTrail)(changes(trail.add)),
            entry_of(commands.ListTrail)(walks(trail.read)),
            entry_of(commands.ListFailures)(walks(failures.read)),
            entry_of(commands.ListSamples)(walks(samples.find)),
            entry_of(commands.ConfigureQueue)(_configure_queue),
            entry_of(commands.PruneTrail)(_prune_trail),
            entry_of(commands.PruneFailures)(_prune_failures),
        ]
    )
