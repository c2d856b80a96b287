"""Executes what other servers ask for in this server's own lanes, so that their items join its own. Never forwards it to a third server,
even if another one owns the queue by now. This server makes the ids of jobs that it stores: the slot in an id must be the one of the writer
that the store can refuse.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from pinlater.domain.errors import PinLaterError, ShardConnectionFailed
from pinlater.server.cluster.forwarding.messages import SINGLE, TOO_LATE, CallKind
from pinlater.server.sharding.lane import Lane
from pinlater.server.sharding.shards import ShardLanes, Shards
from pinlater.server.storage.values import InsertRequest, NewJob

_LANE_OF: Mapping[CallKind, Callable[[ShardLanes], Lane[Any, Any]]] = {
    kind: attrgetter(kind.name.lower()) for kind in CallKind
}


def own_lane(shard: ShardLanes, kind: CallKind) -> Lane[Any, Any]:
    """Returns the lane of this server for calls of this kind."""
    return _LANE_OF[kind](shard)


class CarryOut:
    """Executes calls of other servers with the lanes of `shards`. `catch_up(now_ms)`: follows the clock of the server that calls, so that
    a job which it stored as due is due for its next claim.
    """

    def __init__(self, shards: Shards, catch_up: Callable[[int], None]) -> None:
        self._shards = shards
        self._catch_up = catch_up

    def __call__(
        self, kind: CallKind, shard: str, items: Sequence[Any], begin_by_ms: int, sent_ms: int
    ) -> asyncio.Future[Sequence[Any]]:
        """A future of an answer for each item, with errors as values; it may fail as a whole."""
        self._catch_up(sent_ms)
        if self._shards.clock.now_ms() > begin_by_ms:
            return _failed(
                ShardConnectionFailed("The request came too late to the server that owns the queue", detail=TOO_LATE)
            )
        here = self._shards.get(shard)
        if here is None:
            return _failed(ShardConnectionFailed(f"The server that owns the queue does not use shard {shard}"))
        if not here.healthy:  # the other server has not learned of it yet
            return _failed(ShardConnectionFailed(f"The server that owns the queue can't reach shard {shard}"))
        lane = own_lane(here, kind)
        if kind not in SINGLE:
            try:
                return lane.submit(items)
            except PinLaterError as error:
                return _failed(error)
        if kind is CallKind.INSERT:
            items = [_prepared(here, request, begin_by_ms) for request in items]
        joined = JoinedAnswers(len(items))
        for item, asker in zip(items, joined.askers, strict=True):
            try:
                lane.submit(item, asker)
            except PinLaterError as error:
                asker.set_exception(error)
        return joined


class JoinedAnswers(asyncio.Future[Sequence[Any]]):
    """The answers to `count` items, once all have arrived. It fails as a whole only because of a bug."""

    def __init__(self, count: int) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self.askers: Sequence[_ItemAsker] = [_ItemAsker(self, place) for place in range(count)]
        self._answers: list[Any] = [None] * count
        self._left = count
        if not count:
            self.set_result(self._answers)

    def put(self, place: int, answer: object) -> None:
        """The answer to one item, once."""
        self._answers[place] = answer
        self._left -= 1
        if not self._left:
            self.askers = ()  # they refer to this object
            if not self.done():
                self.set_result(self._answers)

    def leave(self, places: Sequence[int]) -> None:
        """Handles callers that have gone: items that have not begun are dropped, and jobs that a claim still returns are given back."""
        for place in places:
            if 0 <= place < len(self.askers) and not self.askers[place].done():
                self.askers[place].set_exception(ShardConnectionFailed("The caller has gone"))


class _ItemAsker:
    """The `Asker` of one item, which puts its answer among the others: cheaper than a future with a callback for each."""

    __slots__ = ("_is_done", "_joined", "_place")

    def __init__(self, joined: JoinedAnswers, place: int) -> None:
        self._joined = joined
        self._place = place
        self._is_done = False

    def done(self) -> bool:
        return self._is_done

    def set_result(self, result: object, /) -> None:
        self._is_done = True
        self._joined.put(self._place, result)

    def set_exception(self, error: BaseException, /) -> None:
        self._is_done = True
        if isinstance(error, PinLaterError):
            self._joined.put(self._place, error)
        elif not self._joined.done():
            self._joined.set_exception(error)


def _prepared(shard: ShardLanes, request: InsertRequest, begin_by_ms: int) -> InsertRequest:
    """Returns the items with ids, marked so that none begins later than the call may."""
    make = tuple.__new__  # a quarter of the cost of `_replace`, for each forwarded job
    ids = shard.ids.make(len(request.jobs))
    jobs = [make(NewJob, (job_id, *job[1:])) for job_id, job in zip(ids, request.jobs, strict=True)]
    return request._replace(jobs=jobs, begin_by_ms=min(begin_by_ms, request.begin_by_ms))


def _failed(error: PinLaterError) -> asyncio.Future[Sequence[Any]]:
    future: asyncio.Future[Sequence[Any]] = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future
