"""What this server knows of the queues: their settings, from the store, at most a few seconds old.

The store decides whether a queue exists; this book only spares it the question. Where another server may have just made it, an unknown
name is looked for in the store, by one look after another that all who wait for one share: callers with wrong names can't keep it busy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from pinlater.dispatch.dispatcher import Dispatcher
from pinlater.domain.clock import Clock
from pinlater.domain.errors import NoHealthyShards, QueueNotFound, WorldError
from pinlater.domain.queue import Queue
from pinlater.sharding.shards import Shards

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
        self._looks_begun = self._look_taken = 0
        self._next_look: asyncio.Task[None] | None = None
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

        What the shards in reach have together counts. Raises `WorldError` where none answers, and all stays as it was. A look that ends
        after one that began later changes nothing.
        """
        self._looked_at = self._clock.monotonic()
        self._looks_begun += 1
        look = self._looks_begun
        known: dict[str, Queue] = {}
        for queues in await self._lists():
            for queue in queues:
                known.setdefault(queue.name, queue)
        if look < self._look_taken:
            return
        self._look_taken = look
        before, self._queues = self._queues, known
        self.limits_changed()
        for name in before.keys() - known.keys():
            self._dispatcher.queue_gone(name)
        for name in known.keys() & before.keys():
            if known[name] != before[name]:
                self._dispatcher.look_again(name)

    async def _lists(self) -> Sequence[Sequence[Queue]]:
        found = self._shards.in_reach()
        if not found:
            raise NoHealthyShards
        if len(found) == 1:
            return [await found[0].shard.list_queues()]
        results = await asyncio.gather(*(shard.shard.list_queues() for shard in found), return_exceptions=True)
        failures = [result for result in results if isinstance(result, BaseException)]
        if len(failures) == len(found) or any(not isinstance(failure, WorldError) for failure in failures):
            raise next((failure for failure in failures if not isinstance(failure, WorldError)), failures[0])
        return [result for result in results if not isinstance(result, BaseException)]

    def limits_changed(self) -> None:
        """The limits' files may have changed: the dispatcher takes over what holds now."""
        self._dispatcher.limits.refresh(self._queues)


def _retrieve(look: asyncio.Task[None]) -> None:
    """Who waited for it has its error; all may have gone meanwhile."""
    if not look.cancelled():
        look.exception()
