"""Finished jobs that are deleted: past their time to live, or beyond the bytes that they may take.

The oldest entry of each index is remembered from the last scan of all of them, since it can only become younger; so most turns query only
indexes that have something to delete. Weakness: the first job that finishes in an index which had none is seen by the next scan, which
comes at the earliest time when it could be due. A shard that has not changed since the last scan is scanned again after half an hour.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Mapping, Sequence

from pinlater.domain.job import JobState
from pinlater.server.storage.counts import SweepCounts
from pinlater.server.storage.redis.access import Access
from pinlater.server.storage.redis.arguments import encode
from pinlater.server.storage.redis.claiming import time_of
from pinlater.server.storage.redis.keys import QUEUE_BYTES, SUCCEEDED
from pinlater.server.storage.redis.walking import walk
from pinlater.server.storage.snapshots import LOOKED_THROUGH_MS
from pinlater.server.storage.values import TimeToLive

# Rows, or indexes, that one script handles: Redis serves no other client meanwhile.
_ROWS_MAX = 500
_INDEXES_MAX = 100
_WALK_EVERY_MS = 600_000
# Jobs of about the same age are deleted together, wherever they are: within a hundredth of it.
_SAME_AGE = 100

FinishedIndex = tuple[bytes, bytes]
"""A line, and `s` or `f`: the jobs of the line that have succeeded or failed, by finish time."""


class OldestFinished:
    """What is known about the oldest finished job of each index."""

    def __init__(self) -> None:
        self._oldest: dict[FinishedIndex, int] = {}
        self._walked_ms: int | None = None
        self._walked_in: Hashable | None = None  # the state of the shard before that

    async def collect_old(
        self,
        access: Access,
        ttls: Sequence[TimeToLive],
        now_ms: int,
        limit: int,
        counts: SweepCounts,
        state: Hashable | None,
    ) -> int:
        """Deletes the jobs past their time to live. Returns how much of the limit is left. `state`: the answer to `AskState`."""
        by_name = {ttl.queue: ttl for ttl in ttls}
        if self._must_walk(ttls, now_ms, state):
            await self._walk(access, now_ms)
            self._walked_in = state
        names = access.queue_cache.names
        due: dict[FinishedIndex, int] = {}
        for index, oldest_ms in self._oldest.items():
            ttl = by_name.get(names.get(index[0][:QUEUE_BYTES], ""))
            if ttl is not None:
                before_ms = now_ms - (ttl.succeeded_ms if index[1] == SUCCEEDED else ttl.failed_ms)
                if oldest_ms < before_ms:
                    due[index] = before_ms
        left = limit
        while left > 0 and due:
            part = list(due)[:_INDEXES_MAX]
            asked = min(left, _ROWS_MAX)
            gone, _ = await self._collect(access, [(index, f"({due[index]}") for index in part], asked, "", counts)
            left -= gone
            for index in part:
                if not gone or index not in self._oldest or self._oldest[index] >= due[index]:
                    del due[index]
        return left

    async def collect_bytes(self, access: Access, bytes_over: int, now_ms: int, limit: int, counts: SweepCounts) -> int:
        """The oldest of all queues first. Returns how much of the limit is left."""
        await self._walk(access, now_ms)
        ages = [(oldest_ms, index) for index, oldest_ms in self._oldest.items()]
        heapq.heapify(ages)
        left = limit
        while left > 0 and bytes_over > 0 and ages:
            _, index = heapq.heappop(ages)
            # The time up to which no other index has an older one.
            until = "+inf" if not ages else f"{ages[0][0] + max(0, now_ms - ages[0][0]) // _SAME_AGE}"
            gone, freed = await self._collect(access, [(index, until)], min(left, _ROWS_MAX), bytes_over, counts)
            left -= gone
            bytes_over -= freed
            if index in self._oldest:
                heapq.heappush(ages, (self._oldest[index], index))
        return left

    def _must_walk(self, ttls: Sequence[TimeToLive], now_ms: int, state: Hashable | None) -> bool:
        """Returns whether a job that finished since the last walk, in an index that had none, could be due."""
        if self._walked_ms is None or now_ms < self._walked_ms:
            return True
        if state is not None and state == self._walked_in:
            return now_ms - self._walked_ms >= LOOKED_THROUGH_MS
        soonest_ms = min((min(ttl.succeeded_ms, ttl.failed_ms) for ttl in ttls), default=_WALK_EVERY_MS)
        return now_ms - self._walked_ms >= min(soonest_ms, _WALK_EVERY_MS)

    async def _walk(self, access: Access, now_ms: int) -> None:
        oldest: dict[FinishedIndex, int] = {}
        await access.refresh()  # an index that is not scanned counts as empty until the next scan
        async for rows in walk(access.readers, "list_oldest_finished", list(access.queue_cache.names)):
            for at in range(0, len(rows), 3):
                oldest[rows[at], rows[at + 1]] = time_of(rows[at + 2])
        self._oldest, self._walked_ms = oldest, now_ms

    async def _collect(
        self,
        access: Access,
        orders: Sequence[tuple[FinishedIndex, str]],
        limit: int,
        bytes_over: int | str,
        counts: SweepCounts,
    ) -> tuple[int, int]:
        """Returns how many were deleted, and how many bytes they had."""
        packed = encode([(*index, until) for index, until in orders])
        *answers, came = await access.writer.run("collect_finished", packed, limit, bytes_over)
        access.tell_came_first(came)
        gone_in_all = freed_in_all = 0
        for (index, _), (gone, freed, first) in zip(orders, answers, strict=True):
            if first:
                self._oldest[index] = time_of(first)
            else:
                self._oldest.pop(index, None)
            name = access.queue_cache.names.get(index[0][:QUEUE_BYTES])
            if name is not None and gone:
                counts.deleted(name, index[0][QUEUE_BYTES], _STATE[index[1]], gone)
            gone_in_all += gone
            freed_in_all += freed
        return gone_in_all, freed_in_all


_STATE: Mapping[bytes, JobState] = {b"s": JobState.SUCCEEDED, b"f": JobState.FAILED}
