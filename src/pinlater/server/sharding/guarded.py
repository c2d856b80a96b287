"""A shard as all code but the lanes sees it: no call lasts longer than its time limit, and each outcome counts for the shard's health.

Calls to a shard out of use fail at once, all but `ping`. A call that outlasts its limit is cancelled, and its caller does not wait for
the cancellation: a store may hang then, too. After a take-over (`redirect`) calls go to the new shard.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Mapping
from enum import Enum, auto
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from pinlater.domain.errors import OutcomeUnknown, PinLaterError, ShardConnectionFailed
from pinlater.server.sharding.failure_kind import NoAnswerInTime
from pinlater.server.sharding.settings import ShardingSettings
from pinlater.server.storage.interface import (
    AuditStore,
    Coordinator,
    CopyStore,
    FailureStore,
    HistoryStore,
    JobStore,
    KeyLookup,
    Maintenance,
    QueueStore,
    Shard,
    SharedStore,
)
from pinlater.server.storage.values import Capabilities
from pinlater.wire.generated.structs import ShardSize

P = ParamSpec("P")
T = TypeVar("T")


class _Limit(Enum):
    """How long a call may take, and its error after that."""

    LOOK = auto()
    """`call_timeout_ms`; a read, so nothing was changed."""
    CHANGE = auto()
    """`call_timeout_ms`; a change, which may have been carried out."""
    WORK = auto()
    """`work_timeout_ms`; a change, which may have been carried out."""


def slow_to_answer(shard: str) -> ShardConnectionFailed:
    """The error of this shard in a call that goes on without waiting for it."""
    return ShardConnectionFailed(f"Shard {shard} is slow to answer", retry_after_ms=1000)


def shard_unreachable(name: str) -> ShardConnectionFailed:
    """The error of a call that needs a shard which is out of use."""
    return ShardConnectionFailed(f"Shard {name} is unreachable", retry_after_ms=1000)


def _guarded(
    limit: _Limit, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]
) -> Callable[Concatenate[GuardedShard, P], Coroutine[Any, Any, T]]:
    """`method` of the shard behind a `GuardedShard`, with a time limit; its outcome counts."""
    name = method.__name__

    @wraps(method)
    async def call(guard: GuardedShard, /, *args: P.args, **kwargs: P.kwargs) -> T:
        seconds, late = guard.limit(limit)
        try:
            result: T = await within(getattr(guard.shard, name)(*args, **kwargs), seconds, late)
        except PinLaterError as error:
            guard.observe(error, error is late)
            raise
        guard.observe(None, False)
        return result

    return call


class GuardedShard:
    """Implements `storage.interface.SharedShard`. `observe` gets each call's error or None, and whether it took too long.

    Each guarded method of a protocol has a line below.
    """

    def __init__(
        self,
        shard: Shard,
        settings: ShardingSettings,
        in_use: Callable[[], bool],
        observe: Callable[[PinLaterError | None, bool], None],
    ) -> None:
        self.name = shard.name
        self.capabilities: Capabilities = shard.capabilities
        self.shard = shard
        self.observe = observe
        self._call_s = settings.call_timeout_ms / 1000
        self._work_s = settings.work_timeout_ms / 1000
        self._in_use = in_use

    def redirect(self, shard: Shard) -> None:
        """Sends all further calls to `shard`, which has taken over this name."""
        self.shard = shard

    def limit(self, limit: _Limit) -> tuple[float, PinLaterError]:
        """A call's seconds, and its error if it takes longer. Raises if the shard is out of use."""
        if not self._in_use():
            raise shard_unreachable(self.name)
        if limit is _Limit.LOOK:
            return self._call_s, _unanswered(self.name, self._call_s)
        seconds = self._work_s if limit is _Limit.WORK else self._call_s
        return seconds, too_late(self.name, seconds)

    # --- life -------------------------------------------------------------------------------------------------------------

    @property
    def slot(self) -> int:
        return self.shard.slot

    @property
    def highest_id(self) -> int:
        return self.shard.highest_id

    @property
    def changes(self) -> int:
        return cast("SharedStore", self.shard).changes

    def follow(self, others: Callable[[], Hashable | None]) -> None:
        cast("SharedStore", self.shard).follow(others)

    def register_as(self, address: str) -> None:
        cast("SharedStore", self.shard).register_as(address)

    def figures(self) -> Mapping[str, float]:
        return self.shard.figures()

    async def open(self, now_ms: int) -> None:
        await within(self.shard.open(now_ms), self._work_s, too_late(self.name, self._work_s))

    async def close(self) -> None:
        await self.shard.close()

    async def ping(self, now_ms: int | None = None) -> None:
        """Works also while the shard is out of use; its outcome does not count for the shard's health."""
        await ping(self.shard, self._call_s, now_ms)

    async def size(self) -> ShardSize:
        """Its outcome does not count for the shard's health: only operators wait for it."""
        seconds, late = self.limit(_Limit.LOOK)
        return await within(self.shard.size(), seconds, late)

    # --- calls ------------------------------------------------------------------------------------------------------------

    insert_jobs = _guarded(_Limit.CHANGE, JobStore.insert_jobs)
    claim_jobs = _guarded(_Limit.CHANGE, JobStore.claim_jobs)
    finish_jobs = _guarded(_Limit.CHANGE, JobStore.finish_jobs)
    checkpoint_jobs = _guarded(_Limit.CHANGE, JobStore.checkpoint_jobs)
    extend_claims = _guarded(_Limit.CHANGE, JobStore.extend_claims)
    release_jobs = _guarded(_Limit.CHANGE, JobStore.release_jobs)
    cancel_jobs = _guarded(_Limit.CHANGE, JobStore.cancel_jobs)
    run_jobs = _guarded(_Limit.CHANGE, JobStore.run_jobs)
    move_jobs = _guarded(_Limit.CHANGE, JobStore.move_jobs)
    requeue_failed_jobs = _guarded(_Limit.WORK, JobStore.requeue_failed_jobs)
    purge_jobs = _guarded(_Limit.WORK, JobStore.purge_jobs)
    delete_jobs = _guarded(_Limit.WORK, JobStore.delete_jobs)
    delete_with_copies = _guarded(_Limit.WORK, CopyStore.delete_with_copies)
    restore_jobs = _guarded(_Limit.WORK, CopyStore.restore_jobs)
    peek_jobs = _guarded(_Limit.LOOK, JobStore.peek_jobs)
    lookup_jobs = _guarded(_Limit.LOOK, JobStore.lookup_jobs)
    scan_jobs = _guarded(_Limit.WORK, JobStore.scan_jobs)
    count_ahead = _guarded(_Limit.WORK, JobStore.count_ahead)
    count_jobs = _guarded(_Limit.WORK, JobStore.count_jobs)

    create_queues = _guarded(_Limit.WORK, QueueStore.create_queues)
    merge_queues = _guarded(_Limit.WORK, QueueStore.merge_queues)
    delete_queues = _guarded(_Limit.WORK, QueueStore.delete_queues)
    list_queues = _guarded(_Limit.LOOK, QueueStore.list_queues)
    configure_queue = _guarded(_Limit.WORK, QueueStore.configure_queue)

    find_requests = _guarded(_Limit.LOOK, KeyLookup.find_requests)
    find_unique = _guarded(_Limit.LOOK, KeyLookup.find_unique)
    list_unique_queues = _guarded(_Limit.WORK, KeyLookup.list_unique_queues)
    list_unique_keys = _guarded(_Limit.WORK, KeyLookup.list_unique_keys)
    timed_keys = _guarded(_Limit.WORK, KeyLookup.timed_keys)
    note_map = _guarded(_Limit.WORK, KeyLookup.note_map)

    add_audit = _guarded(_Limit.CHANGE, AuditStore.add_audit)
    list_audit = _guarded(_Limit.WORK, AuditStore.list_audit)

    advance_due = _guarded(_Limit.WORK, Maintenance.advance_due)
    time_out_claims = _guarded(_Limit.WORK, Maintenance.time_out_claims)
    expire_jobs = _guarded(_Limit.WORK, Maintenance.expire_jobs)
    collect_garbage = _guarded(_Limit.WORK, Maintenance.collect_garbage)
    prune_audit = _guarded(_Limit.WORK, Maintenance.prune_audit)
    prune_failures = _guarded(_Limit.WORK, Maintenance.prune_failures)

    list_failures = _guarded(_Limit.LOOK, FailureStore.list_failures)

    save_samples = _guarded(_Limit.CHANGE, HistoryStore.save_samples)
    list_samples = _guarded(_Limit.LOOK, HistoryStore.list_samples)
    trim_samples = _guarded(_Limit.WORK, HistoryStore.trim_samples)

    announce = _guarded(_Limit.WORK, Coordinator.announce)
    members = _guarded(_Limit.LOOK, Coordinator.members)
    owners = _guarded(_Limit.LOOK, Coordinator.owners)
    change_owners = _guarded(_Limit.CHANGE, Coordinator.change_owners)

    shard_time = _guarded(_Limit.LOOK, SharedStore.shard_time)
    state = _guarded(_Limit.LOOK, SharedStore.state)
    changed_queues = _guarded(_Limit.LOOK, SharedStore.changed_queues)


