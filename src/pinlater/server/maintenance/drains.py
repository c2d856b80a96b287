"""Measures how the shards that accept no enqueues become empty, from the counts that the sampler takes anyway."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from pinlater.domain.clock import Clock
from pinlater.server.sharding.shards import ShardLanes
from pinlater.wire.generated.structs import ShardDrain

_WINDOW_S = 600.0
_POINT_S = 10.0
_POINTS = round(_WINDOW_S / _POINT_S) + 1
# A rate over a shorter time means little.
_RATE_FROM_S = 5.0


class _Draining:
    """One shard. `closed_at`: seconds, as `ShardLanes.closed_to_enqueues_at`; identifies this closure."""

    def __init__(self, closed_at: float, live: int, now_s: float) -> None:
        self.closed_at = closed_at
        self.live_at_first = live
        self.points = deque([(now_s, live)], maxlen=_POINTS)
        self.newest = now_s, live

    def note(self, live: int, now_s: float) -> None:
        if now_s - self.points[-1][0] >= _POINT_S:
            self.points.append((now_s, live))
        self.newest = now_s, live

    def jobs_per_second(self) -> float | None:
        """Returns how fast the number of live jobs falls."""
        (begin_s, before), (end_s, after) = self.points[0], self.newest
        seconds = end_s - begin_s
        return (before - after) / seconds if seconds >= _RATE_FROM_S else None


class Drains:
    """Watches the shards that accept no enqueues."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_name: dict[str, _Draining] = {}

    def look(self, shards: Iterable[ShardLanes], live: Mapping[str, int]) -> None:
        """Notes how many live jobs each shard has; `live` lacks shards that were not counted now."""
        now_s = self._clock.monotonic()
        known, self._by_name = self._by_name, {}
        for shard in shards:
            closed_at, before = shard.closed_to_enqueues_at, known.get(shard.name)
            if closed_at is None:
                continue
            if before is not None and before.closed_at == closed_at:
                self._by_name[shard.name] = before
                if shard.name in live:
                    before.note(live[shard.name], now_s)
            elif shard.name in live:
                self._by_name[shard.name] = _Draining(closed_at, live[shard.name], now_s)

    def of(self, shard: ShardLanes) -> ShardDrain | None:
        """Returns the progress of a shard, or None if it accepts enqueues."""
        closed_at = shard.closed_to_enqueues_at
        if closed_at is None:
            return None
        now_s, now_ms = self._clock.monotonic(), self._clock.now_ms()
        since_ms = now_ms - round((now_s - closed_at) * 1000)
        found = self._by_name.get(shard.name)
        if found is None or found.closed_at != closed_at:
            return ShardDrain(since_ms, shard.leaving)
        rate = found.jobs_per_second()
        counted_s, live = found.newest
        empty_at_ms = None
        if rate is not None and rate > 0 and live and shard.healthy:
            at_ms = now_ms + round((counted_s - now_s + live / rate) * 1000)
            empty_at_ms = at_ms if at_ms > now_ms else None  # otherwise the count is too old for a forecast
        return ShardDrain(since_ms, shard.leaving, found.live_at_first, rate, empty_at_ms)
