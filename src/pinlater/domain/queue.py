"""Queues: the rules for their names, and the settings that are kept with them in the store."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import NamedTuple

from pinlater.domain.errors import QueueNameInvalid, QueueNameTooLong

QUEUE_NAME_CHARS_MAX = 64
_NAME = re.compile(r"[A-Za-z0-9_]+", re.ASCII)


def check_queue_name(name: str) -> str:
    """`name`, if a queue may be called so. Up to 50 characters work on every store by contract, 65 on none."""
    if _NAME.fullmatch(name) is None:
        raise QueueNameInvalid(name)
    if len(name) > QUEUE_NAME_CHARS_MAX:
        raise QueueNameTooLong(name, QUEUE_NAME_CHARS_MAX)
    return name


class QueueConfig(NamedTuple):
    """What `configureQueue` sets; None means the server's default holds. Lives in the store, with the queue."""

    max_jobs_per_second: float | None = None
    claim_timeout_ms: int | None = None
    succeeded_ttl_ms: int | None = None
    failed_ttl_ms: int | None = None
    max_backlog: int | None = None
    default_attempts: int | None = None
    default_expiry_ms: int | None = None


_NOTHING_SET = QueueConfig()


def config_of(text: str) -> QueueConfig:
    """Settings as stored. What a newer version wrote and this one doesn't know is passed over."""
    if text == "{}":  # as it is with most queues, of which there may be thousands
        return _NOTHING_SET
    found = json.loads(text)
    return QueueConfig(**{name: found[name] for name in QueueConfig._fields if name in found})


def config_text(config: QueueConfig) -> str:
    """Settings to store; only those that are set."""
    return json.dumps({name: value for name, value in config._asdict().items() if value is not None})


class Queue(NamedTuple):
    """A queue as the store knows it."""

    name: str
    config: QueueConfig = QueueConfig()
    paused: bool = False


class QueueCounts(NamedTuple):
    """A queue's jobs of one priority, from counters, never from a scan.

    `pending` is exact; `future` is the part of it that was not due at the last look, at most 5 s ago.
    The totals count since the queue was made. `oldest_due_at_ms` is the run-after of the job that waits longest, or None.
    """

    queue: str
    priority: int
    pending: int = 0
    future: int = 0
    in_progress: int = 0
    succeeded: int = 0
    failed: int = 0
    enqueued_total: int = 0
    claimed_total: int = 0
    succeeded_total: int = 0
    failed_total: int = 0
    retried_total: int = 0
    oldest_due_at_ms: int | None = None


class Rates(NamedTuple):
    """Jobs a second over the last minute (less right after a start)."""

    enqueued: float = 0.0
    claimed: float = 0.0
    succeeded: float = 0.0
    failed: float = 0.0
    retried: float = 0.0


_SUMMED = tuple(field for field in QueueCounts._fields if field not in {"queue", "priority", "oldest_due_at_ms"})


def merge_counts(rows: Iterable[QueueCounts]) -> list[QueueCounts]:
    """What several shards count, one row for each queue and priority, in that order."""
    merged = CountsByKind()
    merged.add(rows)
    return merged.rows()


class CountsByKind:
    """Counts of several shards, added up by queue and priority piece by piece."""

    def __init__(self) -> None:
        self._merged: dict[tuple[str, int], QueueCounts] = {}

    def add(self, rows: Iterable[QueueCounts]) -> None:
        merged = self._merged
        for row in rows:
            before = merged.get((row.queue, row.priority))
            merged[row.queue, row.priority] = row if before is None else _sum(before, row)

    def rows(self) -> list[QueueCounts]:
        """By queue and priority."""
        return [self._merged[key] for key in sorted(self._merged)]


def _sum(one: QueueCounts, other: QueueCounts) -> QueueCounts:
    oldest = [at for at in (one.oldest_due_at_ms, other.oldest_due_at_ms) if at is not None]
    numbers = {field: getattr(one, field) + getattr(other, field) for field in _SUMMED}
    return one._replace(oldest_due_at_ms=min(oldest) if oldest else None, **numbers)
