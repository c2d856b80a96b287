"""Reads on a reader's connection, which sees committed data: lookups, scans, keys, queues."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple, Protocol

from pinlater.domain.descriptor import I64_MAX
from pinlater.domain.errors import PinLaterError, QueueNotFound
from pinlater.domain.job import JobState
from pinlater.domain.queue import PriorityCounts, Queue, QueueCounts, queue_of
from pinlater.server.storage.job_info import job_info
from pinlater.server.storage.options import BEHIND_MAX, BEHIND_MS
from pinlater.server.storage.record import JobRecord
from pinlater.server.storage.relational.rows import Row, text_of
from pinlater.server.storage.request_keys import KeyedAnswer
from pinlater.server.storage.values import (
    TIMED_KEYS_COUNTED,
    AheadInKey,
    Inserted,
    JobKey,
    KeyHolder,
    Page,
    PageRow,
    Place,
    RequestRef,
    TimedKeys,
    UniqueHeld,
    UniqueRef,
)
from pinlater.wire.generated.structs import JobInfo

NEWEST = (I64_MAX, I64_MAX)
_QUEUES_A_STATEMENT = 500
_JOBS_A_LOOK, _BODIES_A_LOOK = 200, 20


class BoundStatement(NamedTuple):
    """A statement with the values of its parameters."""

    name: str
    values: Mapping[str, Any]


class Reader(Protocol):
    """A connection to the shard `shard` that only reads. Strings go in as `str`; MySQL returns names as bytes."""

    @property
    def shard(self) -> str: ...

    async def select(self, name: str, /, **values: object) -> Sequence[Row]:
        """The rows of a statement."""
        ...

    async def select_union(self, looks: Sequence[BoundStatement], newest: int | None = None) -> Sequence[Row]:
        """Returns the rows of all these as those of one statement, in no order. `newest`: at most that many, by `sort_ms` and `id` from the
        highest on."""
        ...

    def jobs(self, ids: Sequence[int], *, bodies: bool, at_once: int) -> AsyncGenerator[tuple[JobKey, JobRecord], None]:
        """Yields the jobs that exist, in this order, with their names. No more than `at_once` are in memory."""
        ...


async def queue_id_of(reader: Reader, name: str) -> int | None:
    rows = await reader.select("find_queue", name=name)
    return rows[0][0] if rows else None


async def find_requests(
    reader: Reader, requests: Sequence[RequestRef], now_ms: int
) -> list[Inserted | PinLaterError | None]:
    """The answer that each keyed request got before, or None if there is none."""
    found: list[Inserted | PinLaterError | None] = []
    for ref in requests:
        row = await _of_queue(reader, "find_request_key", ref.queue, ref.request_key)
        found.append(None if row is None else KeyedAnswer(*row).to(ref.request_key, ref.fingerprint, now_ms))
    return found


async def find_unique(reader: Reader, keys: Sequence[UniqueRef], now_ms: int) -> list[KeyHolder | None]:
    """The job that has each key now; one statement looks a key up in up to five hundred queues."""
    queues: dict[str, list[str]] = {}
    for ref in keys:
        queues.setdefault(ref.key, []).append(ref.queue)
    held: dict[UniqueRef, KeyHolder] = {}
    for key, names in queues.items():
        for start in range(0, len(names), _QUEUES_A_STATEMENT):
            part = names[start : start + _QUEUES_A_STATEMENT]
            for queue, job_id, priority, until_ms in await reader.select("find_holders", key=key, names=part):
                if until_ms is None or until_ms > now_ms:
                    held[UniqueRef(text_of(queue), key)] = KeyHolder(job_id, priority)
    return [held.get(ref) for ref in keys]


async def _of_queue(reader: Reader, name: str, queue: str, key: str) -> tuple[Any, ...] | None:
    """Returns the row of a key, or None if there is none or the queue does not exist."""
    queue_id = await queue_id_of(reader, queue)
    rows = [] if queue_id is None else await reader.select(name, queue_id=queue_id, key=key)
    return rows[0] if rows else None


async def list_unique_queues(reader: Reader) -> list[UniqueHeld]:
    rows = await reader.select("list_unique_queues")
    return sorted(UniqueHeld(text_of(name), oldest) for name, oldest in rows)


async def timed_keys(reader: Reader, now_ms: int) -> TimedKeys:
    [row] = await reader.select("count_timed_keys", now_ms=now_ms, limit=TIMED_KEYS_COUNTED)
    return TimedKeys(*row)


async def count_ahead(reader: Reader, place: Place) -> int | PinLaterError:
    """Counts entries of the index from the highest priority on, up to the limit."""
    queue_id = await queue_id_of(reader, place.queue)
    if queue_id is None:
        return QueueNotFound.of(place.queue)
    higher = await reader.select("list_higher_priorities", queue_id=queue_id, priority=place.priority)
    all_due = [(priority, place.due_by_ms + 1, -1) for (priority,) in higher]
    found = 0
    for priority, before_ms, before_id in [*all_due, (place.priority, place.run_after_ms, place.id)]:
        if found >= place.limit:
            break
        end = {"priority": priority, "before_ms": before_ms, "before_id": before_id}
        [row] = await reader.select("count_waiting", queue_id=queue_id, **end, limit=place.limit - found)
        found += row[0]
    return found


async def find_ahead_in_key(reader: Reader, key: JobKey, limit: int) -> AheadInKey | None:
    """Returns the jobs that precede a job under its ordering key."""
    rows = await reader.select("find_place_in_key", id=key.id)
    if not rows:
        return None
    queue_id, ordering_key, number = rows[0]
    [(first_id, jobs)] = await reader.select(
        "find_ahead_in_key", queue_id=queue_id, key=text_of(ordering_key), number=number, limit=limit
    )
    if not jobs:
        return None
    names = {found.id: found async for found, _ in reader.jobs([first_id, key.id], bodies=False, at_once=2)}
    return AheadInKey(names[first_id], jobs) if names.get(key.id) == key and first_id in names else None


async def count_ordered(reader: Reader, queue: str, limit: int) -> int:
    """Counts entries of an index, at most `limit`."""
    [(jobs,)] = await reader.select("count_ordered", queue=queue, limit=limit)
    return int(jobs)


async def lookup(reader: Reader, keys: Sequence[JobKey], bodies: bool) -> list[JobInfo | None]:
    """Returns all that is known about each job, or None if no job has this queue, priority and id."""
    ids = sorted({key.id for key in keys})
    jobs = reader.jobs(ids, bodies=bodies, at_once=_JOBS_A_LOOK)
    found = {key: job_info(job, key.on(reader.shard)) async for key, job in jobs}
    await _show_due(reader, {key.id: job for key, job in found.items()})
    return [found.get(key) for key in keys]


async def _show_due(reader: Reader, jobs: Mapping[int, JobInfo]) -> None:
    """Jobs that wait behind others of their ordering key are shown with their own run-afters."""
    behind = [job_id for job_id, job in jobs.items() if (job.run_after_ms or 0) > BEHIND_MS]
    if behind:
        for job_id, _, _, due_ms in await reader.select("load_ordered", ids=behind):
            jobs[job_id].run_after_ms = due_ms


async def scan(reader: Reader, page: Page) -> list[PageRow] | PinLaterError:
    """First the order of the page, then the data of its jobs: two statements if no job moves in between. If one does, the next ones take
    its place, since callers take a short page for the last one."""
    rows: list[PageRow] = []
    while True:
        order = await _page_order(reader, page._replace(limit=page.limit - len(rows)))
        if isinstance(order, PinLaterError):
            return order
        found = await _page_rows(reader, order, page) if order else []
        rows += found
        if len(found) == len(order) or (page.bodies and found):
            return rows
        page = page._replace(after=order[-1])


async def _page_rows(reader: Reader, order: Sequence[tuple[int, int]], page: Page) -> list[PageRow]:
    """The jobs that are still in the state, so that not much more than `max_bytes` is ever in memory."""
    rows: list[PageRow] = []
    size_bytes = 0
    sorted_by = {job_id: sort_ms for sort_ms, job_id in order}
    at_once = _BODIES_A_LOOK if page.bodies else _JOBS_A_LOOK
    async with aclosing(reader.jobs(list(sorted_by), bodies=page.bodies, at_once=at_once)) as found:
        async for key, job in found:
            if page.bodies and size_bytes > page.max_bytes:
                break
            if job.state is page.state:
                rows.append(PageRow(sorted_by[key.id], key, job_info(job, key.on(reader.shard))))
                size_bytes += len(job.body or b"")
    await _show_due(reader, {row.key.id: row.job for row in rows})
    return rows


async def _page_order(reader: Reader, page: Page) -> list[tuple[int, int]] | PinLaterError:
    """Returns (time, id) of the rows of a page, in its order, with one statement. Checks whether the queue exists only if the page is
    empty.
    """
    after_ms, after_id = page.after or NEWEST
    if page.state is JobState.PENDING and not page.future:  # one bound, so that a later page begins where it should
        after_ms, after_id = min((after_ms, after_id), (page.due_by_ms + 1, -1))
    values: dict[str, object] = {"queue": page.queue, "after_ms": after_ms, "after_id": after_id}
    if page.state is JobState.PENDING:
        name = "page_of_future" if page.future else "page_of_due"
        values["due_by_ms"] = page.due_by_ms
    else:
        name = "page_of_claims" if page.state is JobState.IN_PROGRESS else "page_of_done"
        values["state"] = int(page.state)
    limit = max(0, page.limit)
    looks = [BoundStatement(name, {**values, "priority": priority, "limit": limit}) for priority in page.priorities]
    rows = await reader.select_union(looks, newest=limit)
    if not rows and await queue_id_of(reader, page.queue) is None:
        return QueueNotFound.of(page.queue)
    return [(sort_ms, job_id) for sort_ms, job_id in rows]


async def counts(reader: Reader, queues: Sequence[str]) -> list[QueueCounts]:
    """Counters as they are; one seek each for the job that waits longest."""
    if not queues:
        return []
    return counted(await reader.select("count_jobs", names=list(queues), behind_ms=BEHIND_MS, most_behind=BEHIND_MAX))


def counted(rows: Iterable[Row]) -> list[QueueCounts]:
    """Returns the counts from the rows of `count_jobs`."""
    return [QueueCounts(text_of(queue), PriorityCounts._make(counts)) for queue, *counts in rows]


async def queues_with_ids(reader: Reader) -> list[tuple[int, Queue]]:
    """Returns all queues, by name."""
    rows = await reader.select("list_queues")
    return [(queue_id, queue_of(text_of(name), config, bool(paused))) for queue_id, name, paused, config in rows]


async def list_queues(reader: Reader) -> list[Queue]:
    return [queue for _, queue in await queues_with_ids(reader)]
