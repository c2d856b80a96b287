"""Tasks that are enqueued by the clock. Any number of workers may run the same ones: each firing is enqueued under the unique key
`cron:<name>:<time>`, so it is made once.

Nothing is remembered between runs. What happens to firings that no worker was there to make follows from looking back when a worker
starts: not at all (`Missed.SKIP`), for the latest one (`Missed.LATEST`), or for all (`Missed.ALL`), as far back as `look_back` says.
The keys of those that were made are still there and keep them from being made again.

Expressions have five fields (minute, hour, day, month, weekday), or six with seconds first, read as Debian's cron reads them, also
where the clocks change: a time that doesn't exist fires right after the change, one that comes twice fires once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from itertools import islice, takewhile
from typing import Any
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from pinlater.client.errors import PinLaterError, QueueNotFound
from pinlater.client.values import UniqueKey, UniqueScope
from pinlater.domain.clock import Clock
from pinlater.worker.tasks import Task

_log = logging.getLogger("pinlater.worker")
_MISSED_MAX = 1_000
_FIRINGS_MAX = 10_000
_AGAIN_FIRST_S, _AGAIN_MAX_S = 1.0, 60.0
# The longest sleep: a clock that is set right meanwhile must not leave a firing asleep for days.
_SLEEP_MAX_S = 30.0
_LOOK_FIRST = timedelta(minutes=1)
# A firing that is not made so long after its time was missed.
_LATE = timedelta(minutes=1)
_KEPT_AT_LEAST = timedelta(hours=1)


class Missed(Enum):
    """What becomes of firings that no worker made."""

    SKIP = "skip"
    LATEST = "latest"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Cron:
    """A task and when it fires."""

    task: Task[..., Any]
    name: str
    expression: str
    zone: ZoneInfo
    missed: Missed
    look_back: timedelta

    def after(self, moment: datetime) -> Iterator[datetime]:
        """The firings later than `moment`, in its order."""
        return CronSim(self.expression, moment.astimezone(self.zone))

    def missed_before(self, now: datetime) -> list[datetime]:
        """The firings to make up for at `now`, the oldest first."""
        if self.missed is Missed.SKIP:
            return []
        wanted = 1 if self.missed is Missed.LATEST else _MISSED_MAX
        back = min(self.look_back, _LOOK_FIRST)
        while True:  # further back each time, so that an entry that fires often is not gone through from long ago
            past = list(takewhile(lambda firing: firing <= now, self.after(now - back)))
            if len(past) >= wanted or back >= self.look_back:
                return past[-wanted:]
            back = min(self.look_back, 4 * back)

    def late(self, due: datetime, now: datetime) -> list[datetime]:
        """What to fire at `now` when `due` was the next firing: just that, unless the worker stood still or the server was away.

        What is older than `look_back` stays missed: another worker may have made it so long ago that its key is forgotten.
        """
        if self.missed is Missed.SKIP:
            back, missed = _LATE, Missed.LATEST
        else:
            back, missed = max(self.look_back, _LATE), self.missed
        return [firing for firing in replace(self, missed=missed, look_back=back).missed_before(now) if firing >= due]

    def between(self, after: datetime, until: datetime) -> list[datetime]:
        """The firings later than `after`, up to `until`. Raises ValueError where there are too many."""
        firings = list(islice(takewhile(lambda firing: firing <= until, self.after(after)), _FIRINGS_MAX + 1))
        if len(firings) > _FIRINGS_MAX:
            raise ValueError(f"cron {self.name}: more than {_FIRINGS_MAX} firings from {after} to {until}")
        return firings

    def key(self, firing: datetime) -> UniqueKey:
        """What makes a firing one job, however many workers make it."""
        kept = max(2 * self.look_back, _KEPT_AT_LEAST)
        text = f"cron:{self.name}:{firing.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
        return UniqueKey(text, UniqueScope.TIME, round(kept.total_seconds() * 1000))


def cron(
    task: Task[..., Any],
    expression: str,
    *,
    name: str | None = None,
    tz: str | ZoneInfo = "UTC",
    missed: Missed | str = Missed.LATEST,
    look_back: timedelta = timedelta(hours=1),
) -> Cron:
    """Checks everything now. Raises ValueError."""
    try:
        zone = tz if isinstance(tz, ZoneInfo) else ZoneInfo(tz)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(f"no such time zone: {tz!r}") from error
    try:
        CronSim(expression, datetime(2026, 1, 1, tzinfo=zone))
    except CronSimError as error:
        raise ValueError(f"not a cron expression: {expression!r}: {error}") from error
    try:
        task.job()
    except TypeError as error:
        raise ValueError(f"task {task.name} can't be fired by the clock: it needs arguments ({error})") from error
    if look_back < timedelta(0):
        raise ValueError("look_back must not be negative")
    return Cron(task, name or task.name, expression, zone, Missed(missed), look_back)


class Timetable:
    """Makes the firings of one cron entry until cancelled."""

    def __init__(self, entry: Cron, clock: Clock) -> None:
        self._entry = entry
        self._clock = clock

    async def run(self) -> None:
        """Makes up for what was missed, then fires on time."""
        now = self._now()
        for firing in self._entry.missed_before(now):
            await self._fire(firing)
        while True:
            due = next(self._entry.after(now), None)
            if due is None:
                _log.warning("cron %s: %r fires no more", self._entry.name, self._entry.expression)
                return
            await self._sleep_until(due)
            now = max(due, self._now())
            for firing in self._entry.late(due, now):
                await self._fire(firing)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)

    async def _sleep_until(self, moment: datetime) -> None:
        while (left := (moment - self._now()).total_seconds()) > 0:  # noqa: ASYNC110 - the event is the clock
            await asyncio.sleep(min(left, _SLEEP_MAX_S))

    async def _fire(self, firing: datetime) -> None:
        """Enqueues it, again and again until the server has it: a firing is not lost because a server was away. One that is overtaken
        by the next is given up, unless all are to be made up for."""
        entry, failures = self._entry, 0
        while True:
            try:
                placed = await entry.task.using(unique=entry.key(firing)).enqueue_async()
            except PinLaterError as error:
                failures += 1
                pause_s = min(_AGAIN_MAX_S, _AGAIN_FIRST_S * 2.0 ** min(failures - 1, 10))
                level = logging.ERROR if isinstance(error, QueueNotFound) else logging.WARNING
                _log.log(level, "cron %s: can't enqueue, again in %g s: %s", entry.name, pause_s, error)
                await asyncio.sleep(pause_s)
                if entry.missed is not Missed.ALL and next(entry.after(firing), self._now()) < self._now():
                    return
            else:
                if not placed.existing:
                    _log.info("cron %s fired", entry.name, extra={"job": placed.descriptor, "due": firing.isoformat()})
                return
