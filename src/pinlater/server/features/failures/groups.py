"""Groups of failed attempts of queues, over all shards; and which of the groups are muted. Reads counts, never jobs.

A mute is a row of the history, and so is its end: the newest row of a group counts, on whichever shard it is. So a shard that was
unreachable meanwhile does not restore a mute.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from pinlater.domain.descriptor import JobDescriptor
from pinlater.domain.errors import InvalidArgument, NoHealthyShards
from pinlater.domain.failures import (
    GROUP_KEPT_MS,
    HOUR_MS,
    HOURS_SHOWN,
    MUTED_MS_MAX,
    MUTES_MAX,
    QUEUES_MAX,
    is_group_name,
)
from pinlater.domain.history import LONGEST_MS
from pinlater.server.features.history.rollup import MUTES_STEP_S
from pinlater.server.operations.addressing import on_reachable
from pinlater.server.operations.long_lists import JOBS_A_TURN, in_turns
from pinlater.server.operations.service import Service
from pinlater.server.sharding.shards import ShardLanes
from pinlater.server.storage.commands import ListFailures, ListSamples, SaveSamples
from pinlater.server.storage.values import SampleRange, StoredFailures, StoredSample
from pinlater.wire.generated.structs import FailureGroup, FailuresResponse

# A queue has up to 200 groups with 48 hours each, which the store and the event loop read without a pause.
_QUEUES_A_READ = 5


class FailureQueries:
    """The operations on groups of failures."""

    def __init__(self, service: Service) -> None:
        self._shards = service.shards
        self._queue_cache = service.queue_cache
        self._metrics = service.metrics
        self._clock = service.clock

    async def list_groups(self, names: Sequence[str]) -> FailuresResponse:
        """The groups of these queues, those with the most failures of the last 24 hours first, and muted ones last.

        A queue that does not exist is left out, unless it is the only one. Raises `InvalidArgument`, `QueueNotFound`.
        """
        if not 1 <= len(names) <= QUEUES_MAX:
            raise InvalidArgument(f"From 1 to {QUEUES_MAX} queues in one request, not {len(names)}", detail="TOO_MANY")
        if len(names) == 1:
            await self._queue_cache.require(names[0])
        queues = list(dict.fromkeys(names))
        now_ms = self._clock.now_ms()
        from_hour = now_ms // HOUR_MS - HOURS_SHOWN + 1

        async def read(shard: ShardLanes) -> tuple[Sequence[tuple[str, StoredFailures]], Sequence[StoredSample]]:
            found: list[tuple[str, StoredFailures]] = []
            for start in range(0, len(queues), _QUEUES_A_READ):
                some = queues[start : start + _QUEUES_A_READ]
                found += [(shard.name, each) for each in await shard.store.submit(ListFailures(some, from_hour))]
                await asyncio.sleep(0)
            return found, await shard.store.submit(ListSamples([_mutes(queues, now_ms)]))

        answers = await on_reachable(self._shards, self._metrics, "getFailures", read)
        groups: dict[tuple[str, str], FailureGroup] = {}
        for answer, _ in answers:
            kept = [(shard, stored) for shard, stored in answer if stored.last_ms >= now_ms - GROUP_KEPT_MS]
            for group in await in_turns(kept, lambda some: [_group_of(*each, from_hour) for each in some], JOBS_A_TURN):
                key = (group.queue, group.name)
                groups[key] = _joined(groups[key], group) if key in groups else group
        for key, until_ms in _muted_until([row for _, rows in answers for row in rows]).items():
            if key in groups and until_ms > now_ms:
                groups[key].muted_until_ms = until_ms
        return FailuresResponse(sorted(groups.values(), key=_rank), len(answers) < len(self._shards) or None)

    async def mute(self, queue: str, name: str, until_ms: int | None = None) -> None:
        """Mutes a group until that time, for at most 30 days, which is also the duration for None. A time in the past ends the mute. Its
        failures still count.

        Raises `InvalidArgument`, also if a mute comes after a thousand changes in 30 days, and `QueueNotFound`.
        """
        if not is_group_name(name):
            raise InvalidArgument(f"A group of failures has a name of 16 hexadecimal digits, not {name[:50]!r}")
        await self._queue_cache.require(queue)
        now_ms = self._clock.now_ms()
        latest_ms = now_ms + MUTED_MS_MAX
        until_ms = latest_ms if until_ms is None else min(max(0, until_ms), latest_ms)
        shards = sorted(self._shards.in_reach(), key=lambda shard: (not shard.takes_enqueues, shard.name))
        if not shards:
            raise NoHealthyShards

        async def read(shard: ShardLanes) -> Sequence[StoredSample]:
            return await shard.store.submit(ListSamples([_mutes([queue], now_ms)]))

        answers = await on_reachable(self._shards, self._metrics, "muteFailures", read)
        rows = [row for answer in answers for row in answer]
        ends = until_ms <= now_ms
        if ends and len(answers) == len(self._shards) and _muted_until(rows).get((queue, name), 0) <= now_ms:
            return  # nothing to end
        if len(rows) >= MUTES_MAX * (2 if ends else 1):
            raise InvalidArgument(f"{MUTES_MAX} changes of the last 30 days are kept already", detail="TOO_MANY")
        # Another server's clock may be ahead.
        at_ms = max([now_ms, *(row.at_ms + 1 for row in rows if row.origin == name)])
        await shards[0].store.submit(
            SaveSamples([StoredSample(MUTES_STEP_S, at_ms, queue, name, str(until_ms).encode())])
        )


def _mutes(queues: Sequence[str], now_ms: int) -> SampleRange:
    """Returns the range of the rows with the mutes of these queues. Another server's clock may be a little ahead."""
    limit = 2 * MUTES_MAX * len(queues)  # each mute and its end
    return SampleRange(MUTES_STEP_S, now_ms - LONGEST_MS, now_ms + HOUR_MS, queues, limit=limit)


def _muted_until(rows: Sequence[StoredSample]) -> dict[tuple[str, str], int]:
    """Returns the ends of mutes by queue and group; the newest row of each counts."""
    return {(row.queue, row.origin): int(row.data) for row in sorted(rows, key=lambda row: row.at_ms)}


def _rank(group: FailureGroup) -> tuple[bool, int, int, str]:
    return group.muted_until_ms is not None, -sum(group.hours), -group.last_ms, group.name


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
    """The same group from two shards."""
    newest = max(one, other, key=lambda group: group.last_ms)
    return replace(
        newest,
        failures=one.failures + other.failures,
        first_ms=min(one.first_ms, other.first_ms),
        hours=[mine + theirs for mine, theirs in zip(one.hours, other.hours, strict=True)],
    )
