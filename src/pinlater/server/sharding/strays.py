"""Which shards have jobs of a queue without being its partitions: from before a change of the map or of the settings, or stored there
while a partition was unreachable.

A server knows it from the counts that it takes of each shard every few seconds, and sooner from the jobs that it stores there itself, and
from other servers' reports. A shard whose last count is too old may have jobs of every queue. So a stray is found within `COUNTED_S_MAX`
even if every message is lost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Set

COUNTED_S_MAX = 10.0
_QUEUES_MAX = 20_000


class Strays:
    """Knows the strays of all queues, partitions included: `QueuePartitions` tells whether a shard is a partition."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self.found: Callable[[str, Set[str]], None] = lambda _shard, _queues: None
        """Called with a shard, and with queues that had no unfinished jobs there at the previous count."""
        self._counted: dict[str, tuple[float, Set[str]]] = {}  # by shard: when, and the queues that had unfinished jobs
        self._heard: dict[str, dict[str, float]] = {}  # by queue and shard: when jobs were reported
        self._changed_s = -math.inf  # when shards became partitions, or ceased to be partitions

    def may_be_on(self, shard: str, queue: str) -> bool:
        """Returns whether the shard may hold unfinished jobs of the queue."""
        counted = self._counted.get(shard)
        if counted is None or queue in counted[1] or self._monotonic() - counted[0] > COUNTED_S_MAX:
            return True
        heard = self._heard.get(queue)
        return heard is not None and shard in heard

    def heard(self, queue: str, shards: Collection[str]) -> None:
        """Notes that jobs of the queue are, or may be, on these shards, until a later count finds none."""
        if len(self._heard) >= _QUEUES_MAX:
            self._heard.clear()  # the next counts find the jobs
        now_s = self._monotonic()
        self._heard.setdefault(queue, {}).update(dict.fromkeys(shards, now_s))

    def found_none(self, queue: str, shard: str, began_s: float) -> None:
        """Notes that a claim or a count that began at `began_s` (monotonic) found no waiting job of the queue there. Jobs that were
        reported since may have arrived after it."""
        heard = self._heard.get(queue)
        if heard is not None and heard.get(shard, began_s) < began_s:
            del heard[shard]
            if not heard:
                del self._heard[queue]

    def counted(self, shard: str, queues: Set[str], began_s: float) -> None:
        """Notes a count that began at `began_s` (monotonic) and found unfinished jobs of these queues on the shard."""
        if began_s < self._changed_s:
            return
        before = self._counted.get(shard)
        self._counted[shard] = began_s, queues
        for queue in list(self._heard):
            self.found_none(queue, shard, began_s)
        if new := queues - before[1] if before is not None else queues:
            self.found(shard, new)

    def partitions_changed(self) -> None:
        """Notes that queues have other partitions now. Former ones may have received jobs since they were counted."""
        self._counted = {}
        self._changed_s = self._monotonic()

    def keep(self, shards: Collection[str]) -> None:
        """Forgets all other shards. Everything about shards with a new address, or that were away, must be forgotten, too."""
        self._counted = {shard: counted for shard, counted in self._counted.items() if shard in shards}
