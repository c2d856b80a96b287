"""Copies waiting jobs of an original PinLater into a running server, each of them once, even if the copy is started again.

Only the new server keeps state: every job has a unique key of scope TIME, made from its position in the original. If a job is sent
again, after a crash or a lost answer or in a second run, the server answers with the stored job, even if that finished long ago.
So a run always begins at the beginning.

Weakness: a run after a crash sends jobs again that are already stored; and after `remember_ms` a job counts as new.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pinlater.client import AsyncClient, Job, JobState, ServerInfo, UniqueKey, UniqueScope
from pinlater.client.errors import CallerError, PinLaterError, UnknownMethod
from pinlater.domain.batches import BYTES_MAX, JOBS_MAX, batches
from pinlater.domain.clock import Clock
from pinlater.domain.durations import due_fault, is_in_seconds
from pinlater.import_original.old_server import SourceFailed

if TYPE_CHECKING:  # its driver is an extra
    from pinlater.import_original.source import OldJob, Original, Table

T = TypeVar("T")
_ATTEMPTS_MAX = 2**31 - 1
_PAUSE_S, _PAUSE_S_MAX = 0.1, 5.0
TOO_FAR = "due_in_more_than_a_year"


class CopyPlan(NamedTuple):
    """What to copy and how. `queues` empty: all. `origin` distinguishes installations that have shards and queues of the same names."""

    queues: Sequence[str] = ()
    states: Sequence[JobState] = (JobState.PENDING,)
    remember_ms: int = 30 * 24 * 3_600_000
    retry_for_s: float = 60.0
    origin: str = ""


@dataclass
class CopyCounts:
    """Counts of one queue's jobs of one priority. `found`: the jobs to copy; `left`: the others, by their state, and as `TOO_FAR` those
    that are due in more than a year, which the new server refuses."""

    found: int = 0
    copied: int = 0
    already_there: int = 0
    left: Counter[str] = field(default_factory=Counter)


class Imported(NamedTuple):
    """A job's names: in the original, and here."""

    old: str
    new: str


Told = Callable[[Sequence[Imported]], None]
Shown = Callable[["Table", CopyCounts], None]


class Copy:
    """One run. Without a client, it is a dry run, which only counts. `counts` may be read at any time, even after a failure."""

    def __init__(self, plan: CopyPlan, client: AsyncClient | None, told: Told, shown: Shown, clock: Clock) -> None:
        self._plan = plan
        self._client = client
        self._told = told
        self._shown = shown
        self._clock = clock
        self._made: set[str] = set()
        self.counts: dict[tuple[str, int], CopyCounts] = {}

    async def run(self, originals: Sequence[Original]) -> None:
        """Copies table after table. Raises `SourceFailed` and the client's errors; jobs copied until then stay."""
        info = None if self._client is None else await _ask_who_it_is(self._client)
        found = [(original, table) for original in originals for table in await original.tables()]
        wanted = self._plan.queues
        _check_queues(wanted, {table.queue for _, table in found})
        for original, table in found:
            if not wanted or table.queue in wanted:
                await self._copy_table(original, table, info)

    async def _copy_table(self, original: Original, table: Table, info: ServerInfo | None) -> None:
        plan, client = self._plan, self._client
        counts = self.counts.setdefault((table.queue, table.priority), CopyCounts())
        if client is not None and table.queue not in self._made:
            await self._patiently(partial(client.create_queue, table.queue))
            self._made.add(table.queue)
        next_id: int | None = 0
        while next_id is not None:
            page = await self._patiently(partial(original.page, table, next_id, plan.states, bodies=client is not None))
            jobs = [job for job in page.jobs if not self._is_too_far(job)]
            counts.left += page.others
            counts.left[TOO_FAR] += len(page.jobs) - len(jobs)
            counts.found += len(jobs)
            if client is not None and info is not None:
                _check_jobs(table, jobs, info)
                jobs_max = min(JOBS_MAX, info.max_jobs_per_request)
                bytes_max = min(BYTES_MAX, info.max_frame_bytes // 2)
                for batch in batches(jobs, lambda job: job.size, jobs_max, bytes_max):
                    await self._send(client, table, batch, counts)
            self._shown(table, counts)
            next_id = page.next_id

    def _is_too_far(self, job: OldJob) -> bool:
        return bool(job.run_after_ms and due_fault(job.run_after_ms, self._clock.now_ms()))

    async def _send(self, client: AsyncClient, table: Table, batch: Sequence[OldJob], counts: CopyCounts) -> None:
        jobs = [self._job(table, old) for old in batch]
        # Its unique keys make a resend safe; a request key in addition would make a server with many shards store them one by one.
        stored = await self._patiently(partial(client.enqueue, table.queue, jobs))
        counts.already_there += len(stored.existing)
        counts.copied += len(batch) - len(stored.existing)
        names = [table.descriptor(old.local_id) for old in batch]
        self._told([Imported(old, new) for old, new in zip(names, stored.descriptors, strict=True)])

    def _job(self, table: Table, old: OldJob) -> Job:
        """The job to enqueue, with its remaining attempts. Its key contains its creation time, since the original may reuse ids."""
        name = f"original:{self._plan.origin}:{table.descriptor(old.local_id)}:{old.created_at_s}"
        return Job(
            old.body,
            priority=table.priority,
            run_after_ms=0 if old.run_after_ms and is_in_seconds(old.run_after_ms) else old.run_after_ms,
            attempts_allowed=min(max(1, old.attempts_remaining), _ATTEMPTS_MAX),
            custom_status=old.custom_status,
            unique=UniqueKey(name, UniqueScope.TIME, self._plan.remember_ms),
        )

    async def _patiently(self, action: Callable[[], Awaitable[T]]) -> T:
        """Repeats `action` while its error is temporary, for at most `retry_for_s`. Use it only for an action that may take effect
        twice."""
        started, pause_s = self._clock.monotonic(), _PAUSE_S
        while True:
            try:
                return await action()
            except (PinLaterError, SourceFailed) as error:
                passing = error.passing if isinstance(error, SourceFailed) else error.retryable
                if not passing or self._clock.monotonic() + pause_s - started > self._plan.retry_for_s:
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)


async def _ask_who_it_is(client: AsyncClient) -> ServerInfo:
    """The new server's limits. An original server would take every job as a new one, each time."""
    try:
        return await client.server_info()
    except UnknownMethod as error:
        raise CallerError(
            "The server to copy into is an original PinLater, which does not know unique keys: a second run would duplicate its jobs"
        ) from error


def _check_queues(wanted: Sequence[str], there: set[str]) -> None:
    missing = [name for name in wanted if name not in there]
    if missing:
        known = ", ".join(sorted(there)) or "none at all"
        raise CallerError(
            f"No tables of queue {', '.join(missing)} (databases plq_<shard>_<queue>); there are: {known}"
        )


def _check_jobs(table: Table, jobs: Sequence[OldJob], info: ServerInfo) -> None:
    """Raises for jobs that the new server would refuse, with the setting that helps."""
    if jobs and table.priority > info.priority_levels:
        raise CallerError(
            f"{table.name} has priority {table.priority}, but the server's lowest is {info.priority_levels}: "
            f"start it with jobs.priority_levels = {table.priority}"
        )
    for job in jobs:
        if len(job.body) > info.max_body_bytes:
            raise CallerError(
                f"{table.descriptor(job.local_id)} has a body of {len(job.body)} bytes, but the server takes at most "
                f"{info.max_body_bytes}: start it with a higher jobs.max_body_bytes (and max_allowed_packet of its databases)"
            )
