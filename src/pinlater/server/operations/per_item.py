"""Calls of holders about jobs on several shards, with a shard's error as the outcome of the items on it.

A shard that is away, or slow, delays neither the items of other shards nor a claim that follows: the call waits for it only until it is
seen to be slow. Items that were sent by then may be executed all the same, so the outcome is unknown; claim tokens make it safe to send
them again. If nothing else would be delayed, the call waits as long as any other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pinlater.domain.errors import PinLaterError
from pinlater.server.dispatch.shard_deadlines import Overdue
from pinlater.server.operations.addressing import KEYS_A_CALL, OnShard
from pinlater.server.sharding.guarded import shard_unreachable, slow_to_answer, too_late
from pinlater.server.sharding.job_lanes import AnyLane, JobLanes
from pinlater.server.sharding.shards import Shards
from pinlater.server.storage.values import Acked

logger = logging.getLogger(__name__)

LaneOf = Callable[[JobLanes], AnyLane]
Orders = Callable[[OnShard], Sequence[Any]]


class PerItem:
    """Sends each part to its shard's lane and puts the results at the request's positions. One timer for all waiting parts."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self._stall_s = shards.settings.stall_ms / 1000
        self._overdue: Overdue[str] = Overdue(self._stall_s, self._give_up)

    async def carry_out(
        self,
        parts: Sequence[OnShard],
        lane_of: LaneOf,
        orders: Orders,
        answers: list[Acked | PinLaterError],
        *,
        then_claims: bool,
    ) -> list[Acked | PinLaterError]:
        """`answers`, with those of the parts in place. `then_claims`: a claim waits for this call.

        If a part has more than `KEYS_A_CALL` jobs, that many are sent at a time, one piece of each part side by side.
        """
        holds_up = len(self._shards) > 1 and (len(parts) > 1 or then_claims)
        if max([len(part.keys) for part in parts], default=0) <= KEYS_A_CALL:
            return await self._carry_out(parts, lane_of, orders, answers, holds_up=holds_up)
        for pieces in _in_pieces(parts):
            await self._carry_out(pieces, lane_of, orders, answers, holds_up=holds_up)
            await asyncio.sleep(0)  # a store in this process may have answered without a turn of the loop
        return answers

    async def _carry_out(
        self,
        parts: Sequence[OnShard],
        lane_of: LaneOf,
        orders: Orders,
        answers: list[Acked | PinLaterError],
        *,
        holds_up: bool,
    ) -> list[Acked | PinLaterError]:
        sent: list[tuple[OnShard, asyncio.Future[Any]]] = []
        try:
            for part in parts:
                try:
                    lane = lane_of(part.shard.lanes_of(part.keys[0].queue))  # the jobs of a part are all of one queue
                    sent.append((part, self._send(part, lane, orders(part), holds_up=holds_up)))
                except PinLaterError as error:
                    _fail(part, error, answers)
            for part, answer in sent:
                try:
                    values = await answer
                except PinLaterError as error:
                    _fail(part, error, answers)
                else:
                    if len(values) == len(answers):
                        return list(values)  # all jobs of the request are here
                    for index, value in zip(part.indices, values, strict=True):
                        answers[index] = value
        except BaseException:
            for _, answer in sent:
                if not answer.cancel() and not answer.cancelled():
                    answer.exception()  # read, so that the loop does not warn about it
            raise
        return answers

    def _send(self, part: OnShard, lane: AnyLane, orders: Sequence[Any], *, holds_up: bool) -> asyncio.Future[Any]:
        shard = part.shard
        if not shard.healthy:
            raise shard_unreachable(shard.name)
        if not holds_up or shard.trusted:
            return lane.submit(orders)
        if lane.busy_for() >= self._stall_s:
            raise slow_to_answer(shard.name)
        answer = lane.submit(orders)
        self._overdue.add(answer, shard.name)
        return answer

    def _give_up(self, answer: asyncio.Future[Any], shard: str) -> None:
        answer.set_exception(too_late(shard, self._stall_s))


def _in_pieces(parts: Sequence[OnShard]) -> Iterator[list[OnShard]]:
    for start in range(0, max(len(part.keys) for part in parts), KEYS_A_CALL):
        end = start + KEYS_A_CALL
        yield [
            OnShard(part.shard, part.indices[start:end], part.keys[start:end])
            for part in parts
            if start < len(part.keys)
        ]


def _fail(part: OnShard, error: PinLaterError, answers: list[Acked | PinLaterError]) -> None:
    logger.debug(
        "items are answered with the error of their shard",
        extra={"shard": part.shard.name, "items": len(part.indices), "reason": error.message},
    )
    for index in part.indices:
        answers[index] = error
