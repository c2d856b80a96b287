"""Loads the jobs of a call."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.server.storage.changes import Changes
from pinlater.server.storage.record import JobRecord
from pinlater.server.storage.relational.dialect import Dialect


async def load(dialect: Dialect, changes: Changes, ids: Sequence[int]) -> tuple[list[JobRecord], list[int]]:
    """The jobs that exist, in the order of `ids`; and the ids of those whose queue was deleted, in order."""
    jobs = await dialect.load_jobs(ids)
    queues = await dialect.queues_of({job.queue_id for job in jobs})
    found: dict[int, JobRecord] = {}
    orphans: list[int] = []
    for job in jobs:
        queue = queues.get(job.queue_id)
        if queue is None:
            orphans.append(job.id)
        else:
            found[job.id] = job
            changes.add(job, queue.name)
    return [found[job_id] for job_id in dict.fromkeys(ids) if job_id in found], sorted(orphans)
