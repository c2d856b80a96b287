"""Queues and their groups of failures, as a server tells of them. Plain frozen values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pinlater.domain.queue import PartitionNumber, PriorityCounts, QueueConfig, Rates


class QueueStats(NamedTuple):
    """What an operator asks of a queue. `oldest_waiting_ms`: age of the job that has been due longest, or None.

    `waiting_dequeues`: at all servers of the shards that the one which answers hears. `incomplete`: a shard was unreachable, and its jobs
    are not counted. `max_jobs_per_second`: the limit of dequeues in force, if any. `partitions`: the shards on which the queue is stored;
    empty where there is one shard only. `strays`: unfinished jobs on other shards in reach, by shard. `partition_number`: how many
    partitions the queue is to have, and who chose that; None where there is one shard only, or if the server does not say it.
    """

    queue: str
    paused: bool
    counts: Sequence[PriorityCounts]
    oldest_waiting_ms: int | None
    rates: Rates
    waiting_dequeues: int
    incomplete: bool = False
    max_jobs_per_second: float | None = None
    partitions: Sequence[str] = ()
    strays: Mapping[str, int] = {}
    partition_number: PartitionNumber | None = None

    def total(self, field: str) -> int:
        """The sum of a count over all priorities, by its name in `PriorityCounts`."""
        return sum(int(getattr(counts, field)) for counts in self.counts)


class SettingsInForce(NamedTuple):
    """A queue's settings as they hold on the server that answers. `origins`, by field: `queue`, `limits file` or the server's setting."""

    values: QueueConfig
    origins: Mapping[str, str]


class FailureGroup(NamedTuple):
    """Failed attempts of a queue that look alike. `failures`: all since `first_ms`, as long as the group is kept; `hours`: of the last
    24 hours, the oldest first. `sample`: the descriptor of the job that failed last.

    `name`: 16 hexadecimal digits, `OTHERS` for failures of more groups than are kept. `muted_until_ms`: an operator has seen it; 0 if not.
    """

    queue: str
    name: str
    task: str
    error_type: str
    pattern: str
    failures: int
    first_ms: int
    last_ms: int
    sample: str
    hours: Sequence[int]
    muted_until_ms: int = 0


class FailureGroups(NamedTuple):
    """Holds the groups of some queues. `incomplete`: a shard was unreachable, and its failures are missing."""

    groups: Sequence[FailureGroup]
    incomplete: bool = False
