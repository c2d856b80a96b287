"""The shards that this server uses, each with its lanes; and the choice of the shard for a request.

Call it again for each request and keep no shard: while the server runs, the map changes (`reload.py`), and shards go out of use and come
back (`shard_monitor.py`). Jobs are stored on a partition of their queue (`partitions.py`), on the next shard of its order only if no
partition can take them. They are claimed from the partitions, and from other shards that may have some (`strays.py`), the most urgent
first (`heads.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from random import Random

from pinlater.domain.errors import EnqueueRejected, NoHealthyShards
from pinlater.domain.job import HandedOutJob
from pinlater.domain.queue import NO_HOME, Home, Queue
from pinlater.domain.rendezvous import covered, rendezvous_home
from pinlater.server.sharding.heads import Heads
from pinlater.server.sharding.hooks import Hooks
from pinlater.server.sharding.joined_claims import ClaimRequest
from pinlater.server.sharding.map_reader import MapReader
from pinlater.server.sharding.partitions import QueuePartitions
from pinlater.server.sharding.settings import ShardingSettings
from pinlater.server.sharding.shard_lanes import ShardLanes
from pinlater.server.sharding.strays import Strays
from pinlater.server.sharding.unique_places import UniquePlaces

__all__ = ["ClaimRequest", "ShardLanes", "Shards"]


class Shards:
    """The shard map. Never empty. Only this class decides which shard gets what."""

    def __init__(self, lanes: Sequence[ShardLanes], random: Random, settings: ShardingSettings | None = None) -> None:
        if not lanes:
            raise NoHealthyShards
        self.settings = settings or ShardingSettings()
        self.random = random
        self.clock = lanes[0].clock
        self.hooks = Hooks()
        self.known_queues: Callable[[], Iterable[Queue]] = tuple  # for shards that are new, or back
        self.reader: MapReader | None = None  # None: no file names the shards
        # By name, when a shard was removed: its jobs from before do not exist. Infinity for a shard whose data are lost.
        self.gone: dict[str, float] = {}
        self.partitions = QueuePartitions()
        self.strays = Strays(self.clock.monotonic)
        self.heads = Heads(self.clock)
        self.unique = UniquePlaces(self.clock, self._first_of)
        self.registered_as = ""  # the address of this server on shards that are opened from now on
        self._all: list[ShardLanes] = []
        self._by_name: dict[str, ShardLanes] = {}
        self.get: Callable[[str], ShardLanes | None] = self._by_name.get
        """Returns the shard that a descriptor names; None if there is no such shard."""
        self._chosen: dict[str, ShardLanes] = {}  # by queue: the shard on which this turn of the loop stores jobs
        self._orders: dict[str, Sequence[ShardLanes]] = {}  # by queue: the order in which this turn of the loop claims
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

    # --- choice -----------------------------------------------------------------------------------------------------------

    def for_enqueue(self, queue: str, tried: Collection[str] = ()) -> ShardLanes:
        """A partition of the queue that is none of `tried`, and neither full nor slow; if there is none, the next shard of its order.

        All jobs that one turn of the loop stores in a queue go to one shard, so that they share a call: to a shard on which this server
        owns the queue, if there is any, otherwise to a random one. Raises `NoHealthyShards`, `EnqueueRejected`.
        """
        if not tried:
            shards = self._all
            shard = shards[0] if len(shards) == 1 else self._chosen.get(queue) or self._choose(queue)
            if shard.takes_more:  # most often so
                return shard
        return self._kept_in_mind(queue, self._best(self._enqueueable(queue, tried))[0])

    def _choose(self, queue: str) -> ShardLanes:
        """Returns a partition for the jobs that this turn of the loop stores in the queue; if all are full or slow, one of them anyway."""
        if not self._chosen:
            asyncio.get_running_loop().call_soon(self._chosen.clear)
        partitions = self.partitions.of(queue) or self._all
        able = [shard for shard in partitions if shard.takes_more] or partitions
        found = [shard for shard in able if shard.owns(queue)] or able
        shard = self._chosen[queue] = found[int(self.random.random() * len(found))]
        return shard

    def for_request(self, queue: str, key: str, tried: Collection[str] = (), *, repeat: bool = False) -> ShardLanes:
        """The partition that is first in a request key's rendezvous order; if it is slow, full, or one of `tried`, the next one, and then
        the next shard of the queue's order. Raises as `for_enqueue`.

        A repeat goes there even if it is slow or full: only there is a call of another server under way recognised.
        """
        partitions = self.partitions.of(queue)
        if partitions and not tried:
            shard = self._by_name[rendezvous_home(key, [shard.name for shard in partitions])]
            if shard.takes_more:  # also first among equals
                return shard
        candidates = self._enqueueable(queue, tried)
        found = candidates if repeat else self._best(candidates)
        leading = [shard.name for shard in found if shard in partitions] or [found[0].name]
        return self._kept_in_mind(queue, self._by_name[rendezvous_home(key, leading)])

    def home_of(self, queue: str, key: str) -> ShardLanes:
        """Returns the shard of a unique key, reachable or not: that of its queue, or the first in the key's own order while servers of
        the previous version run. Raises `EnqueueRejected`.
        """
        if self.unique.by_queue:
            return self.first_of(queue)
        order = self.partitions.order(queue)
        if not order:
            raise _all_draining()
        return self._by_name[rendezvous_home(key, [shard.name for shard in order])]

    def first_of(self, queue: str) -> ShardLanes:
        """Returns the shard of the queue's unique keys and jobs with ordering keys, reachable or not: its first partition, or a home that
        can't move yet. Raises `EnqueueRejected`.
        """
        found = self.get(self._first_of(queue))
        if found is None:
            raise _all_draining()
        return found

    def _first_of(self, queue: str) -> str:
        return self._first_with(queue, self.partitions.home_of(queue) or NO_HOME)

    def _first_with(self, queue: str, home: Home) -> str:
        """The name of the first shard of a queue with that home; '' if no shard accepts enqueues."""
        if self.is_usable(home):
            return home.shard
        return next((shard.name for shard in self.partitions.order(queue)), "")

    def is_usable(self, home: Home) -> bool:
        """Returns whether jobs with ordering keys are stored there: on a shard that accepts enqueues, or that must wait for the former
        home.
        """
        shard = self.get(home.shard)
        return shard is not None and home.version > 0 and (shard.takes_enqueues or bool(home.former))

    def home_moved(self, queue: str, before: Home) -> None:
        """Notes that the home of the queue is another now than `before`."""
        self.look_everywhere(queue)
        former = self.get(before.shard)
        if former is not None:
            former.was_home_s = self.clock.monotonic()
        if self._first_with(queue, before) != self._first_of(queue):
            self._takers_changed()

    def is_partition(self, queue: str, shard: str) -> bool:
        return any(partition.name == shard for partition in self.partitions.of(queue))

    def _kept_in_mind(self, queue: str, shard: ShardLanes) -> ShardLanes:
        """Returns the shard. From now on, this server assumes that jobs of the queue may be there."""
        if shard not in self.partitions.of(queue):
            self.strays.heard(queue, [shard.name])
        return shard

    def look_everywhere(self, queue: str) -> None:
        """Notes that jobs of the queue may be on any shard."""
        self.heads.forget(queue)
        self._orders.pop(queue, None)
        if len(self._all) > 1:
            self.strays.heard(queue, self._by_name)

    def for_claim(self, queue: str, coverage: float) -> Sequence[ShardLanes]:
        """The shards that a dequeue asks, in this order: those with the most urgent jobs first, as far as that is known.

        Among equals, shards on which this server owns the queue come first, then those whose call begins soonest; slow ones come last.
        All dequeues of one turn of the loop have the same order, so that they share a call. Raises `NoHealthyShards`.
        """
        if len(self._all) == 1 and self._all[0].healthy:
            return self._all
        order = self._orders.get(queue) or self._choose_order(queue)
        if coverage < 1.0:
            most = covered(coverage, len(order))
            if most < len(order):
                return [order[place] for place in sorted(self.random.sample(range(len(order)), most))]
        return order

    def _choose_order(self, queue: str) -> Sequence[ShardLanes]:
        if not self._orders:
            asyncio.get_running_loop().call_soon(self._orders.clear)
        found = self._that_may_have_jobs(queue)
        if len(found) > 1:
            random = self.random.random
            found = sorted(
                found,
                key=lambda shard: (
                    self.heads.place(queue, shard.name, slow=shard.slow),
                    not shard.owns(queue),
                    shard.lanes_of(queue).claim.rank + random(),
                ),
            )
        self._orders[queue] = found
        return found

    def _that_may_have_jobs(self, queue: str) -> Sequence[ShardLanes]:
        """Returns reachable shards, at least one, even if it has no jobs."""
        in_reach = self.in_reach()
        if not in_reach:
            raise NoHealthyShards
        partitions, may_be_on = self.partitions.of(queue), self.strays.may_be_on
        found: Sequence[ShardLanes] = [
            shard for shard in in_reach if shard in partitions or may_be_on(shard.name, queue)
        ]
        if not found:
            found = [shard for shard in self.partitions.order(queue) if shard.healthy][:1] or in_reach[:1]
        return [shard for shard in found if not shard.stalled] or found

    def note_claim(
        self, queue: str, shard: ShardLanes, jobs: Sequence[HandedOutJob], began_s: float, *, waiting: bool
    ) -> None:
        """Notes the result of a claim that began at `began_s` (monotonic) on this shard: these jobs, and whether others wait."""
        if shard not in self.partitions.of(queue):
            if jobs or waiting:
                self.strays.heard(queue, [shard.name])
            else:
                self.strays.found_none(queue, shard.name, began_s)

    def that_may_hold_requests(self) -> list[ShardLanes]:
        """Returns the shards, reachable or not, that have taken enqueues within the time for which request keys are kept."""
        seconds = self.settings.removal_grace_ms / 1000
        return [shard for shard in self._all if not shard.closed_to_enqueues_for(seconds)]

    def shares_of(self, queue: str) -> int:
        """Returns the number of shards by which the bound of the queue's backlog is divided."""
        return max(1, len(self.partitions.of(queue)))

    def in_reach(self) -> list[ShardLanes]:
        """The reachable shards."""
        return [shard for shard in self._all if shard.healthy]

    def _enqueueable(self, queue: str, tried: Collection[str]) -> Sequence[ShardLanes]:
        """Returns the reachable shards that accept enqueues, in the order of the queue."""
        order = self.partitions.order(queue)
        found = [shard for shard in order if shard.healthy and shard.name not in tried]
        if found:
            return found
        if order or not any(shard.healthy for shard in self._all):
            raise NoHealthyShards
        raise _all_draining()

    def _best(self, shards: Sequence[ShardLanes]) -> Sequence[ShardLanes]:
        quick = [shard for shard in shards if not shard.stalled] or shards
        return [shard for shard in quick if not shard.fullness.full] or quick

    # --- changes ----------------------------------------------------------------------------------------------------------

    def take_over_map(self, lanes: Sequence[ShardLanes]) -> None:
        """Uses these shards from now on."""
        takers = {shard.name for shard in self._all if shard.takes_enqueues}
        self._all = list(lanes)
        self._chosen.clear()
        self._orders.clear()
        self.heads.forget()
        self.strays.keep([shard.name for shard in lanes if self._by_name.get(shard.name) is shard])
        self._by_name.clear()
        self._by_name.update({shard.name: shard for shard in lanes})
        for name in self.gone.keys() & self._by_name.keys():
            del self.gone[name]
        self.partitions.take_over(lanes)
        for shard in lanes:
            shard.hooks = self.hooks
        if takers != {shard.name for shard in lanes if shard.takes_enqueues}:
            self._takers_changed()

    def change_enqueues(self, shard: ShardLanes, *, takes: bool) -> None:
        """Sets whether it accepts enqueues from now on, or only drains."""
        if takes != shard.takes_enqueues:
            if takes:
                shard.open_to_enqueues()
            else:
                shard.close_to_enqueues()
            self.partitions.take_over(self._all)
            self._takers_changed()

    def _takers_changed(self) -> None:
        """Notes that other shards accept enqueues than before."""
        self.unique.map_changed()
        self.strays.partitions_changed()

    def close_later(self, shard: ShardLanes) -> None:
        """Removes a shard that is no longer in the map: it finishes its calls and closes in the background."""
        task = asyncio.ensure_future(shard.close())
        self._closing.add(task)
        task.add_done_callback(self._closed)

    def _closed(self, task: asyncio.Task[None]) -> None:
        self._closing.discard(task)
        if not task.cancelled():
            task.exception()

    async def end_claims(self) -> None:
        """Refuses claims from now on, and waits for those under way: jobs that they find for callers that have gone can still be
        released."""
        await asyncio.gather(*(shard.end_claims() for shard in self._all))

    async def close(self) -> None:
        """Closes every shard, even if closing another one fails."""
        results = await asyncio.gather(*(shard.close() for shard in self._all), *self._closing, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result


def _all_draining() -> EnqueueRejected:
    return EnqueueRejected("Every shard only drains (dequeueOnly); add one that takes enqueues")
