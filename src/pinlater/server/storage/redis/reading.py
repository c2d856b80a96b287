"""Reads: lookups, scans, counts, and the jobs that a claim would return. On readers' connections; long reads are several scripts."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Sequence
from typing import Any

from pinlater.domain.errors import PinLaterError, QueueNotFound, RequestKeyConflict
from pinlater.domain.job import HandedOutJob, JobState
from pinlater.domain.queue import PriorityCounts, Queue, QueueCounts
from pinlater.server.storage.job_info import job_info
from pinlater.server.storage.options import BEHIND_MAX, BEHIND_MS, has_expired, options_of
from pinlater.server.storage.peeked_jobs import PeekedJobs
from pinlater.server.storage.record import JobRecord
from pinlater.server.storage.redis import queues as queue_rows
from pinlater.server.storage.redis import walking
from pinlater.server.storage.redis.access import Access, Looking, Queues
from pinlater.server.storage.redis.arguments import encode
from pinlater.server.storage.redis.claiming import handed_out, time_of
from pinlater.server.storage.redis.inserting import repeated
from pinlater.server.storage.redis.keys import (
    INDEX_OF,
    LINE_BYTES,
    PRIORITY_MAX,
    id_of,
    line_of,
    may_exist,
    packed_id,
    parts_of,
    ref_of,
)
from pinlater.server.storage.redis.loading import load_jobs, record_of
from pinlater.server.storage.redis.packing import read_claim, read_job
from pinlater.server.storage.redis.readers import Readers
from pinlater.server.storage.request_keys import REQUEST_KEY_KEPT_MS
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

logger = logging.getLogger(__name__)

# Redis serves no other client during a script, so one script reads this many jobs, or this many with their bodies.
_LOOKUP_MAX = 200
_BODIES_MAX = 20
_PAGE_MAX = 1_000
_ENTRIES_MAX = 10_000  # of indexes, for a page
_PEEK_MAX = 1_000
_EXACT_MAX = 2**53  # a score is a float


async def lookup(access: Looking, keys: Sequence[JobKey], bodies: bool) -> list[JobInfo | None]:
    """Returns all that is known about each job; the whole name must match."""
    queues = access.queues
    refs = {
        key: ref_of(queues[key.queue], key.priority, key.id) for key in keys if key.queue in queues and may_exist(key)
    }
    wanted = list(refs.values())
    checked = access.ids_of([key.queue for key in keys])
    found: dict[bytes, JobRecord] = {}
    step = _BODIES_MAX if bodies else _LOOKUP_MAX
    for start in range(0, len(wanted), step):
        found.update(await _jobs(access, wanted[start : start + step], checked, bodies=bodies))
    return [job_info(found[ref], key.on(access.shard)) if (ref := refs.get(key)) in found else None for key in keys]


async def _jobs(access: Looking, refs: Sequence[bytes], queues: Queues, bodies: bool) -> dict[bytes, JobRecord]:
    """Returns the jobs that exist. All `refs` are of these queues."""
    answer, _ = await load_jobs(access.readers, refs, bodies=bodies, queues=queues)
    found = {}
    for at, ref in enumerate(refs):
        record, _, claim, past = answer[4 * at : 4 * at + 4]
        if record:
            stored = read_job(record)
            body = record[stored.body_at :] if bodies else None
            found[ref] = record_of(ref, stored, read_claim(claim), past, body)
    return found


async def scan(access: Looking, page: Page) -> list[PageRow] | PinLaterError:
    """First the ids in the order of the page, then their data; a job whose state changed in between is skipped."""
    queue = access.queues.get(page.queue)
    if queue is None:
        return QueueNotFound.of(page.queue)
    lines = [line_of(queue, priority) for priority in page.priorities if 0 <= priority <= PRIORITY_MAX]
    if not lines:
        return []
    checked = access.ids_of([page.queue])
    rows: list[PageRow] = []
    size_bytes = 0
    after = page.after
    step_max = _BODIES_MAX if page.bodies else min(_PAGE_MAX, _ENTRIES_MAX // len(lines))
    while len(rows) < page.limit:
        step = min(page.limit - len(rows), step_max)
        order = await _order(access.readers, page, lines, after, step)
        if not order:
            await _check(access, checked)
            break
        refs = [ref for _, ref in order]
        found: dict[bytes, JobRecord] = {}
        for start in range(0, len(refs), _LOOKUP_MAX):
            found.update(await _jobs(access, refs[start : start + _LOOKUP_MAX], checked, bodies=page.bodies))
        if len(lines) > 1 and len(found) < len(refs):
            missing = [ref for ref in refs if ref not in found]
            found.update(await _moved(access, missing, lines, checked, bodies=page.bodies))
        for sort_ms, ref in order:
            job = found.get(ref)
            if job is None or job.state is not page.state:
                continue
            if page.bodies and size_bytes > page.max_bytes:
                return rows
            key = JobKey(page.queue, job.priority, job.id)
            rows.append(PageRow(_exactly(sort_ms, job), key, job_info(job, key.on(access.shard))))
            size_bytes += len(job.body or b"")
        sort_ms, ref = order[-1]
        after = sort_ms, id_of(ref[LINE_BYTES:])
        if len(order) < step:
            break
    return rows


async def _moved(
    access: Looking, refs: Sequence[bytes], lines: Sequence[bytes], queues: Queues, bodies: bool
) -> dict[bytes, JobRecord]:
    """Jobs that have got another of these priorities, by their former names. One script reads all names of a job."""
    found: dict[bytes, JobRecord] = {}
    step = max(1, _LOOKUP_MAX // len(lines))
    for start in range(0, len(refs), step):
        names = {line + ref[LINE_BYTES:]: ref for ref in refs[start : start + step] for line in lines}
        jobs = await _jobs(access, list(names), queues, bodies=bodies)
        found.update((names[name], job) for name, job in jobs.items())
    return found


async def _check(access: Looking, queues: Queues) -> None:
    """Checks an empty answer: raises `StaleQueues` if a queue was deleted or recreated since it was read."""
    await load_jobs(access.readers, (), queues=queues)


def _exactly(sort_ms: int, job: JobRecord) -> int:
    """Uses the time in the index, since the job may have moved; it is exact, even if a score can't be."""
    return job.run_after_ms if abs(sort_ms) >= _EXACT_MAX else sort_ms


