"""The note of `pinlater shards drain` when the number of live jobs does not change: some of the jobs, and why they are still there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pinlater.cli.shard_queries import Seen, find_live_jobs
from pinlater.client._search_calls import job_info
from pinlater.client.jobs import JobInfo
from pinlater.client.waiting import QueueFacts, known_to_store
from pinlater.domain.clock import Clock, SystemClock
from pinlater.domain.errors import PinLaterError

if TYPE_CHECKING:
    from pinlater.domain.queue import Queue
    from pinlater.server.config.settings import Settings

STANDS_STILL_S = 10.0
_JOBS_SHOWN = 3


class DrainStandstill:
    """Reports once that the number has stayed the same for `STANDS_STILL_S`, and again after it has changed."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._seen: str | None = None
        self._since_s = 0.0
        self._told = False

    def begins(self, seen: str) -> bool:
        """Returns whether a standstill has just begun, given the present number."""
        now_s = self._clock.monotonic()
        if seen != self._seen:
            self._seen, self._since_s, self._told = seen, now_s, False
        if self._told or now_s - self._since_s < STANDS_STILL_S:
            return False
        self._told = True
        return True


async def why_jobs_remain(seen: Sequence[Seen], settings: Settings) -> list[str]:
    """Lines about a few of the live jobs of these shards. None if there are no such jobs, or no shard can be asked."""
    lines: list[str] = []
    names: list[str] = []
    for shard in seen:
        if shard.look is None or not shard.look.live or len(lines) >= _JOBS_SHOWN:
            continue
        try:
            found = await find_live_jobs(shard.place, settings, _JOBS_SHOWN - len(lines))
        except PinLaterError:
            continue
        if found.jobs:
            names.append(shard.place.name)
        lines += [
            f"- {job.descriptor}: {_why(job_info(job), found.queues.get(job.descriptor.partition(':')[0]))}"
            for job in found.jobs
        ]
    if not lines:
        return []
    head = f"The number has not changed for {STANDS_STILL_S:.0f} s. Jobs that remain, and why:"
    scans = f"`pinlater job list --shard {names[0]}` lists the due jobs of the shard, with --future those that are due later, and with "
    return [head, *lines, f"{scans}`--state in_progress` those that workers have"]


def _why(job: JobInfo, queue: Queue | None) -> str:
    """Returns why the job is there, by this machine's clock."""
    facts = QueueFacts()
    if queue is not None:
        limit = queue.config.max_jobs_per_second
        facts = QueueFacts(queue.paused, queue.paused_at_ms, queue.paused_by, limit)
    reasons = known_to_store(SystemClock().now_ms(), job, facts)
    told = " ".join(reason.text for reason in reasons)
    return told or f"It is due, and no worker has taken it yet (`pinlater job explain {job.descriptor}` tells more)."