async def within(call: Coroutine[Any, Any, T], seconds: float, late: PinLaterError) -> T:
    """The result of `call`, or `late` raised when it takes longer than `seconds`.

    Cancels the call then, and does not wait for the cancellation: a call that hangs may hang then, too.
    """
    task = asyncio.ensure_future(call)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        _leave(task)
        raise
    if done:
        return task.result()
    _leave(task)
    raise late


async def ping(shard: Shard, seconds: float, now_ms: int | None = None) -> None:
    """Raises `Unavailable` if the shard couldn't serve a write now, or doesn't answer in time."""
    await within(shard.ping(now_ms), seconds, _unanswered(shard.name, seconds))


def _unanswered(name: str, seconds: float) -> NoAnswerInTime:
    """The error of a read that took too long."""
    return NoAnswerInTime(f"Shard {name} did not answer within {seconds:g} s", retry_after_ms=1000)


# Calls that were given up, until they have ended: the loop itself holds tasks only weakly.
_LATE: set[asyncio.Future[Any]] = set()


def _leave(task: asyncio.Future[Any]) -> None:
    task.cancel()
    _LATE.add(task)
    task.add_done_callback(_ended_late)


def _ended_late(task: asyncio.Future[Any]) -> None:
    _LATE.discard(task)
    if not task.cancelled():
        task.exception()  # read, so that asyncio doesn't warn of it


def too_late(name: str, seconds: float) -> OutcomeUnknown:
    """The error of a change that took too long, and may have been carried out."""
    return OutcomeUnknown(
        f"Shard {name} did not answer within {seconds:g} s; what was asked of it may have been done or not",
        retry_after_ms=1000,
    )
