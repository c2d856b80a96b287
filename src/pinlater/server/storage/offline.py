"""The results of reading a shard that isn't served here, the same for every kind of store with several shards."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from typing import Any, NamedTuple, Protocol, TypeAlias

from pinlater.domain.errors import PinLaterError
from pinlater.domain.job import JobState
from pinlater.domain.queue import Queue, QueueCounts
from pinlater.server.storage.values import Member, Page, PageRow, TimedKeys
from pinlater.wire.generated.structs import JobInfo, ShardSize

Migrated: TypeAlias = tuple[int, int, Sequence[str]]
"""The schema's version before and after a migration, and the migrations that were run."""
ScanJobs: TypeAlias = Callable[[Page], Awaitable[Sequence[PageRow] | PinLaterError]]
_QUEUES_MAX = 5  # queues whose live jobs are shown


class Look(NamedTuple):
    """How a shard is now. `schema` 0: there is no database yet, or nothing of ours in it. `body_bytes_max`: the longest body that it
    accepts, if it reports one.
    `warnings`: the promises that its database does not keep, as a server logs them at its start."""

    schema: int
    members: Sequence[Member] = ()
    counts: Sequence[QueueCounts] = ()
    body_bytes_max: int | None = None
    timed_keys: TimedKeys = TimedKeys()
    size: ShardSize = ShardSize()
    warnings: Sequence[str] = ()

    @property
    def live(self) -> int:
        """Jobs that wait or run."""
        return sum(row.counts.pending + row.counts.in_progress for row in self.counts)

    @property
    def finished(self) -> int:
        """Finished jobs that are still kept."""
        return sum(row.counts.succeeded + row.counts.failed for row in self.counts)


class LiveJobs(NamedTuple):
    """Some of the jobs that wait or run on a shard, without bodies, and all its queues by name."""

    jobs: Sequence[JobInfo] = ()
    queues: Mapping[str, Queue] = {}


class Offline(Protocol):
    """The module of a kind of database that works on a shard without serving it. Endpoint and settings are those of its kind; `shard` is
    the name. All raise `Unavailable`."""

    async def migrate_shard(self, endpoint: Any, settings: Any, shard: str, /) -> Migrated:
        """Migrates the shard to this program's schema."""

    async def look_at_shard(self, endpoint: Any, settings: Any, shard: str, now_ms: int, /) -> Look:
        """Returns schema, servers, counts and keys."""

    async def live_jobs(self, endpoint: Any, settings: Any, shard: str, now_ms: int, limit: int, /) -> LiveJobs:
        """Returns some of the jobs that wait or run."""

    async def forget_timed_keys(self, endpoint: Any, settings: Any, shard: str, now_ms: int, /) -> int:
        """Deletes the unique keys that only time would free; returns how many there were."""


async def find_live(scan: ScanJobs, counts: Sequence[QueueCounts], now_ms: int, limit: int) -> list[JobInfo]:
    """Up to `limit` live jobs, of the fullest queues: of each queue one that runs, one that is not due yet and one that is due, before a
    second one of a kind. Of those that are not due, the last one comes first, since the shard has to wait for it."""
    found: list[list[JobInfo]] = []
    for page in _live_pages(counts, now_ms, limit):
        rows = await scan(page)
        if not isinstance(rows, PinLaterError):
            found.append([row.job for row in rows])
    in_turns = chain.from_iterable(zip_longest(*found))
    return [job for job in in_turns if job is not None][:limit]


def _live_pages(counts: Sequence[QueueCounts], now_ms: int, limit: int) -> Iterator[Page]:
    live: dict[str, int] = {}
    for row in counts:
        live[row.queue] = live.get(row.queue, 0) + row.counts.pending + row.counts.in_progress
    for queue in sorted(live, key=lambda name: -live[name])[:_QUEUES_MAX]:
        used = [row.counts for row in counts if row.queue == queue]
        running = [each.priority for each in used if each.in_progress]
        waiting = [each.priority for each in used if each.pending]
        if running:
            yield Page(queue, JobState.IN_PROGRESS, running, limit)
        for future in (True, False) if waiting else ():
            yield Page(queue, JobState.PENDING, waiting, limit, due_by_ms=now_ms, future=future)
