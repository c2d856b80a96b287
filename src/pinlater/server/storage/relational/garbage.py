"""Defines what is garbage, and how keys and deleted queues are removed. Each store finds out by itself whether there may be garbage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from pinlater.domain.job import JobState
from pinlater.server.storage.relational.bulk import delete_ids, delete_waiting
from pinlater.server.storage.relational.dialect import Dialect
from pinlater.server.storage.request_keys import REQUEST_KEY_KEPT_MS
from pinlater.server.storage.values import TimeToLive

DELETE_THE_REST = (
    "delete_request_keys_of",
    "delete_unique_keys_of",
    "delete_failures_of",
    "delete_failure_hours_of",
    "delete_ordered_of",
)


class FirstKeys(Protocol):
    """What a store knows of its keys without a query: times in milliseconds, `NEVER_MS` for none."""

    @property
    def first_request_key_ms(self) -> int:
        """Returns when the first request key was seen."""
        ...

    @property
    def first_key_until_ms(self) -> int:
        """Returns when the first unique key ends by time."""
        ...


class Freed(NamedTuple):
    """`rows`: how many were deleted; `queues`: the ids of the deleted queues that have none left."""

    rows: int
    queues: list[int]


def keys_have_ended(first: FirstKeys, now_ms: int) -> bool:
    return _request_keys_have_ended(first, now_ms) or _unique_keys_have_ended(first, now_ms)


def _request_keys_have_ended(first: FirstKeys, now_ms: int) -> bool:
    return first.first_request_key_ms + REQUEST_KEY_KEPT_MS < now_ms


def _unique_keys_have_ended(first: FirstKeys, now_ms: int) -> bool:
    return first.first_key_until_ms <= now_ms


async def delete_ended_keys(dialect: Dialect, first: FirstKeys, now_ms: int, limit: int) -> int:
    """Keys that have ended by time. Returns how many."""
    deleted = 0
    if limit > 0 and _request_keys_have_ended(first, now_ms):
        deleted += await dialect.change_now(
            "delete_old_request_keys", before_ms=now_ms - REQUEST_KEY_KEPT_MS, limit=limit
        )
    if limit > deleted and _unique_keys_have_ended(first, now_ms):
        deleted += await dialect.change_now("delete_old_unique_keys", now_ms=now_ms, limit=limit - deleted)
    return deleted


def past_their_time(ttl: TimeToLive, succeeded: int, failed: int, now_ms: int) -> list[tuple[JobState, int]]:
    """The states in which there are jobs; those that finished at or before the time (in milliseconds) beside it are garbage."""
    kinds = ((JobState.SUCCEEDED, succeeded, ttl.succeeded_ms), (JobState.FAILED, failed, ttl.failed_ms))
    return [(state, now_ms - kept_ms - 1) for state, jobs, kept_ms in kinds if jobs > 0]


async def free_dropped(
    dialect: Dialect, queue_ids: Iterable[int], limit: int, rest: Sequence[str] = DELETE_THE_REST
) -> Freed:
    """Deletes rows of deleted queues, at most `limit`: waiting and finished jobs, keys and groups of failures.

    `rest`: the statements that delete all but jobs.
    """
    left = limit
    empty: list[int] = []
    for queue_id in queue_ids:
        for name in ("select_ready_of", "select_done_of"):
            if left <= 0:
                return Freed(limit, empty)
            found = await dialect.select(name, queue_id=queue_id, limit=left)
            if name == "select_ready_of":
                deleted = len(await delete_waiting(dialect, queue_id, found))
            else:
                deleted = len(await delete_ids(dialect, [job_id for (job_id,) in found]))
            if len(found) >= left:  # there may be more
                return Freed(limit - left + deleted, empty)
            left -= deleted
        for name in rest:
            if left <= 0:
                return Freed(limit, empty)
            left -= await dialect.change_now(name, queue_id=queue_id, limit=left)
        if left <= 0:
            return Freed(limit, empty)
        empty.append(queue_id)
    return Freed(limit - left, empty)
