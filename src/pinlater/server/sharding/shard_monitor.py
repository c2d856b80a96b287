"""Looks after the shards: gives up calls that take too long, probes shards that are out of use, and updates those that are back.

A look costs no I/O if all is well. Each probe is a task of its own, so that a hung shard delays no other probe.
"""

from __future__ import annotations

import asyncio
import logging

from pinlater.domain.errors import PinLaterError
from pinlater.domain.queue import Queue, Versions
from pinlater.server.sharding.failure_kind import NoAnswerInTime, failure_kind
from pinlater.server.sharding.guarded import ping, too_late, within
from pinlater.server.sharding.shard_lanes import ShardLanes
from pinlater.server.sharding.shards import Shards
from pinlater.server.storage.commands import ConfigureQueue, ListQueues, MergeQueues

logger = logging.getLogger(__name__)

# If two looks are further apart than this, the process stood still; that isn't held against the shards.
_LATE_S = 1.0


class ShardMonitor:
    """Watches the shards. Call it every `watch_interval_ms`."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self._settings = shards.settings
        self._probes: dict[ShardLanes, asyncio.Task[None]] = {}
        self._looked_at: float | None = None

    async def look(self) -> None:
        now = self._shards.clock.monotonic()
        before, self._looked_at = self._looked_at, now
        late_s = 0.0 if before is None else now - before - self._settings.watch_interval_ms / 1000
        for shard in list(self._shards):
            if late_s > _LATE_S:
                shard.forgive(late_s)
            if shard.look_at_calls() and any(other.usable for other in self._shards if other is not shard):
                shard.refuse_waiting_inserts()
            if not shard.trusted and shard not in self._probes and shard.health.probe_due():  # which says so once
                task = self._probes[shard] = asyncio.create_task(self._probe(shard), name=f"probe {shard.name}")
                task.add_done_callback(lambda _, shard=shard: self._probes.pop(shard, None))  # type: ignore[misc]

    async def probes_done(self) -> None:
        """Waits for the probes that are under way."""
        if self._probes:
            await asyncio.wait(list(self._probes.values()))

    async def ping_all(self) -> None:
        """Sends a probe to every shard in use, even without calls; the others are probed when their time comes."""
        for shard in self._shards.in_reach():
            if not shard.trusted:
                shard.health.suspect()
        await self.look()
        await self.probes_done()

    async def bring_all_up_to_date(self) -> None:
        """At the start, makes the queues that were made while a shard was unreachable on that shard, and gives all shards the newest
        settings.

        Settings without versions stay as they are on each shard: which are newer is unknown.
        """
        shards = self._shards.in_reach()
        if len(shards) < 2:
            return
        results = await asyncio.gather(
            *(bring_up_to_date(self._shards, shard, settings=False) for shard in shards), return_exceptions=True
        )
        for shard, result in zip(shards, results, strict=True):
            if isinstance(result, PinLaterError):
                shard.health.suspect()
            elif isinstance(result, BaseException):
                raise result

    async def close(self) -> None:
        """Cancels the probes."""
        for task in list(self._probes.values()):
            task.cancel()
        await self.probes_done()

    # --- probes -----------------------------------------------------------------------------------------------------------

    async def _probe(self, shard: ShardLanes) -> None:
        health = shard.health
        try:
            if not shard.opened:
                await open_shard(shard)
            else:
                await ping(shard.unguarded, self._settings.probe_timeout_ms / 1000, shard.clock.now_ms())
            if not health.healthy:
                await bring_up_to_date(self._shards, shard)
        except PinLaterError as error:
            health.probe_failed(error.message, failure_kind(error))
        except Exception as error:
            logger.exception("a probe failed by a bug", extra={"shard": shard.name})
            health.probe_failed(repr(error), failure_kind(error))
        else:
            health.probe_succeeded()
        was_unreachable = not shard.healthy
        shard.follow_health()
        if shard.healthy:
            await self._catch_up(shard, was_unreachable=was_unreachable)

    async def _catch_up(self, shard: ShardLanes, *, was_unreachable: bool) -> None:
        """Updates shards that came back when no other shard could be asked, and those that were unreachable until now, with the queues
        that were created meanwhile.
        """
        for other in self._shards.in_reach():
            if was_unreachable if other is shard else other.is_behind:
                try:
                    await bring_up_to_date(self._shards, other, settings=False)
                except PinLaterError as error:
                    logger.warning("a shard may lack queues", extra={"shard": other.name, "reason": error.message})


async def open_shard(shard: ShardLanes) -> None:
    """Opens it. Raises `Unavailable`, also when it takes too long; then it continues in the background, because a schema migration may
    take long, and the next call waits for it again."""
    seconds = shard.settings.work_timeout_ms / 1000
    if shard.opening is None:
        shard.opening = asyncio.ensure_future(shard.unguarded.open(shard.clock.now_ms()))
    done, _ = await asyncio.wait({shard.opening}, timeout=seconds)
    if not done:
        raise NoAnswerInTime(f"Shard {shard.name} is not open yet after {seconds:g} s")
    opening, shard.opening = shard.opening, None
    opening.result()
    shard.now_open()


async def bring_up_to_date(shards: Shards, shard: ShardLanes, *, settings: bool = True) -> None:
    """Gives a shard that is new or was unreachable the queues that the others have now, with their settings if those are newer.

    The shard loses no queue.
    With `settings` False, queues that it has keep their settings if it is not known which are newer (earlier servers kept no versions).
    If no other shard can be asked, a shard that was unreachable stays as it is: what this server remembers is older, and would restore
    deleted queues and revert changes of settings. Only a new shard gets that. The shard accepts no queue that it has deleted since it was
    made, so however old the queues read here are, none of these comes back.

    Weakness: a queue that was deleted from the others meanwhile still exists there; the caller of the delete got an error that reports it.
    """
    seconds = shard.settings.work_timeout_ms / 1000
    late = too_late(shard.name, seconds)
    known = await _queues_of_others(shards, shard)
    if known is None and not shard.is_new:
        shard.is_behind = len(shards) > 1
        return
    if known is None:
        known = list(shards.known_queues())
    found = {queue.name: queue for queue in await within(shard.unguarded.submit(ListQueues()), seconds, late)}
    missing = [queue.name for queue in known if queue.name not in found]
    if shard.moved and len(missing) == len(known) > 0:
        logger.error(
            "a shard has moved to a place that holds none of its queues; is the address the right one?",
            extra={"shard": shard.name, "reason": "what it held at the old one is out of sight"},
        )
    shard.moved = False
    newer = [queue for queue in known if queue.name not in found or is_behind(found[queue.name], queue)]
    if newer:
        await within(shard.unguarded.submit(MergeQueues(newer, shard.clock.now_ms())), seconds, late)
        logger.info("queues brought up to date on a shard", extra={"shard": shard.name, "queues": len(newer)})
    for queue in known if settings else ():
        has = found.get(queue.name, queue)
        if has.versions == queue.versions == Versions() and (has.config, has.paused) != (queue.config, queue.paused):
            await within(
                shard.unguarded.submit(ConfigureQueue(queue.name, config=queue.config, paused=queue.paused)),
                seconds,
                late,
            )
    shard.is_new = shard.is_behind = False


def is_behind(has: Queue, known: Queue) -> bool:
    """Returns whether this row of a queue on a shard lacks something that is known about the queue."""
    return has.versions != known.versions or has.life != known.life or known.home.newer_than(has.home)


async def _queues_of_others(shards: Shards, shard: ShardLanes) -> list[Queue] | None:
    """Returns the queues of all other reachable shards together, each with its newest settings, or None if none of these answers."""
    others = [other for other in shards.in_reach() if other is not shard]
    answers = await asyncio.gather(*(other.store.submit(ListQueues()) for other in others), return_exceptions=True)
    known: dict[str, Queue] = {}
    for answer in answers:
        if not isinstance(answer, BaseException):
            for queue in answer:
                known[queue.name] = known.get(queue.name, queue).newest(queue)
        elif not isinstance(answer, PinLaterError):
            raise answer
    return None if all(isinstance(answer, BaseException) for answer in answers) else list(known.values())
