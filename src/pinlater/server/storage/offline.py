"""What a look at a shard tells that isn't served here: the same of every kind that has several shards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from pinlater.domain.calls import ShardSize
from pinlater.domain.queue import QueueCounts
from pinlater.server.storage.values import Member, TimedKeys

Migrated: TypeAlias = tuple[int, int, Sequence[str]]
"""The schema's version before and after a migration, and what was run."""


class Look(NamedTuple):
    """How a shard is now. `schema` 0: there is no database yet, or nothing of ours in it. `body_bytes_max`: what it holds, if it says."""

    schema: int
    members: Sequence[Member] = ()
    counts: Sequence[QueueCounts] = ()
    body_bytes_max: int | None = None
    timed_keys: TimedKeys = TimedKeys()
    size: ShardSize = ShardSize()

    @property
    def live(self) -> int:
        """Jobs that wait or run."""
        return sum(row.counts.pending + row.counts.in_progress for row in self.counts)

    @property
    def finished(self) -> int:
        """Finished jobs that are still kept."""
        return sum(row.counts.succeeded + row.counts.failed for row in self.counts)
