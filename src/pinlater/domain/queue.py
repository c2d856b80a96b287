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


class Versions(NamedTuple):
    """Which change a queue's settings and its pause switch come from. Later ones are greater as texts; '' is before all: never changed,
    or by a server that kept no versions."""

    config: str = ""
    paused: str = ""

    def following(self, now_ms: int, random_bits: int) -> str:
        """The version of a change that is made now, later than both. Two servers' changes never have the same."""
        newest_ms = int(max(self).partition(".")[0] or 0)
        return f"{max(now_ms, newest_ms + 1):013d}.{random_bits:016x}"


class Queue(NamedTuple):
    """A queue as the store knows it."""

    name: str
    config: QueueConfig = QueueConfig()
    paused: bool = False
    versions: Versions = Versions()

    def changed(self, config: QueueConfig | None, paused: bool | None, version: str) -> Queue:
        """With other settings and/or the pause switch (None leaves as is). What has a later version, or the same, stays as it is; '' is
        a change by someone who keeps no versions, and always counts."""
        queue = self
        if config is not None and (not version or version > queue.versions.config):
            queue = queue._replace(config=config, versions=queue.versions._replace(config=version))
        if paused is not None and (not version or version > queue.versions.paused):
            queue = queue._replace(paused=paused, versions=queue.versions._replace(paused=version))
        return queue

    def newest(self, other: Queue) -> Queue:
        """The newer settings, and the newer pause switch, of two shards' rows of one queue; this one's where neither is newer."""
        queue = self
        if other.versions.config > queue.versions.config:
            queue = queue.changed(other.config, None, other.versions.config)
        if other.versions.paused > queue.versions.paused:
            queue = queue.changed(None, other.paused, other.versions.paused)
        return queue


def queue_of(name: str, text: str, paused: bool) -> Queue:
    """A queue as stored: `text` holds the settings. What a newer program wrote and this one doesn't know is passed over."""
    if text == "{}":  # as it is with most queues, of which there may be thousands
        return Queue(name, _NOTHING_SET, paused)
    found = json.loads(text)
    config = QueueConfig(**{field: found[field] for field in QueueConfig._fields if field in found})
    return Queue(name, config, paused, Versions(*found.get(_VERSIONS, ())[:2]))


def settings_text(queue: Queue) -> str:
    """What is stored of a queue beside its name and switch; only settings that are set. An older program passes the versions over, and
    drops them with the next change that it makes."""
    settings: dict[str, object] = {field: value for field, value in queue.config._asdict().items() if value is not None}
    if any(queue.versions):
        settings[_VERSIONS] = list(queue.versions)
    return json.dumps(settings)


_VERSIONS = "versions"


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
