"""Enqueues the firings of one cron entry on time, each as one job, and leaves out those that would only pile up behind an earlier one.

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
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from pinlater.client import _job_calls, _search_calls
from pinlater.client._client_call import ClientCall
from pinlater.client.batching import Placed
from pinlater.client.errors import AccessDenied, PinLaterError, QueueNotFound, RequestKeyConflict, UnknownMethod
from pinlater.client.values import JobInfo
from pinlater.domain.clock import CLOCK_JUMP_MS, Clock
from pinlater.domain.job import JobState
from pinlater.domain.job_filter import JobFilter
from pinlater.worker.cron import Cron, Missed

_log = logging.getLogger("pinlater.worker")
_RETRY_FIRST_S, _RETRY_MAX_S = 1.0, 60.0
# How long a server may take for a firing, at least, though the next one is due.
_ANSWER_MIN_S = 5.0
# The longest sleep: the clock may be corrected meanwhile.
_SLEEP_MAX_S = 30.0
# A larger step back is a correction of the clock; a smaller one is normal adjustment.
_SET_BACK = timedelta(seconds=1)
_LOOKED_AT = 200
_LOOK_S = 2.0
Ask = Callable[[ClientCall[Any]], Awaitable[Any]]


class Firings:
    """Belongs to one entry. `ask` executes a call; without it no firing is left out."""

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
            async with asyncio.timeout(_LOOK_S):
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


class Timetable:
    """Belongs to one entry. Runs until cancelled."""

    def __init__(
        self,
        entry: Cron,
        clock: Clock,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        ask: Ask | None = None,
    ) -> None:
        self._entry = entry
        self._firings = Firings(entry, ask)
        self._told_waiting = False  # that firings are left out
        self._clock = clock
        self._sleep = sleep
        self._told_missing = False  # that its queue does not exist
        self._missed_before = False  # since the last one that was enqueued

    async def run(self) -> None:
        """Makes the missed firings, then each one on time."""
        past = self._now()  # all firings up to here are made or missed
        for firing in self._entry.missed_before(past):
            await self._fire(firing)
        while True:
            due = next(self._entry.after(past), None)
            if due is None:
                _log.warning("cron %s: %r never fires again", self._entry.name, self._entry.expression)
                return
            past = await self._wait_for(due, past)
            if past >= due:
                for firing in self._entry.late(due, past):
                    await self._fire(firing)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)

    async def _wait_for(self, due: datetime, past: datetime) -> datetime:
        """Returns the time when it is `due`, or when the clock was set back."""
        latest = past
        while True:
            now = self._now()
            if now >= due:
                return now
            if now < latest - _SET_BACK:
                back = {"seconds": round((latest - now).total_seconds())}
                _log.warning(
                    "cron %s: the clock was set back; continuing from its new time", self._entry.name, extra=back
                )
                return now
            latest = max(latest, now)
            await self._sleep(min((due - now).total_seconds(), _SLEEP_MAX_S))

    async def _fire(self, firing: datetime) -> None:
        """Enqueues a firing, unless an earlier one waits; retries until the server has it, or until it is too late or replaced by the
        next one."""
        entry, failures = self._entry, 0
        while True:
            try:
                async with asyncio.timeout(self._answer_s(firing)):
                    if await self._firings.one_waits():
                        self._log_left_out()
                        return
                    placed = await self._firings.enqueue(firing)
            except TimeoutError:
                self._log_missed(firing, "no answer came before the next one was due")
                return
            except PinLaterError as error:
                failures += 1
                pause_s = min(_RETRY_MAX_S, _RETRY_FIRST_S * 2.0 ** min(failures - 1, 10))
                missing = isinstance(error, QueueNotFound)
                # Its consumer has warned, and said how to create the queue.
                level = logging.DEBUG if missing and self._told_missing else logging.WARNING
                self._told_missing = missing
                _log.log(level, "cron %s: can't enqueue, retrying in %g s: %s", entry.name, pause_s, error)
                await self._sleep(pause_s)
                if not entry.still_wanted(firing, self._now()):
                    self._log_missed(firing, error)
                    return
            else:
                self._told_missing = self._missed_before = self._told_waiting = False
                if not placed.existing:
                    # The attempt has a line at info. A second one per job would only repeat it.
                    fired = {"job": placed.descriptor, "due": self._shown(firing)}
                    _log.debug("cron %s fired", entry.name, extra=fired)
                return

    def _answer_s(self, firing: datetime) -> float | None:
        """How long to wait for a server: until the next firing replaces this one, so that not both are made when it comes back."""
        replaced = self._entry.replaced_at(firing)
        return None if replaced is None else max(_ANSWER_MIN_S, (replaced - self._now()).total_seconds())

    def _log_left_out(self) -> None:
        level = logging.DEBUG if self._told_waiting else logging.INFO
        _log.log(level, "cron %s: a firing waits for its run; no other one is enqueued meanwhile", self._entry.name)
        self._told_missing, self._told_waiting = False, True

    def _log_missed(self, firing: datetime, error: PinLaterError | str) -> None:
        """The first one of an outage is named. The lines of others are equal, so that the log can leave them out and count them."""
        due = None if self._missed_before else {"due": self._shown(firing)}
        level = logging.DEBUG if isinstance(error, QueueNotFound) else logging.WARNING
        _log.log(level, "cron %s: a firing was missed: %s", self._entry.name, error, extra=due)
        self._missed_before = True

    def _shown(self, firing: datetime) -> str:
        return firing.astimezone(self._entry.zone).isoformat()
