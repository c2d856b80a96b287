"""Which shards a queue is stored on: its partitions.

Each queue has an order of the shards that accept enqueues, which depends on its name alone, so all servers with the same map have the
same order. A queue with ordering keys has a stored home, which is the first in its order while it accepts enqueues. The partitions of a
queue are the first `n` of the order, one unless its settings name a number or the servers have chosen one. Nothing else is stored, and no
change moves a job: jobs on other shards are strays (`strays.py`), which are handed out where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pinlater.domain.queue import Home
from pinlater.domain.rendezvous import rendezvous_order
from pinlater.server.sharding.shard_lanes import ShardLanes

_QUEUES_MAX = 20_000


class QueuePartitions:
    """The partitions of all queues. `number_of(queue)`: how many partitions it is to have. `home_of(queue)`: its stored home, as far as
    this server knows; None before the first job with an ordering key."""

    def __init__(self) -> None:
        self.number_of: Callable[[str], int] = lambda _queue: 1
        self.home_of: Callable[[str], Home | None] = lambda _queue: None
        self._takers: dict[str, ShardLanes] = {}
        self._orders: dict[str, Sequence[ShardLanes]] = {}

    def take_over(self, shards: Iterable[ShardLanes]) -> None:
        """Uses these shards from now on. Call it also when one of them starts or stops taking enqueues."""
        self._takers = {shard.name: shard for shard in shards if shard.takes_enqueues}
        self._orders = {}

    def order(self, queue: str) -> Sequence[ShardLanes]:
        """Returns the shards that accept enqueues, reachable or not, in the order in which they become partitions of the queue."""
        found = self._orders.get(queue)
        if found is None:
            if len(self._orders) >= _QUEUES_MAX:
                self._orders.clear()
            names = rendezvous_order(queue, list(self._takers))
            found = self._orders[queue] = [self._takers[name] for name in names]
        stored = self.home_of(queue)
        if stored is None:  # most often so
            return found
        home = self._takers.get(stored.shard)
        if home is None or home is next(iter(found)):
            return found
        return [home, *(shard for shard in found if shard is not home)]

    def of(self, queue: str) -> Sequence[ShardLanes]:
        """Returns the partitions, reachable or not: all shards that accept enqueues if the queue is to have more, none if no shard
        accepts any."""
        return self.order(queue)[: self.number_of(queue)]
