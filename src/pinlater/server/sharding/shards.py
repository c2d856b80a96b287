"""The shards this server uses, each with its lanes; which of them a request goes to.

Ask it anew for each request and keep no shard: while the server runs, the map changes (`reload.py`), and shards go out of use and come
back (`shard_monitor.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from random import Random

from pinlater.domain.errors import EnqueueRejected, NoHealthyShards
from pinlater.domain.queue import Queue
from pinlater.domain.rendezvous import covered, rendezvous_home
from pinlater.server.sharding.hooks import Hooks
from pinlater.server.sharding.joined_claims import ClaimRequest
from pinlater.server.sharding.map_reader import MapReader
from pinlater.server.sharding.oldest_jobs import OldestJobs
from pinlater.server.sharding.settings import ShardingSettings
from pinlater.server.sharding.shard_lanes import ShardLanes
from pinlater.server.sharding.unique_places import UniquePlaces

__all__ = ["ClaimRequest", "ShardLanes", "Shards"]

_LATER = 50  # more than any lane's rank
_LAST = 100
# In one turn in this number, one claim begins on another shard, to see how old the jobs are there.
_LOOKS_ELSEWHERE = 16


class Shards:
    """The shard map. Never empty. Which shard gets what is decided here and nowhere else."""

    def __init__(self, lanes: Sequence[ShardLanes], random: Random, settings: ShardingSettings | None = None) -> None:
        if not lanes:
            raise NoHealthyShards
        self.settings = settings or ShardingSettings()
        self.random = random
        self.clock = lanes[0].clock
        self.hooks = Hooks()
        self.known_queues: Callable[[], Iterable[Queue]] = tuple  # for shards that are new, or back
        self.reader: MapReader | None = None  # None: no file names the shards
        # By name, when a shard was removed: its jobs from before do not exist. Infinity for one whose data are lost.
        self.gone: dict[str, float] = {}
        self.unique = UniquePlaces(self.clock)
        self.registered_as = ""  # the address of this server on shards that are opened from now on
        self._all: list[ShardLanes] = []
        self._by_name: dict[str, ShardLanes] = {}
        self.get: Callable[[str], ShardLanes | None] = self._by_name.get
        """Returns the shard that a descriptor names; None if there is no such."""
        self._names: Sequence[str] = ()
        self.oldest_jobs = OldestJobs(self.clock)
        self._chosen: dict[str, ShardLanes] = {}  # by queue: where this turn of the loop stores jobs
        self._orders: dict[str, list[ShardLanes]] = {}  # by queue: in which this turn of the loop claims
        self._closing: set[asyncio.Task[None]] = set()
        self.take_over_map(lanes)

    def __iter__(self) -> Iterator[ShardLanes]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def register_as(self, address: str) -> None:
        """Shards that are opened from now on register this server with its address, so that the others know it at once."""
        self.registered_as = address
        for shard in self._all:
            if shard.shared is not None:
                shard.shared.register_as(address)

    # --- which ------------------------------------------------------------------------------------------------------------

    def for_enqueue(self, queue: str, tried: Collection[str] = ()) -> ShardLanes:
        """A shard that takes enqueues and is none of `tried`: one that is neither full nor slow, where there is one.

        All that one turn of the loop stores in a queue goes to one shard, so that it is one call there: to one where this server owns
        the queue, if there is any, at random. Raises `NoHealthyShards`, `EnqueueRejected`.
        """
        if not tried:
            shards = self._all
            shard = shards[0] if len(shards) == 1 else self._chosen.get(queue) or self._choose(queue)
            if shard.takes_more:  # as good as any; most often so
                return shard
        return self.random.choice(self._best(self._enqueueable(tried)))

    def _choose(self, queue: str) -> ShardLanes:
        """A shard for what this turn of the loop stores in the queue."""
        if not self._chosen:
            asyncio.get_running_loop().call_soon(self._chosen.clear)
        able = [shard for shard in self._all if shard.takes_more]
        found = [shard for shard in able if shard.owns(queue)] or able or self._all
        shard = self._chosen[queue] = found[int(self.random.random() * len(found))]
        return shard

    def for_request(self, key: str, tried: Collection[str] = (), *, repeat: bool = False) -> ShardLanes:
        """The first in a request key's rendezvous order that takes enqueues and is none of `tried`. Raises as `for_enqueue`.

        A repeat goes there though it is slow or full: what another server may have under way there is recognised there only.
        """
        if not tried:
            shard = self._by_name[rendezvous_home(key, self._names)]
            if shard.takes_more:  # first among those that are as good, too
                return shard
        candidates = self._enqueueable(tried)
        found = {shard.name: shard for shard in (candidates if repeat else self._best(candidates))}
        return found[rendezvous_home(key, list(found))]

    def home_of(self, key: str) -> ShardLanes:
        """The shard of a unique key, in reach or not: first in its rendezvous order among those that take enqueues."""
        found = {shard.name: shard for shard in self._all if shard.takes_enqueues}
        if not found:
            raise _all_draining()
        return found[rendezvous_home(key, list(found))]

    def for_claim(self, queue: str, coverage: float) -> Sequence[ShardLanes]:
        """The shards a dequeue looks at, in the order to do so: where this server owns the queue, unless older jobs are elsewhere.

        Among equals where its call begins soonest, else at random; slow ones last. All dequeues of one turn of the loop have the same
        order, so that one call has what they ask for, but for one that sees now and then how old the jobs elsewhere are. Raises
        `NoHealthyShards`.
        """
        if len(self._all) == 1 and self._all[0].healthy:
            return self._all
        order = self._orders.get(queue) or self._choose_order(queue)
        if coverage < 1.0:
            most = covered(coverage, len(self.in_reach()))
            if most < len(order):
                return [order[place] for place in sorted(self.random.sample(range(len(order)), most))]
        return order

    def _choose_order(self, queue: str) -> Sequence[ShardLanes]:
        """Chooses the order for this turn of the loop; returns that of its first dequeue."""
        healthy = self.in_reach()
        if not healthy:
            raise NoHealthyShards
        if not self._orders:
            asyncio.get_running_loop().call_soon(self._orders.clear)
        own = [shard.name for shard in self._all if shard.owns(queue)]
        others = [shard.name for shard in healthy if shard.name not in own]
        first, looks_elsewhere = own or others, False
        if own and others:
            before = self.oldest_jobs.before(queue, own, others)
            if before is not None:
                first = [before]
            else:
                looks_elsewhere = self.random.random() < 1 / _LOOKS_ELSEWHERE
        self._orders[queue] = order = self._in_order(queue, healthy, first)
        return self._in_order(queue, healthy, others) if looks_elsewhere else order

    def _in_order(self, queue: str, healthy: Sequence[ShardLanes], first: Collection[str]) -> list[ShardLanes]:
        random = self.random.random
        return sorted(
            [shard for shard in healthy if not shard.stalled] or healthy,
            key=lambda shard: (
                shard.lanes_of(queue).claim.rank
                + random()
                + (0 if shard.name in first else _LATER)
                + (_LAST if shard.slow else 0)
            ),
        )

    def that_may_hold_requests(self) -> list[ShardLanes]:
        """The shards, in reach or not, that have taken enqueues within the time for which request keys are kept."""
        seconds = self.settings.removal_grace_ms / 1000
        return [shard for shard in self._all if not shard.closed_to_enqueues_for(seconds)]

    def that_take_enqueues(self) -> int:
        """How many do, in reach or not; one where none does."""
        return max(1, sum([shard.takes_enqueues for shard in self._all]))

    def in_reach(self) -> list[ShardLanes]:
        """The shards that can be asked now."""
        return [shard for shard in self._all if shard.healthy]

    def _enqueueable(self, tried: Collection[str]) -> list[ShardLanes]:
        healthy = [shard for shard in self._all if shard.healthy and shard.name not in tried]
        if not healthy:
            raise NoHealthyShards
        open_ones = [shard for shard in healthy if shard.takes_enqueues]
        if not open_ones:
            if any(shard.takes_enqueues for shard in self._all):
                raise NoHealthyShards
            raise _all_draining()
        return open_ones

    def _best(self, shards: list[ShardLanes]) -> list[ShardLanes]:
        quick = [shard for shard in shards if not shard.stalled] or shards
        return [shard for shard in quick if not shard.fullness.full] or quick

    # --- changes ----------------------------------------------------------------------------------------------------------

    def take_over_map(self, lanes: Sequence[ShardLanes]) -> None:
        """Uses these shards from now on."""
        takers = {shard.name for shard in self._all if shard.takes_enqueues}
        self._all = list(lanes)
        self._chosen.clear()
        self._orders.clear()
        self.oldest_jobs.forget()
        self._by_name.clear()
        self._by_name.update({shard.name: shard for shard in lanes})
        for name in self.gone.keys() & self._by_name.keys():
            del self.gone[name]
        self._names = list(self._by_name)
        for shard in lanes:
            shard.hooks = self.hooks
        if takers != {shard.name for shard in lanes if shard.takes_enqueues}:
            self.unique.map_changed()

    def change_enqueues(self, shard: ShardLanes, *, takes: bool) -> None:
        """Whether it takes enqueues from now on, or only drains."""
        if takes != shard.takes_enqueues:
            if takes:
                shard.open_to_enqueues()
            else:
                shard.close_to_enqueues()
            self.unique.map_changed()

    def close_later(self, shard: ShardLanes) -> None:
        """One that is no longer in the map: finishes what it has, then closes, in the background."""
        task = asyncio.ensure_future(shard.close())
        self._closing.add(task)
        task.add_done_callback(self._closed)

    def _closed(self, task: asyncio.Task[None]) -> None:
        self._closing.discard(task)
        if not task.cancelled():
            task.exception()

    async def end_claims(self) -> None:
        """Refuses claims from now on, and waits for those under way: what they find for callers that have gone can still be released."""
        await asyncio.gather(*(shard.end_claims() for shard in self._all))

    async def close(self) -> None:
        """Closes every shard, the failures of one not keeping the others."""
        results = await asyncio.gather(*(shard.close() for shard in self._all), *self._closing, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result


def _all_draining() -> EnqueueRejected:
    return EnqueueRejected("Every shard only drains (dequeueOnly); add one that takes enqueues")
