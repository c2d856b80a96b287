"""Maintenance, a bounded piece a call: claims past their deadline, jobs past their expiry, garbage, and what was lost."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from pinlater.domain.job import JobState
from pinlater.storage.interface import Swept, TimeToLive
from pinlater.storage.redis.access import Access, conflict
from pinlater.storage.redis.changes import Changes
from pinlater.storage.redis.claiming import time_of
from pinlater.storage.redis.keys import QUEUE_BYTES, SUCCEEDED, parts_of
from pinlater.storage.redis.pulse import Facts
from pinlater.storage.request_keys import REQUEST_KEY_KEPT_MS
from pinlater.storage.tally import Tally

logger = logging.getLogger(__name__)

# One script holds Redis up for about so many rows.
_ROWS_MAX = 1_000
_TRIES = 10


async def time_out_claims(access: Access, now_ms: int, limit: int) -> list[Swept]:
    """The longest overdue first, over all queues. Claims of deleted queues go with their jobs, and don't count."""
    return await _sweep(access, b"c", JobState.IN_PROGRESS, now_ms, limit)


async def expire_jobs(access: Access, now_ms: int, limit: int) -> list[Swept]:
    """The longest expired first."""
    return await _sweep(access, b"e", JobState.PENDING, now_ms, limit)


async def _sweep(access: Access, index: bytes, state: JobState, now_ms: int, limit: int) -> list[Swept]:
    tally = Tally()
    left = limit
    while left > 0:
        asked = min(left, _ROWS_MAX)
        found = await _sweep_some(access, index, state, now_ms, asked, tally)
        left -= found[1]
        if found[0] < asked:
            break
    return tally.result()


async def _sweep_some(
    access: Access, index: bytes, state: JobState, now_ms: int, limit: int, tally: Tally
) -> tuple[int, int]:
    """How many entries were looked at, and how many of them were jobs of the state."""
    for _ in range(_TRIES):
        refs = await access.readers.run("select_first", index, f"({now_ms}", limit)
        if not refs:
            return 0, 0
        changes = Changes(now_ms)
        await changes.load(access.readers, refs)
        if any(ref[:QUEUE_BYTES] not in access.book.names for ref in refs):
            # Another server may have made a queue that isn't in our book yet. What is in none read after this look is deleted.
            await access.refresh()
        names = access.book.names
        swept = []
        for ref, job in changes.loaded.items():
            if state is JobState.IN_PROGRESS and (job.deadline_ms or 0) >= now_ms:
                continue  # claimed again, or renewed, since its deadline was looked at
            if job.queue_id not in names:
                changes.delete(job)
                changes.writing.leave("ZREM", index, ref)
            elif job.state is not state:
                changes.writing.leave("ZREM", index, ref)
            else:
                (changes.time_out if state is JobState.IN_PROGRESS else changes.expire)(job)
                swept.append(job)
        changes.delete_missing()
        if await access.write(changes, now_ms, [names[job.queue_id] for job in swept]) == [0]:
            for job in swept:
                tally.failure(names[job.queue_id], job)
            for ref in changes.missing:
                queue, priority, _ = parts_of(ref)
                if queue in names:
                    tally.lost(names[queue], priority)
            if changes.missing:
                access.stats.jobs_lost += len(changes.missing)
                logger.error("jobs are gone from Redis: %d that were claimed or about to expire", len(changes.missing))
            return len(refs), len(swept)
    raise conflict()


async def collect_garbage(
    access: Access, facts: Facts, ttls: Sequence[TimeToLive], now_ms: int, limit: int, bytes_max: int | None
) -> list[Swept]:
    """Finished jobs past their time to live, or beyond the bytes that they may take; then keys that time has freed, and what deleted
    queues left."""
    tally = Tally()
    left = await _collect_finished(access, {ttl.queue: ttl for ttl in ttls}, now_ms, limit, tally)
    if bytes_max is not None and facts.finished_bytes > bytes_max:
        left = await _collect_bytes(access, facts.finished_bytes - bytes_max, left, tally)
    freed = 0
    if left > 0 and (facts.first_request_key_ms + REQUEST_KEY_KEPT_MS < now_ms or facts.first_key_until_ms <= now_ms):
        [freed] = await access.writer.run("forget_keys", now_ms - REQUEST_KEY_KEPT_MS, now_ms, min(left, _ROWS_MAX))
        left -= freed
    more = facts.dropped_queues
    while left > 0 and more:
        rows, more = await access.writer.run("free_queue", min(left, _ROWS_MAX))
        freed += rows
        left -= rows
    tally.freed(freed)
    return tally.result()


class _Oldest(NamedTuple):
    """The oldest finished job of a line and state."""

    finished_ms: int
    line: bytes
    kind: bytes

    @property
    def state(self) -> JobState:
        return JobState.SUCCEEDED if self.kind == SUCCEEDED else JobState.FAILED


async def _oldest_finished(access: Access) -> list[_Oldest]:
    found = await access.readers.run("list_oldest_finished")
    return [_Oldest(time_of(found[at + 2]), found[at], found[at + 1]) for at in range(0, len(found), 3)]


async def _collect_finished(access: Access, ttls: dict[str, TimeToLive], now_ms: int, limit: int, tally: Tally) -> int:
    """Returns how much of the limit is left."""
    left = limit
    for oldest in await _oldest_finished(access):
        name = access.book.names.get(oldest.line[:QUEUE_BYTES])
        ttl = None if name is None else ttls.get(name)
        if name is None or ttl is None:
            continue
        before_ms = now_ms - (ttl.succeeded_ms if oldest.state is JobState.SUCCEEDED else ttl.failed_ms)
        there = oldest.finished_ms < before_ms
        while left > 0 and there:
            asked = min(left, _ROWS_MAX)
            gone, _ = await access.writer.run("collect_finished", oldest.line, oldest.kind, f"({before_ms}", asked, "")
            if gone:
                tally.deleted(name, oldest.line[QUEUE_BYTES], oldest.state, gone)
            left -= gone
            there = gone == asked
    return left


async def _collect_bytes(access: Access, bytes_over: int, limit: int, tally: Tally) -> int:
    """The oldest of all queues first. Returns how much of the limit is left."""
    left = limit
    while left > 0 and bytes_over > 0:
        found = sorted(await _oldest_finished(access))
        if not found:
            break
        first, *others = found
        # Up to where another line has an older one.
        until = f"{others[0].finished_ms}" if others else "+inf"
        asked = min(left, _ROWS_MAX)
        gone, freed = await access.writer.run("collect_finished", first.line, first.kind, until, asked, bytes_over)
        name = access.book.names.get(first.line[:QUEUE_BYTES])
        if name is not None and gone:
            tally.deleted(name, first.line[QUEUE_BYTES], first.state, gone)
        left -= gone
        bytes_over -= freed
        if not gone:
            break
    return left
