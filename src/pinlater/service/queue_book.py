"""What this server knows of the queues: their settings, from the store, at most a few seconds old.

The store decides whether a queue exists; this book only spares it the question. An unknown name is asked for at most once a
second, so that callers with wrong names can't keep the store busy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from pinlater.dispatch.dispatcher import Dispatcher
from pinlater.domain.clock import Clock
from pinlater.domain.errors import NoHealthyShards, QueueNotFound, WorldError
from pinlater.domain.queue import Queue
from pinlater.sharding.shards import Shards

_ASK_AGAIN_SECONDS = 1.0


class QueueBook:
    """All queues by name."""

    def __init__(self, shards: Shards, dispatcher: Dispatcher, clock: Clock) -> None:
        self._shards = shards
        self._dispatcher = dispatcher
        self._clock = clock
        self._shared = any(shard.shard.capabilities.shared for shard in shards)
        self._queues: dict[str, Queue] = {}
        self._asked_at = 0.0
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
        if self._shared and self._clock.monotonic() - self._asked_at >= _ASK_AGAIN_SECONDS:
            await self.refresh()
            queue = self._queues.get(name)
            if queue is not None:
                return queue
        raise QueueNotFound(name)

    async def refresh(self) -> None:
        """Reads them anew and passes on what changed: limits, pauses, queues that are gone.

        What the shards in reach have together counts. Raises `WorldError` where none answers, and all stays as it was.
        """
        self._asked_at = self._clock.monotonic()
        known: dict[str, Queue] = {}
        for queues in await self._lists():
            for queue in queues:
                known.setdefault(queue.name, queue)
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
