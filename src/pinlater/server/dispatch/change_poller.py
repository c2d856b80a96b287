"""Wakes dequeues for jobs that other servers of the same shards made ready: compares the counts that the servers keep in the store.

This is the slow way, which needs nothing but the store: a dequeue that waits here learns of a job enqueued elsewhere within about a
second. It costs nothing while no dequeue waits, and one shared read a second while all are idle.
"""

from __future__ import annotations

import asyncio

from pinlater.domain.errors import PinLaterError
from pinlater.server.dispatch.dispatcher import Dispatcher
from pinlater.server.sharding.shards import Shards
from pinlater.server.storage.commands import ListChangedQueues


class ChangePoller:
    """Call `look` about once a second."""

    def __init__(self, shards: Shards, dispatcher: Dispatcher) -> None:
        self._shards = shards
        self._dispatcher = dispatcher

    async def look(self) -> None:
        """Wakes the dequeues of each queue in which another server changed something.

        Raises the error of a shard that failed, after the others' answers were used.
        """
        if not self._dispatcher.waiting():
            return
        shards = [shard for shard in self._shards.in_reach() if shard.shared is not None]
        answers = await asyncio.gather(
            *(shard.store.submit(ListChangedQueues()) for shard in shards), return_exceptions=True
        )
        changed = set[str]()
        for shard, answer in zip(shards, answers, strict=True):
            if not isinstance(answer, BaseException):
                changed.update(answer)
                for queue in answer:
                    self._shards.strays.heard(queue, [shard.name])
        for queue in changed:
            self._dispatcher.wakeups.look_again(queue)
        for answer in answers:
            if isinstance(answer, PinLaterError):
                raise answer
