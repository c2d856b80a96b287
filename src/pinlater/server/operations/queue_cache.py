"""The queues and their settings, read from the store at most a few seconds ago.

The store decides whether a queue exists; this cache only saves most reads. If another server may have just made it, an unknown name is
looked up in the store, by one read after another, which all waiting callers share: callers with wrong names can't keep it busy.

Servers that hear each other report when they have changed queues (`is_outdated`). Then a read of all of them is rarely needed.

There may be thousands of queues. Queues that this server itself makes or deletes are noted here one by one. A full read is done in
pieces, so that other work on the event loop can run in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence

from pinlater.domain.clock import Clock
from pinlater.domain.errors import NoHealthyShards, QueueNotFound, Unavailable
from pinlater.domain.queue import NO_HOME, Home, Queue
from pinlater.server.dispatch.dispatcher import Dispatcher
from pinlater.server.sharding.shard_monitor import is_behind
from pinlater.server.sharding.shards import ShardLanes, Shards
from pinlater.server.storage.commands import AskState, ListQueues, MergeQueues

logger = logging.getLogger(__name__)

_LOOK_APART_S = 0.05
# Other servers may make a thousand queues one after the other.
_TOLD_LOOKS_APART_S = 1.0
# With many queues, reads take long: their interval grows so that they take at most this share of the time, up to the longest interval.
_LOOKING_PART, _LOOK_APART_S_MAX = 0.1, 1.0
_QUEUES_A_TURN = 2_000
# How old a list may be that no server has changed according to the shards: a change that an operator makes in a database may be in no sum.
_UNCHANGED_S_MAX = 600.0


class QueueCache:
    """All queues by name; at most `queues_max` may be made."""

    def __init__(self, shards: Shards, dispatcher: Dispatcher, clock: Clock, queues_max: int = 10_000) -> None:
        self._shards = shards
        self._dispatcher = dispatcher
        self._clock = clock
        self._shared = any(shard.unguarded.capabilities.shared for shard in shards)
        self.queues: dict[str, Queue] = {}
        """All queues by name, according to the last read of the store and this server's changes since. Code outside must not change it."""
        self.homes: dict[str, Home] = {}
        """The homes of those of these queues that have one. Code outside must not change it."""
        self.lifts_due: dict[tuple[str, str], Home] = {}
        """The homes with `Home.lift_due`, by shard and queue, according to the last read of the rows."""
        self._looked_at = -_LOOK_APART_S
        self._look_took_s = 0.0
        self._next_look: asyncio.Task[None] | None = None
        self._told_look: asyncio.Task[None] | None = None
        self._told_look_s = -math.inf
        # Queues that were made or deleted here while all were being read, by time: the result of the read may not show it. None: it was
        # deleted.
        self._noted: dict[str, tuple[int, Queue | None]] = {}
        self._serial = 0
        self._taken = 0
        self._readers = 0
        self.queues_max = queues_max
        self.changed_here: Callable[[], None] = lambda: None
        """Call it when this server has made, changed or deleted a queue, or may have."""
        self.is_outdated = True  # whether the last read may lack something: a change of another server, or queues of a shard that failed
        self._states: Mapping[
            str, Hashable
        ] = {}  # the states of the shards when they were last read; empty where they are not known
        self._read_s = -math.inf
        self._behind: Collection[tuple[str, Queue]] = ()  # rows of shards that had older settings at the last read

    async def require(self, name: str) -> Queue:
        """The queue; raises `QueueNotFound`. Reads the store if another server may have made it."""
        queue = self.queues.get(name)
        if queue is not None:
            return queue
        if self._shared:
            await self.look()
            queue = self.queues.get(name)
            if queue is not None:
                return queue
        raise QueueNotFound.of(name)

    def can_hold(self, name: str) -> bool:
        """Returns whether the queue is known, or may be made."""
        return name in self.queues or len(self.queues) < self.queues_max

    def add(self, queue: Queue) -> None:
        """Notes that the queue and its settings are in the store."""
        self._note(queue.name, queue)
        before = self.queues.get(queue.name)
        self.queues[queue.name] = queue
        self._set_home(queue.name, queue.home)
        self._dispatcher.limits.add(queue)
        if before is not None and before != queue:
            self._changed(before, queue)

    def _changed(self, before: Queue, queue: Queue) -> None:
        """Makes dequeues ask again: everywhere if jobs may be on a shard that is no longer a partition."""
        if before.partitions.number != queue.partitions.number:
            self._shards.look_everywhere(queue.name)
        self._dispatcher.wakeups.look_again(queue.name)

    def _set_home(self, name: str, home: Home) -> None:
        before = self.homes.get(name, NO_HOME)
        if home.version:
            self.homes[name] = home
        else:
            self.homes.pop(name, None)
        if before.shard != home.shard:
            self._shards.home_moved(name, before)

    def remove(self, name: str) -> None:
        """Notes that the queue is no longer in the store."""
        self._note(name, None)
        self.queues.pop(name, None)
        self.homes.pop(name, None)
        self._dispatcher.limits.remove(name)
        self._dispatcher.wakeups.queue_gone(name)

    def _note(self, name: str, queue: Queue | None) -> None:
        if self._readers:
            self._serial += 1
            self._noted[name] = (self._serial, queue)

    async def look(self) -> None:
        """Returns when a read that began after the call has ended. Raises as `refresh`."""
        if self._next_look is None:
            self._next_look = asyncio.create_task(self._look_soon())
            self._next_look.add_done_callback(_retrieve)
        await asyncio.shield(self._next_look)

    def another_changed(self) -> None:
        """Another server has made, changed or deleted a queue: reads soon, and if that fails, with the next `refresh_if_due`."""
        self.is_outdated = True
        if self._told_look is None:
            self._told_look = asyncio.create_task(self._look_as_told())

    async def _look_as_told(self) -> None:
        try:
            await asyncio.sleep(max(0.0, self._told_look_s + _TOLD_LOOKS_APART_S - self._clock.monotonic()))
        finally:
            self._told_look = None
        self._told_look_s = self._clock.monotonic()
        with contextlib.suppress(Unavailable):
            await self.look()

    async def _look_soon(self) -> None:
        apart_s = min(_LOOK_APART_S_MAX, max(_LOOK_APART_S, self._look_took_s / _LOOKING_PART))
        try:
            await asyncio.sleep(max(0.0, self._looked_at + apart_s - self._clock.monotonic()))
        finally:
            self._next_look = None
        await self.refresh()

    async def refresh_if_due(self, interval_s: float, told_interval_s: float) -> None:
        """Does the same as `refresh`, if the last one began long enough ago. `told_interval_s`: the interval while all reports of other
        servers are known; a shard that has not changed since is not read then."""
        is_rare = not self.is_outdated
        if self._clock.monotonic() - self._looked_at < (told_interval_s if is_rare else interval_s):
            return
        states = await self._read_states()
        if is_rare and states and states == self._states and self._clock.monotonic() - self._read_s < _UNCHANGED_S_MAX:
            self._looked_at = self._clock.monotonic()
            return
        began_s = self._clock.monotonic()
        await self.refresh()
        self._states, self._read_s = states, began_s

    async def _read_states(self) -> Mapping[str, Hashable]:
        """Returns the states by shard; empty if one of them is not known."""
        stores = {shard.name: shard.store for shard in self._shards.in_reach() if shard.shared is not None}
        states = await asyncio.gather(*(store.submit(AskState()) for store in stores.values()), return_exceptions=True)
        if any(state is None or isinstance(state, BaseException) for state in states):
            return {}
        return dict(zip(stores, states, strict=True))

    async def refresh(self) -> None:
        """Reads them again and passes on changes: limits, pauses, queues that are gone.

        The combined answer of the reachable shards counts. Raises `Unavailable` if none answers, and everything stays as it was. A read
        that ends after one that began later changes nothing.
        """
        self._serial += 1
        began, self._looked_at = self._serial, self._clock.monotonic()
        self._readers += 1
        self.is_outdated = False
        try:
            lists = await self._lists()
            known = await self._newest(lists)
            self._look_took_s = self._clock.monotonic() - self._looked_at
            if began < self._taken:
                return  # a read that began later was faster
            self._taken = began
            for name, (when, noted) in self._noted.items():
                if when > began and noted is not None:
                    known[name] = noted
                elif when > began:
                    known.pop(name, None)
        except BaseException:
            self.is_outdated = True
            raise
        finally:
            self._readers -= 1
            if not self._readers:
                self._noted.clear()
        before, self.queues = self.queues, known
        homes = {queue.name: queue.home for queue in known.values() if queue.home.version}
        for name in {*self.homes, *homes}:
            self._set_home(name, homes.get(name, NO_HOME))
        self.limits_changed()
        for name in [name for name in before if name not in known]:
            self._dispatcher.wakeups.queue_gone(name)
        await self._wake_changed(before, known)
        self._behind = await self._bring_settings(lists) if len(lists) > 1 else ()
        if self._behind or len(lists) < len(self._shards):
            self.is_outdated = True

    async def _newest(self, lists: Sequence[tuple[ShardLanes, Sequence[Queue]]]) -> dict[str, Queue]:
        """Each queue with its newest settings."""
        known: dict[str, Queue] = {}
        lifts_due: dict[tuple[str, str], Home] = {}
        for shard, queues in lists:
            for start in range(0, len(queues), _QUEUES_A_TURN):
                for queue in queues[start : start + _QUEUES_A_TURN]:
                    known[queue.name] = known.get(queue.name, queue).newest(queue)
                    if queue.home.lift_due:
                        lifts_due[shard.name, queue.name] = queue.home
                await asyncio.sleep(0)
        self.lifts_due = lifts_due
        return known

    async def _wake_changed(self, before: Mapping[str, Queue], known: Mapping[str, Queue]) -> None:
        names = list(known)
        for start in range(0, len(names), _QUEUES_A_TURN):
            for name in names[start : start + _QUEUES_A_TURN]:
                if name in before and name in known and known[name] != before[name]:
                    self._changed(before[name], known[name])
            await asyncio.sleep(0)

    async def _bring_settings(
        self, lists: Sequence[tuple[ShardLanes, Sequence[Queue]]]
    ) -> Collection[tuple[str, Queue]]:
        """Gives the newest settings to shards that have older ones: they were away, or the change failed there. The rows with older ones.

        Only if two reads show it: another server may be about to change the shards one after the other, and one of an older version keeps
        no versions.
        """
        behind: set[tuple[str, Queue]] = set()
        for shard, queues in lists:
            newer = []
            for queue in queues:
                known = self.queues.get(queue.name, queue)
                if is_behind(queue, known):
                    behind.add((shard.name, queue))
                    if (shard.name, queue) in self._behind:
                        newer.append(known)
            if newer:
                with contextlib.suppress(Unavailable):  # the next read retries
                    await shard.store.submit(MergeQueues(newer, self._clock.now_ms()))
                    logger.info("a shard got newer settings", extra={"shard": shard.name, "queues": len(newer)})
            await asyncio.sleep(0)
        return behind

    async def _lists(self) -> Sequence[tuple[ShardLanes, Sequence[Queue]]]:
        found = self._shards.in_reach()
        if not found:
            raise NoHealthyShards
        if len(found) == 1:
            return [(found[0], await found[0].store.submit(ListQueues()))]
        results = await asyncio.gather(*(shard.store.submit(ListQueues()) for shard in found), return_exceptions=True)
        failures = [result for result in results if isinstance(result, BaseException)]
        if len(failures) == len(found) or any(not isinstance(failure, Unavailable) for failure in failures):
            raise next((failure for failure in failures if not isinstance(failure, Unavailable)), failures[0])
        return [
            (shard, result)
            for shard, result in zip(found, results, strict=True)
            if not isinstance(result, BaseException)
        ]

    def limits_changed(self) -> None:
        """The limits' files may have changed: the dispatcher applies the limits in force now."""
        self._dispatcher.limits.refresh(self.queues)


def _retrieve(look: asyncio.Task[None]) -> None:
    """Marks the error as retrieved: its callers have it, and all of them may be gone by now."""
    if not look.cancelled():
        look.exception()
