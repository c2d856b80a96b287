"""The figures of a Redis shard, in addition to those of all shards on database servers."""

from __future__ import annotations

from collections.abc import Mapping

from pinlater.server.storage import stats


class Stats(stats.Stats):
    """Counts what its connections and writers did."""

    def __init__(self) -> None:
        super().__init__()
        self.conflicts = 0  # changes that were decided again because another server had changed a job meanwhile
        self.jobs_lost = 0  # index entries without their job
        self.jobs_repaired = 0  # jobs without their index entry, or without their claim

    def figures(self) -> Mapping[str, float]:
        own = {"conflicts": self.conflicts, "jobs_lost": self.jobs_lost, "jobs_repaired": self.jobs_repaired}
        return {**super().figures(), **own}
