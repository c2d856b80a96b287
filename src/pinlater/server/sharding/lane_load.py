"""How busy the lanes of this server to each shard are, from the totals that each lane keeps; adds no cost to a call.

Calls follow one another as soon as requests come faster than single ones are answered, which is a fraction of the throughput of a lane
whose calls are shared. So the time in which a call is under way counts in full only if the calls are full, and otherwise in proportion.

Weakness: a request with many jobs fills a call as little as one with a single job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pinlater.server.sharding.lane_queue import LaneQueue
from pinlater.server.sharding.shard_lanes import WHOLE_UP_TO_ELSEWHERE
from pinlater.server.sharding.shards import Shards

_WINDOW_S = 5.0


class _LaneSums(NamedTuple):
    """The sums of a lane since it was made."""

    calls: int = 0
    items: int = 0
    busy_s: float = 0.0


_NOTHING = _LaneSums()


class LaneLoads:
    """`of`: the share of the busiest lane to each shard in the last window. `monotonic`: in seconds."""

    def __init__(self, shards: Shards, monotonic: Callable[[], float]) -> None:
        self._shards = shards
        self._monotonic = monotonic
        self._since_s = monotonic()
        self._before: Mapping[LaneQueue[Any, Any], _LaneSums] = {}
        self.of: Mapping[str, float] = {}

    def look(self) -> None:
        """Ends the window if it is time. Call it several times a second."""
        seconds = self._monotonic() - self._since_s
        if seconds < _WINDOW_S:
            return
        self._since_s += seconds
        lanes = [(shard.name, lane) for shard in self._shards for lane in shard.lanes]
        now = {lane: _LaneSums(lane.calls, lane.items, lane.busy_s + lane.busy_for()) for _, lane in lanes}
        loads = dict.fromkeys([name for name, _ in lanes], 0.0)
        for name, lane in lanes:
            loads[name] = max(loads[name], _load(self._before.get(lane, _NOTHING), now[lane], seconds))
        self.of, self._before = loads, now


def _load(before: _LaneSums, after: _LaneSums, seconds: float) -> float:
    calls = after.calls - before.calls
    if not calls:
        return 0.0
    fill = (after.items - before.items) / calls / WHOLE_UP_TO_ELSEWHERE
    return round(min(1.0, (after.busy_s - before.busy_s) / seconds) * min(1.0, fill), 2)
