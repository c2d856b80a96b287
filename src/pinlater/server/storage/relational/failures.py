"""Failed attempts in groups: counted in the transaction in which they fail, with a bounded number of groups in a queue.

The groups of a queue are remembered, so that a failure of a known one needs no query. Other servers make groups, too, so that there may
be slightly more than the bound.
"""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.domain.failures import GROUPS_MAX, HOUR_MS, OTHERS, FailureKind
from pinlater.server.storage.changes import Changes
from pinlater.server.storage.record import JobRecord
from pinlater.server.storage.relational.dialect import Dialect, QueueEntry
from pinlater.server.storage.relational.reading import Reader
from pinlater.server.storage.relational.rows import text_of
from pinlater.server.storage.values import StoredFailures

_OTHERS = FailureKind("", "", "")


async def count(dialect: Dialect, changes: Changes) -> None:
    """Adds the failures of this call."""
    if not changes.failures:
        return
    queues = await dialect.queues_of({queue_id for queue_id, _ in changes.failures})
    rows: dict[tuple[int, str], tuple[FailureKind, int, int, int]] = {}
    looked: set[int] = set()  # a second read would miss the groups that this call makes
    for (queue_id, failure), counted in sorted(changes.failures.items(), key=lambda item: item[0]):
        queue, name = queues.get(queue_id), failure.group
        if queue is None:
            continue
        if not await _is_kept(dialect, queue, name, changes.now_ms, looked):
            name, failure = OTHERS, _OTHERS
        failures = rows[queue_id, name][1] if (queue_id, name) in rows else 0
        rows[queue_id, name] = (failure, failures + counted.failures, counted.job.priority, counted.job.id)
    now_ms = changes.now_ms
    groups = sorted(rows.items(), key=lambda item: item[0])  # two transactions lock in the same order
    dialect.insert(
        "count_failures",
        [
            (queue_id, name, *failure, failures, now_ms, now_ms, priority, job_id)
            for (queue_id, name), (failure, failures, priority, job_id) in groups
        ],
    )
    dialect.insert(
        "count_failure_hours",
        [(queue_id, now_ms // HOUR_MS, name, failures) for (queue_id, name), (_, failures, _, _) in groups],
    )


async def _is_kept(dialect: Dialect, queue: QueueEntry, name: str, now_ms: int, looked: set[int]) -> bool:
    """Returns whether the group exists, or may be made. `looked`: the queues whose groups this call has read."""
    known = queue.known_failures
    if name not in known.names and queue.queue_id not in looked and known.may_have_changed(now_ms):
        looked.add(queue.queue_id)
        found = await dialect.select("failure_names", queue_id=queue.queue_id)
        known.names = {text_of(each) for (each,) in found} - {OTHERS}
        known.looked_ms = now_ms
    if name not in known.names:
        if len(known.names) >= GROUPS_MAX:
            return False
        known.names.add(name)
    return True


async def move(dialect: Dialect, jobs: Sequence[JobRecord]) -> None:
    """Updates groups that show one of these jobs to its new priority. The read locks no group, since other transactions count in them."""
    priorities = {job.id: job.priority for job in jobs}
    for queue_id in sorted({job.queue_id for job in jobs}):
        shown = {job_id for (job_id,) in await dialect.select("failure_jobs", queue_id=queue_id)}
        for job_id in sorted(shown & priorities.keys()):
            await dialect.change_now("move_failures", queue_id=queue_id, id=job_id, priority=priorities[job_id])


async def read(reader: Reader, queues: Sequence[str], from_hour: int) -> list[StoredFailures]:
    """The groups of these queues, with their hours."""
    if not queues:
        return []
    hours: dict[tuple[str, str], dict[int, int]] = {}
    for queue, name, hour, failures in await reader.select(
        "list_failure_hours", queues=list(queues), from_hour=from_hour
    ):
        hours.setdefault((text_of(queue), text_of(name)), {})[hour] = failures
    found = await reader.select("list_failures", queues=list(queues))
    groups = []
    for queue, name, task, error_type, pattern, failures, first_ms, last_ms, priority, job_id in found:
        texts = (text_of(queue), text_of(name), text_of(task), text_of(error_type), text_of(pattern))
        by_hour = hours.get(texts[:2], {})
        groups.append(StoredFailures(*texts, failures, first_ms, last_ms, priority, job_id, by_hour))
    return groups


async def any_before(reader: Reader, before_ms: int, before_hour: int) -> bool:
    """Returns whether there is anything to prune."""
    if await reader.select("old_failures", before_ms=before_ms, limit=1):
        return True
    return bool(await reader.select("old_failure_hours", before_hour=before_hour, limit=1))


async def prune(dialect: Dialect, before_ms: int, before_hour: int, limit: int) -> int:
    """Deletes old groups and old hours. Returns how many rows."""
    deleted = await dialect.change_now("delete_old_failures", before_ms=before_ms, limit=limit)
    return deleted + await dialect.change_now("delete_old_failure_hours", before_hour=before_hour, limit=limit)
