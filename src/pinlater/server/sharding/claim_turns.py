"""Which shard a dequeue of several shards asks next, and up to which priority that shard may hand out jobs.

The shard with the best head is next, and hands out no job that is worse than the head of another one. If no head of another shard is
known, it hands out the first priority only, and reports what else it has. So the order of priorities is that of a single shard, except
for jobs that came after the heads were seen (`heads.SEEN_S_MAX`).

Weakness: a shard that fails, or that a waiting dequeue does not wait for because it is slow, counts only for a dequeue that has jobs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pinlater.domain.clock import Clock
from pinlater.server.sharding.heads import EMPTY, FIRST_PRIORITY, Head, Heads, place_of
from pinlater.server.sharding.shard_lanes import ShardLanes
from pinlater.server.storage.values import Claimed

# Calls for each shard: for a dequeue that has some jobs, and for one that has none because others were faster.
_CALLS_WITH_JOBS, _CALLS_WITHOUT = 2, 8


class ClaimTurns:
    """The claims of one dequeue of `queue`: `shards` ordered by `Shards.for_claim`. Call `answered` or `failed` for each one before the
    next."""

    def __init__(self, heads: Heads, clock: Clock, queue: str, shards: Sequence[ShardLanes]) -> None:
        self._heads = heads
        self._clock = clock
        self._queue = queue
        self._shards = shards
        self._open = list(shards)  # those that may have jobs for this dequeue
        self._head_of: dict[str, Head] = {shard.name: heads.of(queue, shard.name) for shard in shards}
        self._due_ms_of: dict[ShardLanes, int | None] = {}  # the latest answers of the shards
        self._has_jobs = False
        self._through: int | None = None  # of the claim under way
        self.began_s = 0.0
        """When the claim under way began, or the last one (monotonic)."""

    def __iter__(self) -> Iterator[tuple[ShardLanes, int | None]]:
        """Yields the shard to ask, and the last priority that it may hand out; None: all."""
        calls = 0
        while self._open and calls < len(self._shards) * (_CALLS_WITH_JOBS if self._has_jobs else _CALLS_WITHOUT):
            shard = min(self._open, key=self._place) if calls else self._open[0]
            best, _ = min([head for name, head in self._head_of.items() if name != shard.name], default=EMPTY)
            self._through = None if best == EMPTY[0] else max(best, FIRST_PRIORITY)
            if shard in self._due_ms_of and self._through is not None and self._head_of[shard.name][0] > self._through:
                return  # it only has jobs that are worse than those of a shard that failed
            calls += 1
            self.began_s = self._clock.monotonic()
            yield shard, self._through

    def _place(self, shard: ShardLanes) -> tuple[int, bool, int]:
        return place_of(self._head_of[shard.name], slow=shard.slow)

    def answered(self, shard: ShardLanes, limit: int, found: Claimed) -> int | None:
        """Notes the result of a shard that was asked for `limit` jobs. Returns when the next job on any shard is due, as far as known."""
        self._due_ms_of[shard] = found.next_due_ms
        head = self._heads.claimed(self._queue, shard.name, limit, found, self.began_s)
        self._head_of[shard.name] = head
        self._has_jobs |= bool(found.jobs[0])
        if head == EMPTY or self._through is None or head[0] <= self._through:
            self._end(shard)  # the jobs that it has left do not fit into the answer, or cannot be claimed now
        return min([due_ms for due_ms in self._due_ms_of.values() if due_ms is not None], default=None)

    def failed(self, shard: ShardLanes) -> bool:
        """Notes that the shard did not answer in time, or answered with an error. Returns whether it has not answered this dequeue at
        all."""
        self._end(shard)
        return shard not in self._due_ms_of

    def _end(self, shard: ShardLanes) -> None:
        """Notes that the shard is not to be asked again."""
        self._open.remove(shard)
        if not self._has_jobs:
            self._head_of[shard.name] = EMPTY
