"""What this server knows of the queues: their settings, from the store, at most a few seconds old.

The store decides whether a queue exists; this book only spares it the question. Where another server may have just made it, an unknown
name is looked for in the store, by one look after another that all who wait for one share: callers with wrong names can't keep it busy.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection, Mapping, Sequence

from pinlater.dispatch.dispatcher import Dispatcher
from pinlater.domain.clock import Clock
from pinlater.domain.errors import NoHealthyShards, QueueNotFound, WorldError
from pinlater.domain.queue import Queue
from pinlater.sharding.shards import ShardLanes, Shards
from pinlater.sharding.watch import newer_settings

logger = logging.getLogger(__name__)

_LOOK_APART_S = 0.05


class QueueBook:
    """All queues by name."""

    def __init__(self, shards: Shards, dispatcher: Dispatcher, clock: Clock) -> None:
        self._shards = shards
        self._dispatcher = dispatcher
        self._clock = clock
        self._shared = any(shard.shard.capabilities.shared for shard in shards)
        self._queues: dict[str, Queue] = {}
        self._looked_at = -_LOOK_APART_S
        self._next_look: asyncio.Task[None] | None = None
        self._behind: Collection[tuple[str, Queue]] = ()  # rows of shards that had older settings at the last look
        shards.known_queues = lambda: self._queues.values()

    @property
    def queues(self) -> Mapping[str, Queue]:
        """As last read."""
        return self._queues

    def get(self, name: str) -> Queue | None:
        """The queue, if it is known; no I/O."""
        return self._queues.get(name)

    async def require(self, name: str) -> Queue:
        """The queue; raises `QueueNotFound`. Looks into the store where another server may have made it."""
        queue = self._queues.get(name)
        if queue is not None:
            return queue
        if self._shared:
            await self._look()
            queue = self._queues.get(name)
            if queue is not None:
                return queue
        raise QueueNotFound(name)

    async def _look(self) -> None:
        """Returns when a look that began after the call has ended. Raises as `refresh`."""
        if self._next_look is None:
            self._next_look = asyncio.create_task(self._look_soon())
            self._next_look.add_done_callback(_retrieve)
        await asyncio.shield(self._next_look)

    async def _look_soon(self) -> None:
        try:
            await asyncio.sleep(max(0.0, self._looked_at + _LOOK_APART_S - self._clock.monotonic()))
        finally:
            self._next_look = None
        await self.refresh()

    async def refresh(self) -> None:
        """Reads them anew and passes on what changed: limits, pauses, queues that are gone.

        What the shards in reach have together counts. Raises `WorldError` where none answers, and all stays as it was.
        """
        self._looked_at = self._clock.monotonic()
        known: dict[str, Queue] = {}
        lists = await self._lists()
        for _, queues in lists:
            for queue in queues:
                known[queue.name] = known.get(queue.name, queue).newest(queue)
        before, self._queues = self._queues, known
        self.limits_changed()
        for name in before.keys() - known.keys():
            self._dispatcher.queue_gone(name)
        for name in known.keys() & before.keys():
            if known[name] != before[name]:
                self._dispatcher.look_again(name)
        if len(lists) > 1:
            await self._bring_settings(lists)

    async def _bring_settings(self, lists: Sequence[tuple[ShardLanes, Sequence[Queue]]]) -> None:
        """Gives the newest settings to shards that have older ones: they were away, or the change failed there.

        Only where two looks say so: another server may be about to change the shards one after the other, and one of an older version
        keeps no versions.
        """
        behind = {
            (shard.name, queue): shard
            for shard, queues in lists
            for queue in queues
            if queue.versions != self._queues[queue.name].versions
        }
        before, self._behind = self._behind, behind.keys()
        for (name, queue), shard in behind.items():
            if (name, queue) not in before:
                continue
            for call in newer_settings(shard.shard, queue, self._queues[queue.name]):
                with contextlib.suppress(WorldError, QueueNotFound):  # the next look tries again
                    await call()
                    logger.info("a shard got newer settings", extra={"shard": name, "queue": queue.name})

    async def _lists(self) -> Sequence[tuple[ShardLanes, Sequence[Queue]]]:
        found = self._shards.in_reach()
        if not found:
            raise NoHealthyShards
        if len(found) == 1:
            return [(found[0], await found[0].shard.list_queues())]
        results = await asyncio.gather(*(shard.shard.list_queues() for shard in found), return_exceptions=True)
        failures = [result for result in results if isinstance(result, BaseException)]
        if len(failures) == len(found) or any(not isinstance(failure, WorldError) for failure in failures):
            raise next((failure for failure in failures if not isinstance(failure, WorldError)), failures[0])
        return [
            (shard, result)
            for shard, result in zip(found, results, strict=True)
            if not isinstance(result, BaseException)
        ]

    def limits_changed(self) -> None:
        """The limits' files may have changed: the dispatcher takes over what holds now."""
        self._dispatcher.limits.refresh(self._queues)


def _retrieve(look: asyncio.Task[None]) -> None:
    """Who waited for it has its error; all may have gone meanwhile."""
    if not look.cancelled():
        look.exception()
