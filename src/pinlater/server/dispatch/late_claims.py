"""The claims of a dequeue that slow shards have not answered yet.

A dequeue that waits continues without a slow shard, since others may have jobs. It still takes the jobs of such a claim, unless it has
other jobs by then. Otherwise, the jobs of a shard whose claims always take that long would be claimed and given back again and again.

Weakness: the server that owns the queue asks such a shard only while none of its own calls to the shard has taken half a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pinlater.server.sharding.job_lanes import AnyLane
from pinlater.server.sharding.joined_claims import ClaimRequest
from pinlater.server.sharding.shard_lanes import ShardLanes
from pinlater.server.storage.values import Claimed


class LateAnswer(NamedTuple):
    """A claim result that arrives late."""

    shard: str
    request: ClaimRequest
    claimed: Claimed


class LateClaims:
    """Keeps the late claims of one dequeue. `give_back` takes jobs that the dequeue no longer takes; call `end` at its end."""

    __slots__ = ("_awaited", "_come", "_give_back", "_waiter", "is_over")

    def __init__(self, give_back: Callable[[str, ClaimRequest, Claimed], None]) -> None:
        self._give_back = give_back
        self._awaited: dict[str, ClaimAsker] = {}  # by shard
        self._come: LateAnswer | None = None
        self._waiter: asyncio.Future[bool] | None = None
        self.is_over = False
        """Whether the dequeue no longer takes anything."""

    def __bool__(self) -> bool:
        """Whether any claim is still unanswered, or was answered with jobs that are not taken."""
        return bool(self._awaited) or self._come is not None

    def without_awaited(self, shards: Sequence[ShardLanes], queue: str) -> Sequence[ShardLanes]:
        """The shards without those that have not answered the last claim yet. These are asked again only after that, or by another route:
        the owner to which the claim was sent may be lost."""
        return [shard for shard in shards if not self._awaits(shard.name, shard.lanes_of(queue).claim)]

    def _awaits(self, shard: str, lane: AnyLane) -> bool:
        asker = self._awaited.get(shard)
        return asker is not None and asker.lane is lane

    def keep(self, asker: ClaimAsker) -> None:
        """The dequeue continues without this claim, and takes its jobs when they arrive."""
        if not asker.is_settled:
            self._awaited[asker.shard] = asker

    def wakes(self, waiter: asyncio.Future[bool]) -> None:
        """The dequeue waits, until jobs arrive or `waiter` is done."""
        self._waiter = waiter
        self._wake()

    def take(self) -> LateAnswer | None:
        """The jobs that have arrived; each is returned once."""
        come, self._come = self._come, None
        return come

    def end(self) -> None:
        """The dequeue is answered, or its caller has gone."""
        self.is_over = True
        self._awaited.clear()
        come = self.take()
        if come is not None:
            self._give_back(*come)

    def came(self, asker: ClaimAsker, claimed: Claimed | None) -> None:
        """A late result of a claim; None for a failure."""
        if self._awaited.get(asker.shard) is asker:
            del self._awaited[asker.shard]
        if claimed is None or not any(claimed.jobs):
            return
        if self._come is None:
            self._come = LateAnswer(asker.shard, asker.request, claimed)
            self._wake()
        else:
            self._give_back(asker.shard, asker.request, claimed)

    def _wake(self) -> None:
        if self._come is not None and self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(True)


class ClaimAsker:
    """The receiver of a lane's answer: the future that the dequeue awaits, and, after it has failed because the shard is slow, its
    `LateClaims`.

    A lane silently drops an item that is `done`. So this is not done after the failure, unless the dequeue has ended.
    """

    __slots__ = ("_late", "answer", "is_settled", "lane", "request", "shard")

    def __init__(self, shard: str, lane: AnyLane, request: ClaimRequest, late: LateClaims) -> None:
        self.shard = shard
        self.lane = lane
        self.request = request
        self.answer: asyncio.Future[Claimed] = asyncio.get_running_loop().create_future()
        self.is_settled = False  # by the lane
        self._late = late

    def done(self) -> bool:
        """Whether the dequeue no longer takes an answer."""
        return self.is_settled or self.answer.cancelled() or (self.answer.done() and self._late.is_over)

    def set_result(self, claimed: Claimed, /) -> None:
        self.is_settled = True
        if self.answer.done():
            self._late.came(self, claimed)
        else:
            self.answer.set_result(claimed)

    def set_exception(self, error: BaseException, /) -> None:
        self.is_settled = True
        if self.answer.done():
            self._late.came(self, None)
        else:
            self.answer.set_exception(error)
