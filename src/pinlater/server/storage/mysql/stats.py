"""The figures of a MySQL shard, in addition to those of all shards on database servers."""

from __future__ import annotations

from collections.abc import Mapping

from pinlater.server.storage import stats


class Stats(stats.Stats):
    """Counts what its connections and writers did."""

    def __init__(self) -> None:
        super().__init__()
        self.deadlocks = 0
        self.lock_waits = 0
        self.node = ""  # that the newest connection leads to

    def figures(self) -> Mapping[str, float]:
        return {**super().figures(), "deadlocks": self.deadlocks, "lock_waits": self.lock_waits}