async def _order(
    readers: Readers, page: Page, lines: Sequence[bytes], after: tuple[int, int] | None, limit: int
) -> list[tuple[int, bytes]]:
    """Returns (time, reference) of the first jobs in the order of the page, of these queues and priorities together."""
    by: int | str = ""
    behind: int | str = ""
    if page.state is JobState.PENDING and page.future:
        behind = page.due_by_ms
    elif page.state is JobState.PENDING:
        by = page.due_by_ms
    before = ("", b"") if after is None else (str(after[0]), packed_id(after[1]))
    indexes = encode([INDEX_OF[page.state] + line for line in lines])
    pages = await readers.run("page_jobs", indexes, limit, *before, by, behind)
    order = [
        (time_of(score), line + job_id)
        for line, found in zip(lines, pages, strict=True)
        for job_id, score in zip(found[::2], found[1::2], strict=True)
    ]
    return heapq.nlargest(limit, order, key=lambda place: (place[0], place[1][LINE_BYTES:]))


async def peek(
    access: Access, queue: str, limit: int, now_ms: int, max_bytes: int
) -> list[HandedOutJob] | PinLaterError:
    """Returns the jobs that a claim would give to one call."""
    number = access.queues.get(queue)
    if number is None:
        return QueueNotFound.of(queue)
    peeked = PeekedJobs(limit, max_bytes)
    refs = await access.readers.run("due_jobs", number, now_ms, min(max(0, limit) + 100, _PEEK_MAX))
    if not refs:
        await _check(access, access.ids_of([queue]))
    for start in range(0, len(refs), _BODIES_MAX):
        part = refs[start : start + _BODIES_MAX]
        answer, _ = await load_jobs(access.readers, part, bodies=True, queues=access.ids_of([queue]))
        for at, ref in enumerate(part):
            record, _, claim, past = answer[4 * at : 4 * at + 4]
            if not record or claim:
                continue
            stored = read_job(record)
            if has_expired(options_of(stored.options), now_ms):
                continue
            _, priority, job_id = parts_of(ref)
            if not peeked.add(handed_out(priority, job_id, record, past, 0)):
                return peeked.jobs
    return peeked.jobs


async def count_ahead(access: Access, place: Place) -> int | PinLaterError:
    """Counts by the sizes of parts of the indexes; no job is read."""
    queue = access.queues.get(place.queue)
    if queue is None:
        return QueueNotFound.of(place.queue)
    if not 0 <= place.priority <= PRIORITY_MAX:
        return 0
    end = place.run_after_ms, packed_id(place.id), place.due_by_ms
    found = int(await access.readers.run("count_ahead", queue, bytes((place.priority,)), *end))
    if not found:
        await _check(access, access.ids_of([place.queue]))
    return min(found, place.limit)


