"""Tasks that a clock enqueues. Many workers may run the same entries: each firing has the unique key `cron:<name>:<time>`, so it becomes
one job. An entry without overlap has one key for all its firings, `cron:<name>`; `_cron/timetable.py` says how.

Workers store nothing about firings. A worker that starts looks back up to `look_back` for firings that no worker made: it skips them
(`Missed.SKIP`), makes the latest (`Missed.LATEST`), or all (`Missed.ALL`). The keys of earlier firings prevent doubles.

Weakness: a key ends long before the next firing of a daily entry, so a worker cannot tell a new entry from one whose worker was down.
A new entry makes firings of the look-back, too, unless it skips missed ones.

Expressions have five fields (minute, hour, day, month, weekday), or six with seconds first, as in Debian's cron, or are names such as
`@daily`. `_cron/expression.py` has the rule for changes of a zone's clock. A header of the job has the planned time of its firing.

An operator may correct the worker's clock. After a step forward, the skipped firings count as missed. After a step back, the entry
continues from the new time and logs that; firings that were made too early are not made again while their keys last.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import lru_cache
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo

from pinlater.client.values import UniqueKey, UniqueScope
from pinlater.domain.job import UNIQUE_FOR_MS_MAX
from pinlater.domain.setting_types import check_yes_or_no
from pinlater.worker.durations import Duration, as_duration_ms
from pinlater.worker.envelope import CRON_TIME_HEADER, cron_time_text
from pinlater.worker.tasks import Producer, Task

if TYPE_CHECKING:
    from pinlater.worker._cron.expression import Expression

_MISSED_MAX = 1_000
_FIRINGS_MAX = 10_000
_LOOK_FIRST = timedelta(minutes=1)
# How late a firing may be made before it counts as missed.
_LATE = timedelta(minutes=1)
# How far a worker's clock may be ahead: the key of a firing made too early lasts until the firing's time.
_CLOCK_AHEAD = timedelta(hours=2)
# A firing's key lasts for twice the look-back plus that, and a server keeps keys for a year at most.
LOOK_BACK_MAX = timedelta(days=((timedelta(milliseconds=UNIQUE_FOR_MS_MAX) - _CLOCK_AHEAD) / 2).days)
_MOMENT = timedelta(microseconds=1)


class Missed(Enum):
    """What happens to firings that no worker made."""

    SKIP = "skip"
    LATEST = "latest"
    ALL = "all"


class Cron(NamedTuple):
    """A task and when it fires."""

    task: Task[..., Any]
    name: str
    expression: str
    zone: ZoneInfo
    missed: Missed
    look_back: timedelta
    overlap: bool = True

    @property
    def days(self) -> str | None:
        """Of the day of the month and the weekday, whether "both" must match or "either" is enough; None unless both are given."""
        return _parsed(self.expression).days

    def after(self, moment: datetime) -> Iterator[datetime]:
        """The firings later than `moment`, in order, in UTC."""
        return _parsed(self.expression).after(moment, self.zone)

    def missed_before(self, now: datetime) -> list[datetime]:
        """The missed firings to make at `now`, oldest first."""
        if self.missed is Missed.SKIP:
            return []
        return self._newest(now - self.look_back, now, self.missed)

    def late(self, due: datetime, now: datetime) -> list[datetime]:
        """The firings to make at `now` if `due` was the next one: more than one if the worker or the server was suspended."""
        missed = Missed.LATEST if self.missed is Missed.SKIP else self.missed
        return self._newest(max(due - _MOMENT, now - self._lateness), now, missed)

    def still_wanted(self, firing: datetime, now: datetime) -> bool:
        """Whether to retry a firing: it is not too late, and the next one has not replaced it."""
        if now - firing > self._lateness:
            return False
        replaced = self.replaced_at(firing)
        return replaced is None or replaced >= now

    def replaced_at(self, firing: datetime) -> datetime | None:
        """When the next firing takes the place of one that is not made yet. None if all are made, or if it is the last."""
        return None if self.missed is Missed.ALL else next(self.after(firing), None)

    @property
    def _lateness(self) -> timedelta:
        """How late a firing may be made. Another worker may have made an older one, whose key has expired."""
        return _LATE if self.missed is Missed.SKIP else max(self.look_back, _LATE)

    def _newest(self, start: datetime, end: datetime, missed: Missed) -> list[datetime]:
        """The latest firings after `start`, up to `end`, oldest first: one, or as many as are made."""
        wanted = 1 if missed is Missed.LATEST else _MISSED_MAX
        back = _LOOK_FIRST
        while True:  # in growing steps, since an entry may fire every second
            since = max(start, end - back)
            past = list(takewhile(lambda firing: firing <= end, self.after(since)))
            if len(past) >= wanted or since == start:
                return past[-wanted:]
            back *= 4

    def between(self, after: datetime, until: datetime) -> list[datetime]:
        """The firings later than `after`, up to `until`. Raises ValueError if there are more than ten thousand."""
        firings = list(islice(takewhile(lambda firing: firing <= until, self.after(after)), _FIRINGS_MAX + 1))
        if len(firings) > _FIRINGS_MAX:
            raise ValueError(
                f"cron {self.name}: more than {_FIRINGS_MAX} firings from {after} to {until}; "
                "a run with `queues=` that leaves its queue out counts them as missed"
            )
        return firings

    def producer(self, firing: datetime) -> Producer[...]:
        """Returns what makes the job of a firing, which knows its time."""
        unique = self.key(firing) if self.overlap else UniqueKey(f"cron:{self.name}")
        return self.task.using(unique=unique, headers={CRON_TIME_HEADER: cron_time_text(firing, self.zone)})

    def key(self, firing: datetime) -> UniqueKey:
        """The unique key that makes a firing one job."""
        kept = 2 * self.look_back + _CLOCK_AHEAD
        text = f"cron:{self.name}:{firing.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
        return UniqueKey(text, UniqueScope.TIME, round(kept.total_seconds() * 1000))


def cron(
    task: Task[..., Any],
    expression: str,
    *,
    name: str | None = None,
    tz: str | ZoneInfo = "UTC",
    missed: Missed | str | None = None,
    overlap: bool = True,
    look_back: Duration = timedelta(hours=1),
) -> Cron:
    """A checked entry. Raises ValueError or TypeError."""
    _parsed(expression)
    try:
        zone = tz if isinstance(tz, ZoneInfo) else ZoneInfo(tz)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(f"no such time zone: {tz!r}") from error
    try:
        task.job()
    except TypeError as error:
        raise ValueError(f"task {task.name} needs arguments, so it can't be a cron task ({error})") from error
    back = (
        look_back
        if isinstance(look_back, timedelta)
        else timedelta(milliseconds=as_duration_ms(look_back, "look_back"))
    )
    if not timedelta(0) <= back <= LOOK_BACK_MAX:
        raise ValueError(f"look_back must be from 0 to {LOOK_BACK_MAX.days} days, not {look_back}")
    check_yes_or_no("overlap", overlap)
    how = _missed(missed or (Missed.LATEST if overlap else Missed.SKIP))
    if not overlap and how is not Missed.SKIP:
        raise ValueError(
            f"an entry with overlap=False makes up for no missed firing: missed must be 'skip', not {how.value!r}"
        )
    return Cron(task, name or task.name, expression, zone, how, back, overlap)


def _missed(value: Missed | str) -> Missed:
    try:
        return Missed(value)
    except ValueError:
        known = ", ".join(repr(one.value) for one in Missed)
        raise ValueError(f"missed must be one of {known}, not {value!r}") from None


@lru_cache(maxsize=256)
def _parsed(expression: str) -> Expression:
    from pinlater.worker._cron.expression import Expression

    return Expression(expression)
