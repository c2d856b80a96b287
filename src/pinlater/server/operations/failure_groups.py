"""Failed attempts of queues in groups, over all shards. Reads counts, never jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pinlater.domain.clock import Clock
from pinlater.domain.descriptor import JobDescriptor
from pinlater.domain.errors import InvalidArgument
from pinlater.domain.failures import GROUP_KEPT_MS, HOUR_MS, HOURS_SHOWN, QUEUES_MAX, FailureGroup, FailureGroups
from pinlater.server.operations.addressing import on_reachable
from pinlater.server.operations.long_lists import JOBS_A_TURN, in_turns
from pinlater.server.operations.queue_cache import QueueCache
from pinlater.server.sharding.shards import ShardLanes, Shards
from pinlater.server.storage.values import StoredFailures
from pinlater.server.telemetry.metrics import Metrics

# A queue has up to 200 groups with 48 hours each, which the store and the event loop read in one go.
_QUEUES_A_READ = 5


class FailureQueries:
    """The operations on groups of failures."""

    def __init__(self, shards: Shards, queue_cache: QueueCache, metrics: Metrics, clock: Clock) -> None:
        self._shards = shards
        self._queue_cache = queue_cache
        self._metrics = metrics
        self._clock = clock

    async def failure_groups(self, names: Sequence[str]) -> FailureGroups:
        """The groups of these queues, those with the most failures of the last 24 hours first.

        A queue that does not exist is left out, unless it is the only one. Raises `InvalidArgument`, `QueueNotFound`.
        """
        if not 1 <= len(names) <= QUEUES_MAX:
            raise InvalidArgument(f"From 1 to {QUEUES_MAX} queues in one request, not {len(names)}", detail="TOO_MANY")
        if len(names) == 1:
            await self._queue_cache.require(names[0])
        queues = list(dict.fromkeys(names))
        now_ms = self._clock.now_ms()
        from_hour = now_ms // HOUR_MS - HOURS_SHOWN + 1

        async def read(shard: ShardLanes) -> Sequence[tuple[str, StoredFailures]]:
            found: list[tuple[str, StoredFailures]] = []
            for start in range(0, len(queues), _QUEUES_A_READ):
                some = queues[start : start + _QUEUES_A_READ]
                found += [(shard.name, each) for each in await shard.store.list_failures(some, from_hour)]
                await asyncio.sleep(0)
            return found

        answers = await on_reachable(self._shards, self._metrics, "getFailures", read)
        groups: dict[tuple[str, str], FailureGroup] = {}
        for answer in answers:
            kept = [(shard, stored) for shard, stored in answer if stored.last_ms >= now_ms - GROUP_KEPT_MS]
            for group in await in_turns(kept, lambda some: [_group_of(*each, from_hour) for each in some], JOBS_A_TURN):
                key = (group.queue, group.name)
                groups[key] = _joined(groups[key], group) if key in groups else group
        order = sorted(groups.values(), key=lambda group: (-sum(group.hours), -group.last_ms, group.name))
        return FailureGroups(order, len(answers) < len(self._shards))


def _group_of(shard: str, stored: StoredFailures, from_hour: int) -> FailureGroup:
    return FailureGroup(
        stored.queue,
        stored.name,
        stored.task,
        stored.error_type,
        stored.pattern,
        stored.failures,
        stored.first_ms,
        stored.last_ms,
        str(JobDescriptor(stored.queue, shard, stored.priority, stored.job_id)),
        [stored.hours.get(hour, 0) for hour in range(from_hour, from_hour + HOURS_SHOWN)],
    )


def _joined(one: FailureGroup, other: FailureGroup) -> FailureGroup:
    """The same group of two shards."""
    newest = max(one, other, key=lambda group: group.last_ms)
    return newest._replace(
        failures=one.failures + other.failures,
        first_ms=min(one.first_ms, other.first_ms),
        hours=[mine + theirs for mine, theirs in zip(one.hours, other.hours, strict=True)],
    )
