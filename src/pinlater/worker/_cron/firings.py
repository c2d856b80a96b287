"""Enqueues the firings of one entry, each as one job, and leaves out those that would only pile up behind an earlier one.

While a queue is paused, or its workers are busy, a firing waits for its run. Unless the entry wants all firings, no other one is enqueued
meanwhile: one run makes up for all. Whether one waits is asked of the server. This process remembers only which job to ask for; after a
start it looks for it among the newest jobs that wait.

An entry without overlap has one unique key for all its firings, which its job holds until it has finished, so that the server refuses a
second job. The request key then tells a firing that another worker has made. Servers remember it for two minutes, so these entries make
up for no missed firing.

Weakness: after a start, the waiting job is not found behind many others, or with a token that may not look at jobs. Then one more waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from pinlater.client import _job_calls, _search_calls
from pinlater.client._client_call import ClientCall
from pinlater.client.batching import Placed
from pinlater.client.errors import AccessDenied, PinLaterError, RequestKeyConflict, UnknownMethod
from pinlater.client.values import JobInfo
from pinlater.domain.clock import CLOCK_JUMP_MS
from pinlater.domain.job import JobState
from pinlater.domain.job_filter import JobFilter
from pinlater.worker.cron import Cron, Missed

_log = logging.getLogger("pinlater.worker")
_LOOKED_AT = 200
_ANSWER_S = 2.0
Ask = Callable[[ClientCall[Any]], Awaitable[Any]]


class Firings:
    """Belongs to one entry. `ask` carries out a call; without it no firing is left out."""

    def __init__(self, entry: Cron, ask: Ask | None = None) -> None:
        self._entry = entry
        self._ask = ask
        self._last: str | None = None  # the job that may wait
        self._looked = False

    async def one_waits(self) -> bool:
        """Whether a firing waits for its first run, which makes up for the next one. No if the server can't tell: its shard may be
        unreachable, and the next firing's not."""
        entry, ask = self._entry, self._ask
        if ask is None or entry.missed is Missed.ALL or not entry.overlap:
            return False
        try:
            async with asyncio.timeout(_ANSWER_S):
                if self._last is None and not self._looked:
                    self._last = await self._look(ask)
                    self._looked = True
                if self._last is None:
                    return False
                return _waits((await ask(_search_calls.lookup([self._last], bodies=False))).get(self._last))
        except (TimeoutError, PinLaterError):
            return False

    async def enqueue(self, firing: datetime) -> Placed:
        """Stores the firing's job. If the entry has no overlap, and its job waits or runs, this is that job."""
        if self._entry.overlap:
            placed = await self._entry.producer(firing).enqueue_async()
        else:
            placed = await self._alone(firing)
        self._last = placed.descriptor
        return placed

    async def _look(self, ask: Ask) -> str | None:
        newest = _search_calls.scan(
            self._entry.task.queue,
            JobFilter(JobState.PENDING),
            future=False,
            limit=_LOOKED_AT,
            continuation="0",
            paged=False,
            bodies=False,
            shard=None,
        )
        try:
            jobs: list[JobInfo] = (await ask(newest)).jobs
        except (AccessDenied, UnknownMethod):
            return None
        prefix = f"cron:{self._entry.name}:2"  # years begin with it
        return next((job.descriptor for job in jobs if (job.unique_key or "").startswith(prefix) and _waits(job)), None)

    async def _alone(self, firing: datetime) -> Placed:
        entry = self._entry
        assert self._ask is not None  # noqa: S101 - a worker gives it
        job = entry.producer(firing).job()
        of_entry = sha256(entry.name.encode()).hexdigest()
        key = f"{round(firing.astimezone(UTC).timestamp() * 1000):012x}{of_entry[:12]}"
        try:
            enqueued = await self._ask(_job_calls.enqueue(entry.task.queue, [job], key, repeat=True))
        except RequestKeyConflict:  # another worker made it, with another trace or version of the task
            return Placed("", existing=True)
        return Placed(enqueued.descriptors[0], bool(enqueued.existing))


def _waits(job: JobInfo | None) -> bool:
    """Whether no attempt of the job has begun. One that waits for a time, since its task snoozed it or failed, has begun."""
    if job is None or job.state is not JobState.PENDING or job.attempts_remaining != job.attempts_allowed:
        return False
    return (job.run_after_ms or 0) - job.created_at_ms <= CLOCK_JUMP_MS
