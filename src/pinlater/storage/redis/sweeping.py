"""Maintenance, a bounded piece a call: claims past their deadline, jobs past their expiry, garbage, and what was lost."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pinlater.domain.job import JobState
from pinlater.storage.interface import Swept, TimeToLive
from pinlater.storage.redis.access import Access, conflict
from pinlater.storage.redis.changes import Changes
from pinlater.storage.redis.garbage import Finished
from pinlater.storage.redis.keys import QUEUE_BYTES, parts_of
from pinlater.storage.redis.pulse import Facts
from pinlater.storage.request_keys import REQUEST_KEY_KEPT_MS
from pinlater.storage.tally import Tally

logger = logging.getLogger(__name__)

# One script holds Redis up for about so many rows.
_ROWS_MAX = 250
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
        names = await access.names_of(ref[:QUEUE_BYTES] for ref in refs)  # after the jobs: a queue is made before them
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
        if await access.write(changes, now_ms, [(name, queue) for queue, name in names.items()]) == [0]:
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
    access: Access,
    finished: Finished,
    facts: Facts,
    ttls: Sequence[TimeToLive],
    now_ms: int,
    limit: int,
    bytes_max: int | None,
) -> list[Swept]:
    """Finished jobs past their time to live, or beyond the bytes that they may take; then keys that time has freed, and what deleted
    queues left."""
    tally = Tally()
    left = await finished.collect_old(access, ttls, now_ms, limit, tally)
    if bytes_max is not None and facts.finished_bytes > bytes_max:
        left = await finished.collect_bytes(access, facts.finished_bytes - bytes_max, now_ms, left, tally)
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
