"""Maintenance, a bounded piece per call: claims past their deadline, jobs past their expiry, garbage, and lost jobs."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Sequence

from pinlater.server.storage.counts import SweepCounts
from pinlater.server.storage.decide import Expire, TimeOut
from pinlater.server.storage.record import JobRecord
from pinlater.server.storage.redis.access import TRIES, Access, conflict
from pinlater.server.storage.redis.changes import Changes
from pinlater.server.storage.redis.garbage import OldestFinished
from pinlater.server.storage.redis.keys import QUEUE_BYTES, parts_of
from pinlater.server.storage.request_keys import REQUEST_KEY_KEPT_MS
from pinlater.server.storage.snapshots import MaintenanceSnapshot
from pinlater.server.storage.values import Swept, TimeToLive

logger = logging.getLogger(__name__)

# Rows that one script handles: Redis serves no other client meanwhile.
_ROWS_MAX = 250


async def time_out_claims(access: Access, now_ms: int, limit: int, quarantine_after: int) -> list[Swept]:
    """The longest overdue first, over all queues. Claims of deleted queues are deleted with their jobs, and don't count."""
    return await _sweep(access, b"c", TimeOut(quarantine_after), now_ms, limit)


async def expire_jobs(access: Access, now_ms: int, limit: int) -> list[Swept]:
    """The longest expired first."""
    return await _sweep(access, b"e", Expire(), now_ms, limit)


async def _sweep(access: Access, index: bytes, happening: TimeOut | Expire, now_ms: int, limit: int) -> list[Swept]:
    counts = SweepCounts()
    left = limit
    while left > 0:
        asked = min(left, _ROWS_MAX)
        found = await _sweep_some(access, index, happening, now_ms, asked, counts)
        left -= found[1]
        if found[0] < asked:
            break
    return counts.result()


async def _sweep_some(
    access: Access, index: bytes, happening: TimeOut | Expire, now_ms: int, limit: int, counts: SweepCounts
) -> tuple[int, int]:
    """Returns how many entries were read, and how many of their jobs were changed."""
    of_claims = isinstance(happening, TimeOut)
    for _ in range(TRIES):
        refs = await access.readers.run("select_first", index, f"({now_ms}", limit)
        if not refs:
            return 0, 0
        changes = Changes(now_ms)
        await changes.load(access.readers, refs)
        names = await access.names_of(ref[:QUEUE_BYTES] for ref in refs)  # after the jobs: a queue is made before them
        swept: list[tuple[str, JobRecord, JobRecord]] = []
        for ref, found in changes.loaded.items():
            job = found.record
            if of_claims and (job.deadline_ms or 0) >= now_ms:
                continue  # claimed again, or renewed, since its deadline was read
            if found.queue not in names:
                changes.delete(job)
                changes.writing.leave("ZREM", index, ref)
            elif (after := changes.apply(job, happening)) is None:
                changes.writing.leave("ZREM", index, ref)
            else:
                swept.append((names[found.queue], job, after))
        changes.delete_missing()
        if await access.write(changes, now_ms, [(name, queue) for queue, name in names.items()]) == [0]:
            for queue, before, after in swept:
                if of_claims:
                    counts.timed_out(queue, before, after)
                else:
                    counts.failure(queue, after)
            for ref in changes.missing:
                queue_id, priority, _ = parts_of(ref)
                if queue_id in names:
                    counts.lost(names[queue_id], priority)
            if changes.missing:
                access.stats.jobs_lost += len(changes.missing)
                logger.error("jobs are gone from Redis: %d that were claimed or about to expire", len(changes.missing))
            return len(refs), len(swept)
    raise conflict()


async def collect_garbage(
    access: Access,
    finished: OldestFinished,
    snapshot: MaintenanceSnapshot,
    ttls: Sequence[TimeToLive],
    now_ms: int,
    limit: int,
    bytes_max: int | None,
    state: Hashable | None,
) -> list[Swept]:
    """Deletes finished jobs past their time to live, or beyond the bytes that they may take, then keys that time has freed, and the rest
    of deleted queues.
    """
    counts = SweepCounts()
    left = await finished.collect_old(access, ttls, now_ms, limit, counts, state)
    if bytes_max is not None and snapshot.finished_bytes > bytes_max:
        left = await finished.collect_bytes(access, snapshot.finished_bytes - bytes_max, now_ms, left, counts)
    freed = 0
    if left > 0 and (
        snapshot.first_request_key_ms + REQUEST_KEY_KEPT_MS < now_ms or snapshot.first_key_until_ms <= now_ms
    ):
        [freed] = await access.writer.run("forget_keys", now_ms - REQUEST_KEY_KEPT_MS, now_ms, min(left, _ROWS_MAX))
        left -= freed
    more = snapshot.dropped_queues
    while left > 0 and more:
        rows, more = await access.writer.run("free_queue", min(left, _ROWS_MAX))
        freed += rows
        left -= rows
    counts.freed(freed)
    return counts.result()
