"""The work of the lanes of each shard in the last minute, from the totals that each lane keeps; adds no cost to a call."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from pinlater.server.sharding.lane_queue import LaneQueue
from pinlater.server.sharding.shards import ShardLanes, Shards
from pinlater.wire.generated.structs import ShardLane

# Number of samples that are kept, taken every five seconds, including the first.
_SAMPLES = 13


class _Totals(NamedTuple):
    """The totals of a lane since it was made."""

    calls: int = 0
    requests: int = 0
    busy_s: float = 0.0


_NOTHING = _Totals()


class LaneMinute:
    """Keeps a minute of samples of all lanes: call `sample` every five seconds."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self._samples: deque[Mapping[LaneQueue[Any, Any], _Totals]] = deque([{}], maxlen=_SAMPLES)

    def sample(self) -> None:
        self._samples.append({lane: _totals(lane) for shard in self._shards for lane in shard.lanes})

    def of(self, shard: ShardLanes) -> Sequence[ShardLane]:
        """The lanes of a shard, as they are now and were in the last minute."""
        return [self._read(lane) for lane in shard.lanes]

    def _read(self, lane: LaneQueue[Any, Any]) -> ShardLane:
        totals = [sample.get(lane, _NOTHING) for sample in self._samples]
        totals.append(_totals(lane))
        spans = [_difference(before, after) for before, after in pairwise(totals)]
        minute = _difference(totals[0], totals[-1])
        running = lane.running
        return ShardLane(
            lane.name.partition(" ")[0],
            lane.waiting,
            running or 0,
            None if running is None else round(lane.busy_for() * 1000),
            minute.calls,
            minute.requests,
            _mean_ms(minute),
            max((mean for span in spans if (mean := _mean_ms(span)) is not None), default=None),
        )


def _totals(lane: LaneQueue[Any, Any]) -> _Totals:
    """Returns the totals of the calls that have ended."""
    under_way = lane.running
    if under_way is None:
        return _Totals(lane.calls, lane.items, lane.busy_s)
    return _Totals(lane.calls - 1, lane.items - under_way, lane.busy_s)


def _difference(before: _Totals, after: _Totals) -> _Totals:
    return _Totals(after.calls - before.calls, after.requests - before.requests, after.busy_s - before.busy_s)


def _mean_ms(span: _Totals) -> float | None:
    return span.busy_s * 1000 / span.calls if span.calls else None
