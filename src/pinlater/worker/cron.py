"""Tasks that are enqueued by the clock. Any number of workers may run the same ones: each firing is enqueued under the unique key
`cron:<name>:<time>`, so it is made once.

Nothing is remembered between runs. What happens to firings that no worker was there to make follows from looking back when a worker
starts: not at all (`Missed.SKIP`), for the latest one (`Missed.LATEST`), or for all (`Missed.ALL`), as far back as `look_back` says.
The keys of those that were made are still there and keep them from being made again.

Expressions have five fields (minute, hour, day, month, weekday), or six with seconds first, read as Debian's cron reads them. Where a zone
changes its clock, a time that doesn't exist fires right after the change, and one that comes twice fires once, the first time; but an entry
for every hour goes by what the clock shows (`_firings.py`).

The worker's own clock may be wrong, and be set right. Set forward, what was passed over counts as missed. Set back, the entry goes on from
the time that it shows now, and says so; what was made too early is not made again while its key lasts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import lru_cache
from itertools import islice, takewhile
from typing import Any
from zoneinfo import ZoneInfo

from pinlater.client.errors import PinLaterError, QueueNotFound
from pinlater.client.values import UniqueKey, UniqueScope
from pinlater.domain.clock import Clock
from pinlater.domain.job import UNIQUE_FOR_MS_MAX
from pinlater.worker._cron.expression import Expression
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
# A clock may be ahead by so much, and a firing that is made so early is still known when its time has come.
_CLOCK_AHEAD = timedelta(hours=2)
# A firing's key is kept for twice the look-back and that, and a server keeps keys for a year at most.
LOOK_BACK_MAX = timedelta(days=((timedelta(milliseconds=UNIQUE_FOR_MS_MAX) - _CLOCK_AHEAD) / 2).days)
# A clock that is behind itself by more was set back; less is what adjusting it takes and gives.
_SET_BACK = timedelta(seconds=1)
_MOMENT = timedelta(microseconds=1)


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
        """The firings later than `moment`, in order, in UTC."""
        return _parsed(self.expression).after(moment, self.zone)

    def missed_before(self, now: datetime) -> list[datetime]:
        """The firings to make up for at `now`, the oldest first."""
        if self.missed is Missed.SKIP:
            return []
        return self._newest(now - self.look_back, now, self.missed)

    def late(self, due: datetime, now: datetime) -> list[datetime]:
        """What to fire at `now` when `due` was the next firing: just that, unless the worker stood still or the server was away."""
        missed = Missed.LATEST if self.missed is Missed.SKIP else self.missed
        return self._newest(max(due - _MOMENT, now - self._lateness), now, missed)

    def still_wanted(self, firing: datetime, now: datetime) -> bool:
        """Whether to go on with a firing that could not be made so far: it is not too late, nor overtaken by the next."""
        if now - firing > self._lateness:
            return False
        return self.missed is Missed.ALL or next(self.after(firing), now) >= now

    @property
    def _lateness(self) -> timedelta:
        """How late a firing may be made. What is older stays missed: another worker may have made it long ago, and its key be forgotten."""
        return _LATE if self.missed is Missed.SKIP else max(self.look_back, _LATE)

    def _newest(self, start: datetime, end: datetime, missed: Missed) -> list[datetime]:
        """Of the firings later than `start`, up to `end`: the last one, or as many of the last as are made up for, the oldest first."""
        wanted = 1 if missed is Missed.LATEST else _MISSED_MAX
        back = _LOOK_FIRST
        while True:  # further back each time, so that an entry that fires often is not gone through from long ago
            since = max(start, end - back)
            past = list(takewhile(lambda firing: firing <= end, self.after(since)))
            if len(past) >= wanted or since == start:
                return past[-wanted:]
            back *= 4

    def between(self, after: datetime, until: datetime) -> list[datetime]:
        """The firings later than `after`, up to `until`. Raises ValueError where there are too many."""
        firings = list(islice(takewhile(lambda firing: firing <= until, self.after(after)), _FIRINGS_MAX + 1))
        if len(firings) > _FIRINGS_MAX:
            raise ValueError(f"cron {self.name}: more than {_FIRINGS_MAX} firings from {after} to {until}")
        return firings

    def key(self, firing: datetime) -> UniqueKey:
        """What makes a firing one job, however many workers make it."""
        kept = 2 * self.look_back + _CLOCK_AHEAD
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
    _parsed(expression)
    try:
        zone = tz if isinstance(tz, ZoneInfo) else ZoneInfo(tz)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(f"no such time zone: {tz!r}") from error
    try:
        task.job()
    except TypeError as error:
        raise ValueError(f"task {task.name} can't be fired by the clock: it needs arguments ({error})") from error
    if not timedelta(0) <= look_back <= LOOK_BACK_MAX:
        raise ValueError(f"look_back must be from 0 to {LOOK_BACK_MAX.days} days, not {look_back}")
    return Cron(task, name or task.name, expression, zone, Missed(missed), look_back)


@lru_cache(maxsize=256)
def _parsed(expression: str) -> Expression:
    return Expression(expression)


class Timetable:
    """Makes the firings of one cron entry until cancelled."""

    def __init__(self, entry: Cron, clock: Clock, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep) -> None:
        self._entry = entry
        self._clock = clock
        self._sleep = sleep

    async def run(self) -> None:
        """Makes up for what was missed, then fires on time."""
        past = self._now()  # firings up to here are made, or missed
        for firing in self._entry.missed_before(past):
            await self._fire(firing)
        while True:
            due = next(self._entry.after(past), None)
            if due is None:
                _log.warning("cron %s: %r fires no more", self._entry.name, self._entry.expression)
                return
            past = await self._wait_for(due, past)
            if past >= due:
                for firing in self._entry.late(due, past):
                    await self._fire(firing)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)

    async def _wait_for(self, due: datetime, past: datetime) -> datetime:
        """The time, once it is `due`, or once the clock is found to be set back."""
        latest = past
        while True:
            now = self._now()
            if now >= due:
                return now
            if now < latest - _SET_BACK:
                back = {"seconds": round((latest - now).total_seconds())}
                _log.warning("cron %s: the clock was set back, going on by it", self._entry.name, extra=back)
                return now
            latest = max(latest, now)
            await self._sleep(min((due - now).total_seconds(), _SLEEP_MAX_S))

    async def _fire(self, firing: datetime) -> None:
        """Enqueues it, again and again until the server has it: a firing is not lost because a server was away for a while. One that is
        too late, or overtaken by the next where not all are to be made up for, is given up."""
        entry, failures = self._entry, 0
        while True:
            try:
                placed = await entry.task.using(unique=entry.key(firing)).enqueue_async()
            except PinLaterError as error:
                failures += 1
                pause_s = min(_AGAIN_MAX_S, _AGAIN_FIRST_S * 2.0 ** min(failures - 1, 10))
                level = logging.ERROR if isinstance(error, QueueNotFound) else logging.WARNING
                _log.log(level, "cron %s: can't enqueue, again in %g s: %s", entry.name, pause_s, error)
                await self._sleep(pause_s)
                if not entry.still_wanted(firing, self._now()):
                    _log.warning("cron %s: a firing was missed", entry.name, extra={"due": self._shown(firing)})
                    return
            else:
                if not placed.existing:
                    _log.info("cron %s fired", entry.name, extra={"job": placed.descriptor, "due": self._shown(firing)})
                return

    def _shown(self, firing: datetime) -> str:
        return firing.astimezone(self._entry.zone).isoformat()
