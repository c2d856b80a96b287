"""Reads on a reader's connection, which sees what was committed: keys, and the order of a scan's page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol

from pinlater.domain.descriptor import I64_MAX
from pinlater.domain.errors import PinLaterError, QueueNotFound
from pinlater.domain.ids import first_id_at
from pinlater.domain.job import JobInfo, JobState
from pinlater.server.storage.lookup_row import LookupRow, job_of
from pinlater.server.storage.request_keys import KeyedAnswer
from pinlater.server.storage.values import (
    TIMED_KEYS_COUNTED,
    Inserted,
    JobKey,
    KeyHolder,
    Page,
    PageRow,
    Place,
    RequestRef,
    TimedKeys,
    UniqueHeld,
    UniqueKeyPage,
    UniqueRef,
)

NEWEST = (I64_MAX, I64_MAX)
_QUEUES_A_STATEMENT = 500


class Reader(Protocol):
    """A connection that only reads. Text goes in as `str`; MySQL answers names as bytes."""

    async def select(self, name: str, /, **values: object) -> Sequence[tuple[Any, ...]]:
        """The rows of a statement."""
        ...

    async def select_page(
        self, name: str, priorities: Sequence[int], limit: int, /, **values: object
    ) -> Sequence[tuple[Any, ...]]:
        """(time, id) of the newest rows of all that a statement on one priority finds for these, in one order."""
        ...


async def queue_id_of(reader: Reader, name: str) -> int | None:
    rows = await reader.select("find_queue", name=name)
    return rows[0][0] if rows else None


async def find_requests(
    reader: Reader, wanted: Sequence[RequestRef], now_ms: int
) -> list[Inserted | PinLaterError | None]:
    """The answer that each keyed request got before; None if there is none."""
    found: list[Inserted | PinLaterError | None] = []
    for ref in wanted:
        row = await _of_queue(reader, "find_request_key", ref.queue, ref.request_key)
        found.append(None if row is None else KeyedAnswer(*row).to(ref.request_key, ref.fingerprint, now_ms))
    return found


async def find_unique(reader: Reader, wanted: Sequence[UniqueRef], now_ms: int) -> list[KeyHolder | None]:
    """The job that has each key now, by one statement for a key in up to five hundred queues."""
    queues: dict[str, list[str]] = {}
    for ref in wanted:
        queues.setdefault(ref.key, []).append(ref.queue)
    held: dict[UniqueRef, KeyHolder] = {}
    for key, names in queues.items():
        for start in range(0, len(names), _QUEUES_A_STATEMENT):
            part = names[start : start + _QUEUES_A_STATEMENT]
            for queue, job_id, priority, until_ms in await reader.select("find_holders", key=key, names=part):
                if until_ms is None or until_ms > now_ms:
                    held[UniqueRef(_text(queue), key)] = KeyHolder(job_id, priority)
    return [held.get(ref) for ref in wanted]


async def _of_queue(reader: Reader, name: str, queue: str, key: str) -> tuple[Any, ...] | None:
    """The row of a key; None also if there is no such queue."""
    queue_id = await queue_id_of(reader, queue)
    rows = [] if queue_id is None else await reader.select(name, queue_id=queue_id, key=key)
    return rows[0] if rows else None


async def list_unique_queues(reader: Reader) -> list[UniqueHeld]:
    rows = await reader.select("list_unique_queues")
    return sorted(UniqueHeld(_text(name), oldest) for name, oldest in rows)


async def list_unique_keys(reader: Reader, queue: str, made_by_ms: int, limit: int, after: str) -> UniqueKeyPage:
    """Reads `limit` keys from `after` on, and answers those of jobs that were made by that time."""
    queue_id = await queue_id_of(reader, queue)
    if queue_id is None:
        return UniqueKeyPage([], None)
    below_id = first_id_at(made_by_ms + 1)
    rows = await reader.select("list_unique_keys", queue_id=queue_id, after=after, limit=limit)
    keys = [_text(key) for key, job_id in rows if job_id < below_id]
    return UniqueKeyPage(keys, _text(rows[-1][0]) if len(rows) == limit else None)


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode()


async def timed_keys(reader: Reader, now_ms: int) -> TimedKeys:
    [row] = await reader.select("count_timed_keys", now_ms=now_ms, limit=TIMED_KEYS_COUNTED)
    return TimedKeys(*row)


async def count_ahead(reader: Reader, place: Place) -> int | PinLaterError:
    """From the highest priority on, entries of the index up to the limit."""
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


def in_order_of(keys: Sequence[JobKey], rows: Iterable[LookupRow], shard: str) -> list[JobInfo | None]:
    """The job of each key; None where queue, priority or id is of none of these rows. `shard`: the name of their shard."""
    by_key = {row.key: job_of(row, shard) for row in rows}
    return [by_key.get(key) for key in keys]


async def scan(
    reader: Reader, page: Page, read: Callable[[Sequence[tuple[int, int]]], Awaitable[list[PageRow]]]
) -> list[PageRow] | PinLaterError:
    """The order of the page first, then all about its jobs. `read` passes over a job that moved on in between. Then the next ones take its
    place, since a short page is taken for the last one."""
    rows: list[PageRow] = []
    while True:
        order = await _page_order(reader, page._replace(limit=page.limit - len(rows)))
        if isinstance(order, PinLaterError):
            return order
        found = await read(order) if order else []
        rows += found
        if len(found) == len(order) or (page.bodies and found):
            return rows
        page = page._replace(after=order[-1])


async def _page_order(reader: Reader, page: Page) -> list[tuple[int, int]] | PinLaterError:
    """(time, id) of the rows of a page, in its order, by one statement. Whether there is such a queue is asked only if it is empty."""
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
    rows = await reader.select_page(name, page.priorities, max(0, page.limit), **values)
    if not rows and await queue_id_of(reader, page.queue) is None:
        return QueueNotFound.of(page.queue)
    return [(sort_ms, job_id) for sort_ms, job_id in rows]
