"""How much a server has worked on each slice in the last minute, as the owner of some of them or bypassing their owner."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import TypeAlias

from pinlater.server.sharding.shards import Shards

Work: TypeAlias = Mapping[str, Mapping[int, int]]
"""By shard and slice, without idle ones: the jobs stored, and the jobs claimed, which count twice because their acks follow."""

WINDOW_S = 60.0
_SAMPLE_S = 5.0


class SliceWork:
    """Samples the work of one server. `monotonic`: in seconds."""

    def __init__(self, shards: Shards, monotonic: Callable[[], float]) -> None:
        self._shards = shards
        self._monotonic = monotonic
        self._sampled_s = -math.inf
        self._samples: deque[Mapping[str, tuple[int, ...]]] = deque(maxlen=round(WINDOW_S / _SAMPLE_S) + 1)
        self.last_minute: Work = {}

    def look(self) -> None:
        """Takes a sample if it is time. Call it several times a second."""
        now_s = self._monotonic()
        if now_s - self._sampled_s < _SAMPLE_S:
            return
        self._sampled_s = now_s
        self._samples.append({shard.name: tuple(shard.work_by_slice) for shard in self._shards})
        oldest, newest = self._samples[0], self._samples[-1]
        self.last_minute = {
            name: difference
            for name, after in newest.items()
            if (difference := _difference(oldest.get(name, (0,) * len(after)), after))
        }


def _difference(before: tuple[int, ...], after: tuple[int, ...]) -> Mapping[int, int]:
    """Returns the difference between two counts. The counts of a reopened shard start at zero again."""
    return {index: new - old for index, (old, new) in enumerate(zip(before, after, strict=True)) if new > old}
