"""Maintenance, a bounded piece a call: claims past their deadline, jobs past their expiry, garbage, and what was lost."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pinlater.domain.job import JobState
from pinlater.storage.interface import Swept, TimeToLive
from pinlater.storage.redis.access import Access, conflict
from pinlater.storage.redis.changes import Changes
from pinlater.storage.redis.keys import FAILED, SUCCEEDED, line_of
from pinlater.storage.redis.reading import counts
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
    names = access.book.names
    for _ in range(_TRIES):
        refs = await access.readers.run("select_first", index, f"({now_ms}", limit)
        if not refs:
            return 0, 0
        changes = Changes(now_ms)
        await changes.load(access.readers, refs)
        swept = []
        for ref, job in changes.loaded.items():
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
            if changes.missing:
                access.stats.jobs_lost += len(changes.missing)
                logger.error("jobs are gone from Redis: %d that were claimed or about to expire", len(changes.missing))
            return len(refs), len(swept)
    raise conflict()


async def collect_garbage(access: Access, ttls: Sequence[TimeToLive], now_ms: int, limit: int) -> list[Swept]:
    """Finished jobs past their time to live, then keys that time has freed, then what deleted queues left."""
    tally = Tally()
    left = await _collect_finished(access, {ttl.queue: ttl for ttl in ttls}, now_ms, limit, tally)
    freed = 0
    if left > 0:
        [freed] = await access.writer.run("forget_keys", now_ms - REQUEST_KEY_KEPT_MS, now_ms, min(left, _ROWS_MAX))
        left -= freed
    more = 1
    while left > 0 and more:
        rows, more = await access.writer.run("free_queue", min(left, _ROWS_MAX))
        freed += rows
        left -= rows
    tally.freed(freed)
    return tally.result()


async def _collect_finished(access: Access, ttls: dict[str, TimeToLive], now_ms: int, limit: int, tally: Tally) -> int:
    """Returns how much of the limit is left."""
    left = limit
    for row in await counts(access.readers.run, list(ttls), now_ms):
        queue = access.book.queues.get(row.queue)
        if queue is None:
            continue
        ttl = ttls[row.queue]
        for state, index, kept_ms, there in (
            (JobState.SUCCEEDED, SUCCEEDED, ttl.succeeded_ms, row.succeeded),
            (JobState.FAILED, FAILED, ttl.failed_ms, row.failed),
        ):
            gone = min(there, 1)
            while left > 0 and gone:
                asked = min(left, _ROWS_MAX)
                [gone] = await access.writer.run(
                    "collect_finished", line_of(queue, row.priority), index, f"({now_ms - kept_ms}", asked
                )
                if gone:
                    tally.deleted(row.queue, row.priority, state, gone)
                left -= gone
                if gone < asked:
                    break
    return left