async def find_ahead_in_key(access: Access, key: JobKey, limit: int) -> AheadInKey | None:
    """Counts by the size of a part of the index."""
    queue = access.queues.get(key.queue)
    if queue is None or not may_exist(key):
        return None
    place = ref_of(queue, key.priority, key.id).removeprefix(queue)
    jobs, first = await access.readers.run("find_ahead_in_key", queue, place)
    if not jobs:
        await _check(access, access.ids_of([key.queue]))
        return None
    _, priority, job_id = parts_of(queue + first)
    return AheadInKey(JobKey(key.queue, priority, job_id), min(int(jobs), limit))


async def count_ordered(readers: Readers, queue: str, limit: int) -> int:
    """Looks at the records of all that it counts."""
    [jobs] = await readers.run("count_ordered", queue, limit)
    return int(jobs)


async def count_rows(readers: Readers, queues: Sequence[str] | None, due_by_ms: int) -> list[Any]:
    """Returns the answer of `count_jobs.lua` for these queues, or for all."""
    names = list(await walking.queues(readers)) if queues is None else queues
    pieces = walking.walk(readers, "count_jobs", names, due_by_ms, BEHIND_MS, at_once=walking.MORE_QUEUES_A_PIECE)
    return [row async for piece in pieces for row in piece]


def counts(found: Sequence[Any], due_by_ms: int) -> list[QueueCounts]:
    """Returns the counts from the sizes of the indexes. The part that isn't due is as of the last read."""
    rows = []
    for name, priority, waiting, future, in_progress, succeeded, failed, totals, first, _, behind in found:
        oldest_ms = time_of(first) if first else None
        e, c, s, f, r, *_ = (int(total) for total in totals)
        rows.append(
            QueueCounts(
                name.decode(),
                PriorityCounts(
                    priority=priority,
                    pending=waiting,
                    future=future,
                    in_progress=in_progress,
                    succeeded=succeeded,
                    failed=failed,
                    enqueued_total=e,
                    claimed_total=c,
                    succeeded_total=s,
                    failed_total=f,
                    retried_total=r,
                    oldest_due_at_ms=oldest_ms if oldest_ms is not None and oldest_ms <= due_by_ms else None,
                    behind_key=min(behind, BEHIND_MAX),
                ),
            )
        )
    return sorted(rows)


async def list_queues(readers: Readers) -> list[tuple[bytes, Queue]]:
    """Returns all queues with their ids, by name."""
    queues = []
    for name, (queue, settings) in (await walking.queues(readers)).items():
        queues.append((queue, queue_rows.unpacked(name.decode(), settings)))
    return sorted(queues, key=lambda found: found[1].name)


async def find_requests(
    readers: Readers, requests: Sequence[RequestRef], now_ms: int
) -> list[Inserted | PinLaterError | None]:
    """Returns the earlier answer to each, if there is one."""
    kept = await readers.run("find_keys", encode([("k", ref.queue, ref.request_key) for ref in requests]))
    found: list[Inserted | PinLaterError | None] = []
    for ref, answer in zip(requests, kept, strict=True):
        if not answer or int(answer[0]) + REQUEST_KEY_KEPT_MS < now_ms:
            found.append(None)
        elif answer[1] != ref.fingerprint:
            found.append(RequestKeyConflict.of(ref.request_key))
        else:
            found.append(repeated(answer[2], answer[3]))
    return found


async def find_unique(readers: Readers, keys: Sequence[UniqueRef], now_ms: int) -> list[KeyHolder | None]:
    """The job that has each key now."""
    kept = await readers.run("find_keys", encode([("u", ref.queue, ref.key) for ref in keys]))
    return [KeyHolder(id_of(held[2:10]), held[1]) if is_held(held, now_ms) else None for held in kept]


def is_held(held: bytes, now_ms: int) -> bool:
    """Returns whether a unique key is taken now."""
    return bool(held) and (len(held) == 10 or int(held[10:]) > now_ms)


async def list_unique_queues(readers: Readers) -> list[UniqueHeld]:
    names = {queue: name for name, (queue, _) in (await walking.queues(readers)).items()}
    held = []
    async for rows in walking.walk(readers, "list_unique_queues", list(names)):
        held += [UniqueHeld(names[rows[at]].decode(), id_of(rows[at + 1])) for at in range(0, len(rows), 2)]
    return sorted(held)


async def timed_keys(readers: Readers, now_ms: int) -> TimedKeys:
    """Returns the unique keys that only time will free."""
    count, until = await readers.run("count_timed_keys", now_ms)
    return TimedKeys(min(count, TIMED_KEYS_COUNTED), int(float(until)) if until else None)
