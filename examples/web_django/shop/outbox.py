"""An outbox: jobs that are enqueued if and only if their transaction commits.

`put` stores a job in the transaction of the caller. `relay` enqueues the committed rows, and then deletes them. A relay that dies in
between enqueues the same rows again; their unique keys make the second enqueue a no-op, for a day.
"""

from __future__ import annotations

import logging
import time
from itertools import groupby
from operator import attrgetter

import msgspec
from django.db import transaction

from pinlater import Client, Job, UniqueKey, UniqueScope
from shop.models import OutboxEntry

_log = logging.getLogger("shop.outbox")
_AT_A_TIME = 500
_DAY_MS = 24 * 3_600_000
_YEAR_MS = 366 * _DAY_MS  # the longest that a job waits


def put(queue: str, job: Job) -> None:
    """Stores the job. Call it in the transaction that the job belongs to."""
    if not transaction.get_connection().in_atomic_block:
        raise RuntimeError("call put in a transaction: use transaction.atomic()")
    if job.unique is not None:
        raise ValueError("the outbox sets the unique key of its jobs")
    if job.run_after_ms is not None and job.run_after_ms > time.time() * 1000 + _YEAR_MS:
        raise ValueError("the server would refuse the job, which is due in more than a year")
    OutboxEntry.objects.create(queue=queue, job=msgspec.json.encode(job).decode())


def relay(client: Client) -> int:
    """Enqueues the oldest waiting rows and deletes them; returns their number. Several relays may run at once."""
    entries = sorted(OutboxEntry.objects.order_by("id")[:_AT_A_TIME], key=attrgetter("queue"))
    for queue, waiting in groupby(entries, key=attrgetter("queue")):
        of_queue = list(waiting)
        existing = client.enqueue(queue, [_job_of(entry) for entry in of_queue]).existing
        if existing:
            _log.warning("%d jobs had been enqueued before: a relay ended early, or two run at once", len(existing))
        OutboxEntry.objects.filter(id__in=[entry.id for entry in of_queue]).delete()
    return len(entries)


def _job_of(entry: OutboxEntry) -> Job:
    job = msgspec.json.decode(entry.job, type=Job)
    return job._replace(unique=UniqueKey(f"outbox-{entry.key}", UniqueScope.TIME, _DAY_MS))
