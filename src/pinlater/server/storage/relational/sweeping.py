"""Claims past their deadline and jobs past their expiry, a bounded number per call."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.server.storage.changes import Changes
from pinlater.server.storage.counts import SweepCounts
from pinlater.server.storage.decide import Expire, TimeOut
from pinlater.server.storage.relational.bulk import delete_ids, delete_lost
from pinlater.server.storage.relational.changes import write
from pinlater.server.storage.relational.dialect import Dialect
from pinlater.server.storage.relational.loading import load
from pinlater.server.storage.values import Swept

READ_MAX = 2_000
# Expiries of jobs that no longer wait do not count against the limit; this bounds how many of them one call reads.
_EXPIRY_ROUNDS_MAX = 10


async def time_out_claims(dialect: Dialect, now_ms: int, limit: int, quarantine_after: int) -> list[Swept]:
    """Ends overdue claims, the longest overdue first, over all queues. Claims of deleted queues are deleted with their jobs, and do not
    count. Claims of jobs whose own row is gone are deleted.
    """
    counts = SweepCounts()
    left = min(limit, READ_MAX)
    while left > 0:
        found = await dialect.select("overdue_claims", now_ms=now_ms, limit=left)
        changes = Changes(now_ms)
        jobs, orphans = await load(dialect, changes, [job_id for (job_id,) in found])
        there = {*[job.id for job in jobs], *orphans}
        for job in jobs:
            after = changes.apply(job, TimeOut(quarantine_after))
            if after is not None:
                counts.timed_out(changes.queue_of(job), job, after)
        await write(dialect, changes)
        lost = await delete_lost(dialect, [job_id for (job_id,) in found if job_id not in there])
        queues = await dialect.queues_of({row.queue_id for row in lost})
        for row in lost:
            if row.queue_id in queues:
                counts.lost(queues[row.queue_id].name, row.priority)
        if not await delete_ids(dialect, orphans) and not lost:
            break
        left -= len(jobs)
    return counts.result()


async def expire_jobs(dialect: Dialect, now_ms: int, limit: int) -> list[Swept]:
    """Ends expired jobs, the longest expired first. Deletes a row of `expiries` whose job no longer waits; a retry inserts it again."""
    counts = SweepCounts()
    left = limit
    for _ in range(_EXPIRY_ROUNDS_MAX):
        if left <= 0:
            break
        found = await dialect.select("expired_jobs", now_ms=now_ms, limit=min(left, READ_MAX))
        if not found:
            break
        changes = Changes(now_ms)
        jobs, _ = await load(dialect, changes, [job_id for _, job_id in found])
        for job in jobs:
            after = changes.apply(job, Expire())
            if after is not None:
                counts.failure(changes.queue_of(job), after)
                left -= 1
        await write(dialect, changes)
        dialect.for_each("delete_expiries", found)
    return counts.result()


async def expire(dialect: Dialect, ids: Sequence[int], now_ms: int) -> None:
    """Expires the jobs past their expiry that a claim found."""
    changes = Changes(now_ms)
    jobs, _ = await load(dialect, changes, ids)
    for job in jobs:
        changes.apply(job, Expire())
    await write(dialect, changes)
