"""Repairs indexes after an eviction or an operator's DEL, so that no queue stands still and no entry is kept for ever.

The next read for the sweeps (`snapshots`) detects losses that would stop whole queues (claims by deadline, priorities, names of queues);
the next count of all queues detects lost waiting jobs (`index_loss.py`), and then a million jobs are checked within about ten seconds. An
endless scan of all jobs finds the rest: a thousand jobs with each garbage collection, so a million jobs take an hour and a half. Once it
finds something, it continues fast to the end of its round. After a round in which nothing has changed it pauses for half an hour, or
until something changes.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Hashable, Sequence
from typing import Any

from pinlater.server.storage.options import BEHIND_MS
from pinlater.server.storage.redis.access import Access
from pinlater.server.storage.redis.arguments import encode
from pinlater.server.storage.redis.index_loss import WaitingCounts
from pinlater.server.storage.redis.keys import IN_PROGRESS, line_of
from pinlater.server.storage.redis.walking import walk
from pinlater.server.storage.snapshots import LOOKED_THROUGH_MS

logger = logging.getLogger(__name__)

_URGENT_STEPS = 500
_PIECES_A_TURN = 4
_PIECES_AFTER_A_LOSS = 100
_JOBS_A_PIECE = 250
_QUEUES_A_PIECE = 5
# The stages of a round: all jobs, then claims and pasts whose job may be gone, and priorities whose queue may be gone.
_STATIONS = (b"j", b"h", b"p", b"pr")
_SURE = 2


class IndexRepair:
    """One server's progress in its rounds."""

    def __init__(self) -> None:
        self._urgent: deque[tuple[str, tuple[bytes | str | int, ...]]] = deque()
        self._round: deque[tuple[bytes, bytes]] = deque()
        self._waiting = WaitingCounts()
        self._is_missing_jobs = False
        self._without_pause = False
        self._finished_bytes = 0
        self._rounds_short = 0
        self._began_in: Hashable | None = None  # the state of the shard when the round began
        self._ended_in: Hashable | None = None
        self._ended_ms = 0

    @property
    def is_urgent(self) -> bool:
        """Whether there is something to `repair`, whatever the next read finds."""
        return self._is_missing_jobs or bool(self._urgent)

    def compare(self, rows: Sequence[Any]) -> None:
        """Compares with the previous counts of all lines. If waiting jobs are lost, all jobs are checked."""
        missed = self._waiting.missed(rows)
        if missed:
            logger.error("jobs that wait are gone from their indexes: %d; all jobs are looked through", missed)
            self._is_missing_jobs = True

    async def repair(self, access: Access, gone: str) -> None:
        """Takes some steps to rebuild the keys that `maintenance_snapshot.lua` reports as gone, and the entries that counts have missed."""
        if not self._urgent and gone:
            logger.error("keys are gone from Redis (%s); they are made anew", gone)
            await self._plan(access, gone)
        elif not self._urgent and self._is_missing_jobs:
            self._is_missing_jobs = False
            self._urgent.append(("repair_jobs", (b"j", "0", _JOBS_A_PIECE)))
        for _ in range(_URGENT_STEPS):
            if not self._urgent:
                await access.refresh()
                return
            script, arguments = self._urgent[0]
            answer = await access.readers.run(script, *arguments)
            self._urgent.popleft()
            if script == "repair_jobs":
                self._count(access, answer)
            if script in {"repair_jobs", "repair_names"} and answer[0] != b"0":
                self._urgent.appendleft((script, (arguments[0], answer[0], arguments[2])))

    async def _plan(self, access: Access, gone: str) -> None:
        """Plans the repair of the first loss; the others are found again after it."""
        await access.refresh()
        plan = self._urgent
        if "q" in gone:
            plan += [("repair_names", (place, "0", _JOBS_A_PIECE)) for place in ("q", "qn")]
        elif "p" in gone:
            queues = list(access.queue_cache.names)
            parts = [queues[at : at + _QUEUES_A_PIECE] for at in range(0, len(queues), _QUEUES_A_PIECE)]
            plan += [("repair_priorities", (encode(part),)) for part in parts]
            plan.append(("mark_repaired", ("p", "")))
        else:
            async for rows in walk(access.readers, "count_jobs", list(access.queue_cache.queues), 0, BEHIND_MS):
                for name, priority, _, _, in_progress, *_ in rows:
                    queue = access.queue_cache.queues.get(name.decode())
                    if in_progress and queue is not None:
                        line = IN_PROGRESS + line_of(queue, priority)
                        plan.append(("repair_jobs", (line, "0", _JOBS_A_PIECE)))
            plan.append(("mark_repaired", ("c", "")))

    async def look_around(self, access: Access, finished_bytes: int, state: Hashable | None, now_ms: int) -> None:
        """The next pieces of the round. `state`: as `AskState` is answered."""
        if not self._round:
            if state is not None and state == self._ended_in and now_ms - self._ended_ms < LOOKED_THROUGH_MS:
                return
            self._began_in = state
        await self._look_on(access, finished_bytes)
        if not self._round:
            self._ended_in, self._ended_ms = self._began_in, now_ms

    async def _look_on(self, access: Access, finished_bytes: int) -> None:
        for done in range(_PIECES_AFTER_A_LOSS):
            if done >= _PIECES_A_TURN and not self._without_pause:
                return
            if not self._round:
                self._round.extend((place, b"0") for place in _STATIONS)
            place, cursor = self._round[0]
            answer = await access.readers.run("repair_jobs", place, cursor, _JOBS_A_PIECE)
            self._round.popleft()
            self._count(access, answer)
            cursor, _, _, queues, size = answer
            await self._free_unknown(access, queues)
            if place == b"j":
                self._finished_bytes += size
            if cursor != b"0":
                self._round.appendleft((place, cursor))
            elif place == b"j":
                await self._compare_bytes(access, finished_bytes)
            elif not self._round:
                self._without_pause = False
                return

    def _count(self, access: Access, answer: list[int]) -> None:
        _, repaired, lost, *_ = answer
        access.stats.jobs_repaired += repaired
        access.stats.jobs_lost += lost
        self._without_pause = self._without_pause or bool(repaired or lost)
        if repaired:
            logger.error("claims or indexes of jobs are gone from Redis: %d jobs put right", repaired)
        if lost:
            logger.error("jobs are gone from Redis: %d that had left something", lost)

    async def _free_unknown(self, access: Access, queues: list[bytes]) -> None:
        """Frees the data of queues whose names are lost."""
        if all(queue in access.queue_cache.names for queue in queues):
            return
        await access.refresh()
        unknown = [queue for queue in queues if queue not in access.queue_cache.names]
        dropped = await access.readers.run("drop_queues", encode(unknown)) if unknown else 0
        if dropped:
            logger.error("queues are gone from Redis: what %d of them left is freed", dropped)

    async def _compare_bytes(self, access: Access, counted: int) -> None:
        """A round takes time and counts change meanwhile, so only a total that is far too small twice is replaced."""
        found, self._finished_bytes = self._finished_bytes, 0
        self._rounds_short = self._rounds_short + 1 if 2 * counted < found else 0
        if self._rounds_short >= _SURE:
            logger.error("finished jobs take %d bytes of Redis, not %d", found, counted)
            await access.readers.run("mark_repaired", "b", found)
            self._rounds_short = 0
