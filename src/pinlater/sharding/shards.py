"""The shards this server uses, each with its lanes; which of them a request goes to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from random import Random

from pinlater.domain.clock import Clock
from pinlater.domain.errors import EnqueueRejected, NoHealthyShards, PinLaterError
from pinlater.domain.ids import IdMaker
from pinlater.sharding.lane import Lane
from pinlater.sharding.placement import covered, rendezvous_order
from pinlater.storage.interface import Ack, Acked, ClaimCall, Claimed, ClaimOrder, Inserted, InsertRequest, Shard

# Wishes cost nothing until they are granted: ten thousand that wait for a thousand jobs each may all look again at once.
_CLAIMS_WAITING_MAX = 10_000_000


# So many bytes of bodies count as one more job, so that a batch of large ones is no transaction of gigabytes.
_BYTES_A_JOB = 4096


def _weight_of_insert(request: InsertRequest) -> int:
    jobs = request.jobs
    return len(jobs) + sum([len(job.body) for job in jobs]) // _BYTES_A_JOB


class ClaimRequest(tuple[str, ClaimCall, int]):
    """(queue, call, claim timeout in ms): one dequeue call's wish, before joining."""

    __slots__ = ()


class ShardLanes:
    """One shard with its lanes. The shard itself is there for everything that isn't hot."""

    def __init__(self, shard: Shard, clock: Clock, *, takes_enqueues: bool = True) -> None:
        self.name = shard.name
        self.shard = shard
        self.takes_enqueues = takes_enqueues
        self.healthy = True
        self.ids = IdMaker(clock, shard.slot, shard.highest_id)
        self._clock = clock
        self.insert: Lane[InsertRequest, Inserted] = Lane(f"insert {self.name}", self._insert, weigh=_weight_of_insert)
        self.finish: Lane[Sequence[Ack], Sequence[Acked]] = Lane(f"finish {self.name}", self._finish, weigh=len)
        self.claim: Lane[ClaimRequest, Claimed] = Lane(
            f"claim {self.name}",
            self._claim,
            waiting_max=_CLAIMS_WAITING_MAX,
            weigh=lambda request: request[1].limit,
            orphaned=self._give_back,
        )
        self.undelivered: Callable[[str, ClaimRequest, Claimed], None] | None = None
        # Told of jobs as soon as a claim would see them. On a store that works in order that is before they are committed, so that
        # the claim of whoever waits for them shares their transaction.
        self.inserting: Callable[[InsertRequest, int], bool] | None = None

    async def _insert(self, requests: list[InsertRequest]) -> Sequence[Inserted | PinLaterError]:
        now_ms = self._clock.now_ms()
        if self.shard.capabilities.in_order:
            if self._tell(requests, now_ms):
                requests[0] = requests[0]._replace(awaited=True)
            return await self.shard.insert_jobs(requests, now_ms)
        answers = await self.shard.insert_jobs(requests, now_ms)
        self._tell(requests, now_ms)
        return answers

    def _tell(self, requests: list[InsertRequest], now_ms: int) -> bool:
        inserting, awaited = self.inserting, False
        if inserting is not None:
            for request in requests:
                awaited |= inserting(request, now_ms)
        return awaited

    async def _finish(self, groups: list[Sequence[Ack]]) -> Sequence[Sequence[Acked]]:
        if len(groups) == 1:
            return [await self.shard.finish_jobs(groups[0], self._clock.now_ms())]
        results = await self.shard.finish_jobs([ack for group in groups for ack in group], self._clock.now_ms())
        answers, start = [], 0
        for group in groups:
            answers.append(results[start : start + len(group)])
            start += len(group)
        return answers

    async def _claim(self, requests: list[ClaimRequest]) -> Sequence[Claimed | PinLaterError]:
        """Joins the calls of each queue into one order, and shares its answer out again."""
        joined: dict[str, list[int]] = {}
        for index, request in enumerate(requests):
            joined.setdefault(request[0], []).append(index)
        orders = [
            ClaimOrder(queue, [requests[i][1] for i in indices], requests[indices[0]][2])
            for queue, indices in joined.items()
        ]
        results = await self.shard.claim_jobs(orders, self._clock.now_ms())
        answers: list[Claimed | PinLaterError] = [_NOTHING] * len(requests)
        for indices, result in zip(joined.values(), results, strict=True):
            if isinstance(result, PinLaterError):
                for i in indices:
                    answers[i] = result
                continue
            for position, i in enumerate(indices):
                answers[i] = Claimed(
                    (result.jobs[position],), result.next_due_ms, result.expired if not position else 0
                )
        return answers

    def _give_back(self, request: ClaimRequest, claimed: Claimed) -> None:
        if self.undelivered is not None:
            self.undelivered(self.name, request, claimed)

    async def close(self) -> None:
        """Finishes what the lanes hold, then closes the shard."""
        await asyncio.gather(self.insert.close(), self.finish.close(), self.claim.close())
        await self.shard.close()


_NOTHING = Claimed(((),))


class Shards:
    """The shard map. Never empty. Which shard gets what is decided here and nowhere else."""

    def __init__(self, lanes: Sequence[ShardLanes], random: Random) -> None:
        if not lanes:
            raise NoHealthyShards
        self._by_name = {shard.name: shard for shard in lanes}
        self._all = list(lanes)
        self._random = random

    def __iter__(self) -> Iterator[ShardLanes]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def get(self, name: str) -> ShardLanes | None:
        """The shard a descriptor names, or None if there is no such."""
        return self._by_name.get(name)

    def for_enqueue(self) -> ShardLanes:
        """A healthy shard that takes enqueues, at random."""
        if len(self._all) == 1 and self._all[0].healthy and self._all[0].takes_enqueues:
            return self._all[0]
        return self._random.choice(self._enqueueable())

    def home_of(self, key: str) -> ShardLanes:
        """The shard of a unique or request key: first in its rendezvous order among those that take enqueues."""
        candidates = {shard.name: shard for shard in self._enqueueable()}
        return candidates[rendezvous_order(key, list(candidates))[0]]

    def for_claim(self, coverage: float) -> Sequence[ShardLanes]:
        """The shards a dequeue looks at, in the order to do so. Raises `NoHealthyShards`."""
        if len(self._all) == 1 and self._all[0].healthy:
            return self._all
        healthy = [shard for shard in self._all if shard.healthy]
        if not healthy:
            raise NoHealthyShards
        return self._random.sample(healthy, covered(coverage, len(healthy)))

    def _enqueueable(self) -> list[ShardLanes]:
        healthy = [shard for shard in self._all if shard.healthy]
        if not healthy:
            raise NoHealthyShards
        open_ones = [shard for shard in healthy if shard.takes_enqueues]
        if not open_ones:
            raise EnqueueRejected("Every shard only drains (dequeueOnly); add one that takes enqueues")
        return open_ones

    async def close(self) -> None:
        """Closes every shard, the failures of one not keeping the others."""
        results = await asyncio.gather(*(shard.close() for shard in self._all), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
