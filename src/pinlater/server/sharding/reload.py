"""The desired shard map, and how the current one is changed to it without dropping a request.

- A shard that is new is opened, gets all queues, and then accepts enqueues. One that can't be opened joins out of use and is retried.
- One with another address is replaced by a shard at the new one; the old one finishes its calls under way and closes.
- One that only drains gets no more enqueues.
- One that is no longer wanted drains, and is removed once it is empty and other servers have had time to learn of it. While it has live
  jobs, or unique keys that only time frees, it stays, and an error names their number.
- One whose data are lost is removed at once if it can't be asked, with all its jobs. One that answers is treated as one that is no longer
  wanted.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import NamedTuple

from pinlater.domain.clock import Clock
from pinlater.domain.errors import PinLaterError
from pinlater.domain.wording import counted
from pinlater.server.sharding.failure_kind import failure_kind
from pinlater.server.sharding.settings import ShardingSettings
from pinlater.server.sharding.shard_lanes import ShardLanes
from pinlater.server.sharding.shard_monitor import bring_up_to_date, open_shard
from pinlater.server.sharding.shards import Shards
from pinlater.server.storage.commands import CountJobs, CountTimedKeys
from pinlater.server.storage.interface import Shard

logger = logging.getLogger(__name__)

_IF_LOST = ' (if its data are lost for good, put its entry back with "lostForGood": true)'


class DesiredShard(NamedTuple):
    """A shard as the operator wants it. `make` makes the unopened shard; it is called again if `address` differs from before.

    `address` contains everything that makes it another shard: host, port, database, login. It is compared, never logged.
    `shown_address` is for operators, without a password. `lost`: its data are gone for good, and it is no longer wanted.
    """

    name: str
    make: Callable[[], Shard]
    address: str = ""
    takes_enqueues: bool = True
    shown_address: str = ""
    lost: bool = False


class MapChange(NamedTuple):
    """The result of a reload: names. `kept`: shards that are no longer wanted, and why they are still there. `unopened`: shards that are
    still out of use, and why.
    `lost`: those of `removed` that are marked as lost."""

    added: Sequence[str] = ()
    moved: Sequence[str] = ()
    draining: Sequence[str] = ()
    taking_enqueues: Sequence[str] = ()
    removed: Sequence[str] = ()
    kept: Mapping[str, str] = {}
    unopened: Mapping[str, str] = {}
    lost: Sequence[str] = ()


async def open_shards(
    desired: Sequence[DesiredShard], clock: Clock, random: Random, settings: ShardingSettings | None = None
) -> Shards:
    """The map to start with, without lost shards. Those that can't be opened join out of use; raises the first one's `Unavailable` if
    none can.

    If none is open in time but some are being opened (a schema migration runs), it waits for the first of them.
    """
    settings = settings or ShardingSettings()
    wanted = [one for one in desired if not one.lost]
    made = list(await asyncio.gather(*(_made(one, clock, random, settings) for one in wanted)))
    while all(error is not None for _, error in made):
        opening = [index for index, (shard, _) in enumerate(made) if shard.opening is not None]
        if not opening:
            break
        again = await asyncio.gather(*(_opened(made[index][0]) for index in opening))
        for index, result in zip(opening, again, strict=True):
            made[index] = result
    failures = [error for _, error in made if error is not None]
    if len(failures) == len(made):
        await asyncio.gather(*(shard.unguarded.close() for shard, _ in made), return_exceptions=True)
        raise failures[0]
    for shard, error in made:
        shard.is_new = error is not None
        if error is not None:
            logger.error("a shard is unreachable", extra={"shard": shard.name, "reason": error.message})
    shards = Shards([shard for shard, _ in made], random, settings)
    shards.gone.update({one.name: math.inf for one in desired if one.lost})
    return shards


async def _made(
    one: DesiredShard, clock: Clock, random: Random, settings: ShardingSettings, registered_as: str = ""
) -> tuple[ShardLanes, PinLaterError | None]:
    shard = ShardLanes(
        one.make(), clock, takes_enqueues=one.takes_enqueues, settings=settings, spread=random.random, opened=False
    )
    shard.address = one.address
    shard.shown_address = one.shown_address
    if shard.shared is not None:
        shard.shared.register_as(registered_as)
    return await _opened(shard)


async def _opened(shard: ShardLanes) -> tuple[ShardLanes, PinLaterError | None]:
    try:
        if shard.trusted:  # without a limit: the recovery of a large file may take long
            await shard.unguarded.open(shard.clock.now_ms())
            shard.now_open()
        else:
            await open_shard(shard)
    except PinLaterError as error:
        shard.put_out_of_use(error.message)
        shard.health.probe_failed(error.message, failure_kind(error))
        return shard, error
    shard.health.begin()
    shard.healthy = True
    return shard, None


class Reload:
    """Changes one map, in one call at a time."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self._changing = asyncio.Lock()

    async def replace(self, desired: Sequence[DesiredShard]) -> MapChange:
        """Changes the map to the desired one, as far as possible now; `tidy` does the rest later. Raises ValueError for an empty map."""
        lost = {one.name for one in desired if one.lost}
        desired = [one for one in desired if not one.lost]
        names = [one.name for one in desired]
        if not desired or len(set(names)) < len(names):
            raise ValueError("a shard map needs shards, each with a name of its own")
        async with self._changing:
            shards = self._shards
            before = {shard.name: shard for shard in shards}
            fresh = [one for one in desired if one.name not in before or before[one.name].address != one.address]
            made = await asyncio.gather(
                *(_made(one, shards.clock, shards.random, shards.settings, shards.registered_as) for one in fresh)
            )
            unopened = {shard.name: error.message for shard, error in made if error is not None}
            for shard, error in made:
                shard.moved = shard.name in before
                if error is None:
                    await self._prepare(shard, unopened)
            change = self._take_over(desired, before, {shard.name: shard for shard, _ in made})
            for shard in shards:
                shard.lost = shard.name in lost
            gone = await self._let_go()
            shards.gone |= dict.fromkeys(lost - {shard.name for shard in shards}, math.inf)
        change = change._replace(removed=gone.removed, kept=gone.kept, unopened=unopened, lost=gone.lost)
        self._say(change)
        return change

    async def tidy(self) -> MapChange:
        """Removes shards that are empty now, and returns what it removed and kept. Call it every few seconds."""
        change = MapChange()
        if any(shard.leaving for shard in self._shards):
            async with self._changing:
                change = await self._let_go()
            if change.removed:
                logger.info("shards removed", extra={"shards": change.removed})
        return change

    async def _prepare(self, shard: ShardLanes, unopened: dict[str, str]) -> None:
        try:
            await bring_up_to_date(self._shards, shard)
        except PinLaterError as error:
            shard.put_out_of_use(error.message)
            shard.health.probe_failed(error.message, failure_kind(error))
            unopened[shard.name] = error.message

    def _take_over(
        self, desired: Sequence[DesiredShard], before: Mapping[str, ShardLanes], made: Mapping[str, ShardLanes]
    ) -> MapChange:
        """Has no await, so a caller sees the map before or after the change, never in between."""
        shards = self._shards
        lanes, added, moved, draining, taking = [], [], [], [], []
        for one in desired:
            old, shard = before.get(one.name), made.get(one.name)
            if old is None and shard is not None:
                added.append(one.name)
            elif old is not None and shard is not None:
                moved.append(one.name)
                if not one.takes_enqueues and not old.takes_enqueues:
                    shard.closed_to_enqueues_at = old.closed_to_enqueues_at
                shard.was_home_s = old.was_home_s
                shard.hooks = shards.hooks
                old.hand_over(shard)
                shards.close_later(old)
            elif old is not None:
                shard = old
                shard.leaving = False
                if one.takes_enqueues and not old.takes_enqueues:
                    taking.append(one.name)
                    shards.change_enqueues(shard, takes=True)
                elif old.takes_enqueues and not one.takes_enqueues:
                    draining.append(one.name)
                    shards.change_enqueues(shard, takes=False)
            if shard is not None:
                lanes.append(shard)
        wanted = {one.name for one in desired}
        for name, shard in before.items():
            if name not in wanted:
                shard.leaving = True
                shards.change_enqueues(shard, takes=False)
                lanes.append(shard)
        shards.take_over_map(lanes)
        if added or moved:
            shards.hooks.back()
        return MapChange(added, moved, draining, taking)

    async def _let_go(self) -> MapChange:
        """Removes the shards that may go. Returns the others with the reason why not."""
        shards = self._shards
        removed: list[str] = []
        lost: list[str] = []
        kept: dict[str, str] = {}
        for shard in [shard for shard in shards if shard.leaving]:
            reason = await self._why_it_stays(shard)
            if reason is not None:
                kept[shard.name] = reason
                continue
            removed.append(shard.name)
            if shard.lost:
                lost.append(shard.name)
            shards.take_over_map([other for other in shards if other is not shard])
            shards.gone[shard.name] = math.inf if shard.lost else shards.clock.now_ms()
            shards.close_later(shard)
        return MapChange(removed=removed, kept=kept, lost=lost)

    async def _why_it_stays(self, shard: ShardLanes) -> str | None:
        """Returns why the shard must stay, or None if it may go."""
        try:
            return await self._why_it_is_needed(shard)
        except PinLaterError as error:
            if not shard.lost:
                return f"it can't be asked whether it is empty: {error.message}{_IF_LOST}"
            found = {"shard": shard.name, "reason": error.message}
            logger.warning("a shard that is marked as lost is given up with all its jobs", extra=found)
            return "it is the only one" if len(self._shards) == 1 else None

    async def _why_it_is_needed(self, shard: ShardLanes) -> str | None:
        rows = await shard.store.submit(CountJobs())
        keys = await shard.store.submit(CountTimedKeys(shard.clock.now_ms()))
        live = sum(row.counts.pending + row.counts.in_progress for row in rows)
        if live:
            return f"it holds {counted(live, 'live job')}; drain it (dequeueOnly) before it is taken out"
        if keys.number:
            return f"it holds {keys}; its jobs would be taken as new without it (`pinlater shards remove --lose-keys`)"
        if len(self._shards) == 1:
            return "it is the only one"
        if any(queue.home.is_at(shard.name) for queue in self._shards.known_queues()):
            return "jobs with ordering keys of some queues still go there; within seconds they go to another shard"
        if any(queue.home.former == shard.name for queue in self._shards.known_queues()):
            return "jobs with ordering keys of some queues still wait for those that it has, among them failed ones that stop their key"
        grace_s = self._shards.settings.removal_grace_ms / 1000
        if not shard.closed_to_enqueues_for(grace_s):
            return f"it is empty, and goes once it has had no enqueue for {grace_s:g} s"
        return None

    def _say(self, change: MapChange) -> None:
        for name, reason in change.kept.items():
            level = (
                logging.ERROR if any(sign in reason for sign in ("live job", "unique key", "can't")) else logging.INFO
            )
            logger.log(level, "a shard taken out of the map is kept", extra={"shard": name, "reason": reason})
        for name, reason in change.unopened.items():
            logger.error("a shard is unreachable", extra={"shard": name, "reason": reason})
        done = {name: value for name, value in change._asdict().items() if value and name not in {"kept", "unopened"}}
        if done:
            logger.info("the shard map has changed", extra=done)
