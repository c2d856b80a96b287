"""A shard as everyone but the lanes sees it: no call lasts longer than its time limit, and each outcome counts for the shard's health.

A shard out of use is left alone: its calls are refused at once, all but `ping`. A call that is given up is cancelled and not waited
for, so that a store that hangs while it is cancelled holds nobody up. After a take-over (`redirect`) calls go to the new shard.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from pinlater.domain.errors import OutcomeUnknown, PinLaterError, ShardConnectionFailed
from pinlater.domain.job import ClaimedJob, Job, JobState
from pinlater.domain.queue import LIFE_UNKNOWN, Life, Queue, QueueConfig, QueueCounts
from pinlater.server.sharding.settings import ShardingSettings
from pinlater.server.storage.interface import (
    Ack,
    Acked,
    Capabilities,
    Checkpoint,
    Claimed,
    ClaimOrder,
    ClaimRef,
    Inserted,
    InsertRequest,
    JobKey,
    Member,
    Page,
    PageRow,
    Purge,
    RequestRef,
    Requeue,
    RunOrder,
    Shard,
    Swept,
    TimedKeys,
    TimeToLive,
    UniqueHeld,
    UniqueRef,
)

P = ParamSpec("P")
T = TypeVar("T")


def slow_to_answer(shard: str) -> ShardConnectionFailed:
    """What a call fails with that goes on without this shard, which may answer yet."""
    return ShardConnectionFailed(f"Shard {shard} is slow to answer", retry_after_ms=1000)


def out_of_reach(name: str) -> ShardConnectionFailed:
    """What a call that needs a shard out of use is answered."""
    return ShardConnectionFailed(f"Shard {name} is out of reach", retry_after_ms=1000)


class GuardedShard:
    """Implements `storage.interface.Shard`. `observe` is told of each call's end: its error or None, and whether it took too long."""

    def __init__(
        self,
        shard: Shard,
        settings: ShardingSettings,
        in_use: Callable[[], bool],
        observe: Callable[[PinLaterError | None, bool], None],
    ) -> None:
        self.name = shard.name
        self.capabilities: Capabilities = shard.capabilities
        self._shard = shard
        self._call_s = settings.call_timeout_ms / 1000
        self._work_s = settings.work_timeout_ms / 1000
        self._in_use = in_use
        self._observe = observe

    def redirect(self, shard: Shard) -> None:
        """Another shard of this name has taken over: who still holds this one gets that one."""
        self._shard = shard

    # --- time limits ------------------------------------------------------------------------------------------------------

    async def _look(self, call: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        if not self._in_use():
            raise out_of_reach(self.name)
        late = ShardConnectionFailed(f"Shard {self.name} did not answer within {self._call_s:g} s", retry_after_ms=1000)
        return await self.bounded(call(*args, **kwargs), self._call_s, late)

    async def _change(self, call: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        if not self._in_use():
            raise out_of_reach(self.name)
        return await self.bounded(call(*args, **kwargs), self._call_s, too_late(self.name, self._call_s))

    async def _work(self, call: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        if not self._in_use():
            raise out_of_reach(self.name)
        return await self.bounded(call(*args, **kwargs), self._work_s, too_late(self.name, self._work_s))

    async def bounded(self, call: Coroutine[Any, Any, T], seconds: float, late: PinLaterError) -> T:
        """As `within`; the outcome counts."""
        try:
            result = await within(call, seconds, late)
        except PinLaterError as error:
            self._observe(error, error is late)
            raise
        self._observe(None, False)
        return result

    # --- life -------------------------------------------------------------------------------------------------------------

    @property
    def slot(self) -> int:
        return self._shard.slot

    @property
    def highest_id(self) -> int:
        return self._shard.highest_id

    def figures(self) -> Mapping[str, float]:
        return self._shard.figures()

    async def time_ms(self) -> int | None:
        return await self._look(self._shard.time_ms)

    async def announce(self, address: str) -> str:
        return await self._work(self._shard.announce, address)

    async def members(self) -> Sequence[Member]:
        return await self._look(self._shard.members)

    async def open(self, now_ms: int) -> None:
        await within(self._shard.open(now_ms), self._work_s, too_late(self.name, self._work_s))

    async def close(self) -> None:
        await self._shard.close()

    async def ping(self, now_ms: int | None = None) -> None:
        """Also while the shard is out of use; says nothing of its other calls."""
        await ping(self._shard, self._call_s, now_ms)

    # --- queues -----------------------------------------------------------------------------------------------------------

    async def create_queues(self, names: Sequence[str], now_ms: int, *, life: Life = LIFE_UNKNOWN) -> Sequence[Queue]:
        return await self._work(self._shard.create_queues, names, now_ms, life=life)

    async def merge_queues(self, queues: Sequence[Queue], now_ms: int) -> Sequence[Queue]:
        return await self._work(self._shard.merge_queues, queues, now_ms)

    async def delete_queues(self, names: Sequence[str], deleted_ms: int = 0, now_ms: int = 0) -> int:
        return await self._work(self._shard.delete_queues, names, deleted_ms, now_ms)

    async def list_queues(self) -> Sequence[Queue]:
        return await self._look(self._shard.list_queues)

    async def configure_queue(
        self, name: str, *, config: QueueConfig | None = None, paused: bool | None = None, version: str = ""
    ) -> None:
        await self._work(self._shard.configure_queue, name, config=config, paused=paused, version=version)

    # --- the three hot paths ------------------------------------------------------------------------------------------------

    async def insert_jobs(self, requests: Sequence[InsertRequest], now_ms: int) -> Sequence[Inserted | PinLaterError]:
        return await self._change(self._shard.insert_jobs, requests, now_ms)

    async def claim_jobs(self, orders: Sequence[ClaimOrder], now_ms: int) -> Sequence[Claimed | PinLaterError]:
        return await self._change(self._shard.claim_jobs, orders, now_ms)

    async def finish_jobs(self, acks: Sequence[Ack], now_ms: int) -> Sequence[Acked]:
        return await self._change(self._shard.finish_jobs, acks, now_ms)

    # --- keys across shards -------------------------------------------------------------------------------------------------

    async def find_requests(
        self, requests: Sequence[RequestRef], now_ms: int
    ) -> Sequence[Inserted | PinLaterError | None]:
        return await self._look(self._shard.find_requests, requests, now_ms)

    async def find_unique(self, keys: Sequence[UniqueRef], now_ms: int) -> Sequence[tuple[int, int] | None]:
        return await self._look(self._shard.find_unique, keys, now_ms)

    async def list_unique_queues(self) -> Sequence[UniqueHeld]:
        return await self._work(self._shard.list_unique_queues)

    async def timed_keys(self, now_ms: int) -> TimedKeys:
        return await self._work(self._shard.timed_keys, now_ms)

    async def changed_queues(self) -> Sequence[str]:
        return await self._look(self._shard.changed_queues)

    async def note_map(self, shard_map: str, now_ms: int) -> int:
        return await self._work(self._shard.note_map, shard_map, now_ms)

    # --- jobs in hand -------------------------------------------------------------------------------------------------------

    async def checkpoint_jobs(self, checkpoints: Sequence[Checkpoint], now_ms: int) -> Sequence[Acked | PinLaterError]:
        return await self._change(self._shard.checkpoint_jobs, checkpoints, now_ms)

    async def extend_claims(self, claims: Sequence[ClaimRef], now_ms: int) -> Sequence[Acked]:
        return await self._change(self._shard.extend_claims, claims, now_ms)

    async def release_jobs(self, claims: Sequence[ClaimRef], now_ms: int) -> Sequence[Acked]:
        return await self._change(self._shard.release_jobs, claims, now_ms)

    async def cancel_jobs(self, keys: Sequence[JobKey], now_ms: int) -> Sequence[Acked]:
        return await self._change(self._shard.cancel_jobs, keys, now_ms)

    async def run_jobs(self, orders: Sequence[RunOrder], now_ms: int) -> Sequence[Acked]:
        return await self._change(self._shard.run_jobs, orders, now_ms)

    # --- bulk ---------------------------------------------------------------------------------------------------------------

    async def requeue_failed_jobs(self, order: Requeue, now_ms: int) -> int | PinLaterError:
        return await self._work(self._shard.requeue_failed_jobs, order, now_ms)

    async def purge_jobs(self, order: Purge) -> int | PinLaterError:
        return await self._work(self._shard.purge_jobs, order)

    async def delete_jobs(self, keys: Sequence[JobKey], state: JobState | None = None) -> int:
        return await self._work(self._shard.delete_jobs, keys, state)

    # --- looking ------------------------------------------------------------------------------------------------------------

    async def peek_jobs(
        self, queue: str, limit: int, now_ms: int, max_bytes: int
    ) -> Sequence[ClaimedJob] | PinLaterError:
        return await self._look(self._shard.peek_jobs, queue, limit, now_ms, max_bytes)

    async def lookup_jobs(self, keys: Sequence[JobKey], *, bodies: bool) -> Sequence[Job | None]:
        return await self._look(self._shard.lookup_jobs, keys, bodies=bodies)

    async def scan_jobs(self, page: Page) -> Sequence[PageRow] | PinLaterError:
        return await self._work(self._shard.scan_jobs, page)

    async def count_jobs(self, queues: Sequence[str] | None = None) -> Sequence[QueueCounts]:
        return await self._work(self._shard.count_jobs, queues)

    # --- maintenance --------------------------------------------------------------------------------------------------------

    async def advance_due(self, now_ms: int, limit: int) -> int:
        return await self._work(self._shard.advance_due, now_ms, limit)

    async def time_out_claims(self, now_ms: int, limit: int) -> Sequence[Swept]:
        return await self._work(self._shard.time_out_claims, now_ms, limit)

    async def expire_jobs(self, now_ms: int, limit: int) -> Sequence[Swept]:
        return await self._work(self._shard.expire_jobs, now_ms, limit)

    async def collect_garbage(self, ttls: Sequence[TimeToLive], now_ms: int, limit: int) -> Sequence[Swept]:
        return await self._work(self._shard.collect_garbage, ttls, now_ms, limit)


async def within(call: Coroutine[Any, Any, T], seconds: float, late: PinLaterError) -> T:
    """The result of `call`, or `late` raised when it takes longer than `seconds`.

    It is cancelled then, but not waited for: a call that hangs may hang while it is cancelled too.
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
    """Raises `WorldError` where the shard couldn't serve a write now, or doesn't answer in time."""
    late = ShardConnectionFailed(f"Shard {shard.name} did not answer within {seconds:g} s", retry_after_ms=1000)
    await within(shard.ping(now_ms), seconds, late)


# Calls that were given up, until they have ended: the loop itself holds tasks only weakly.
_LATE: set[asyncio.Future[Any]] = set()


def _leave(task: asyncio.Future[Any]) -> None:
    task.cancel()
    _LATE.add(task)
    task.add_done_callback(_ended_late)


def _ended_late(task: asyncio.Future[Any]) -> None:
    _LATE.discard(task)
    if not task.cancelled():
        task.exception()  # looked at, so that nobody warns of it


def too_late(name: str, seconds: float) -> OutcomeUnknown:
    """A call that may have changed something was given up."""
    return OutcomeUnknown(
        f"Shard {name} did not answer within {seconds:g} s; what was asked of it may have been done or not",
        retry_after_ms=1000,
    )
