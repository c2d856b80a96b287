"""When a cron expression fires in a time zone. All moments are UTC.

`cronsim` reads the expression and finds the matching times of a clock that never changes; this module handles changes of a zone's clock.
Between two changes, local time is UTC plus a constant. The rule:

- An entry for all twenty-four hours fires whenever the clock shows a matching time: also in a repeated hour, and not for a skipped one.
- Any other entry fires once for each matching time of the calendar: the first time if the clock shows it twice, and right after the gap if
  the clock skips it. Several firings at one moment are one.

Weakness: two changes within half a day that undo each other go unnoticed. No zone has had such changes since 1970.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import cached_property
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from pinlater.domain.wording import counted

_SECOND, _STEP = timedelta(seconds=1), timedelta(hours=12)
_HOURS = 24
# The names that cron has for some expressions, with what they stand for.
_NAMED = {
    "@hourly": "0 * * * *",
    **dict.fromkeys(("@daily", "@midnight"), "0 0 * * *"),
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    **dict.fromkeys(("@yearly", "@annually"), "0 0 1 1 *"),
}


class Expression:
    """A cron expression: five fields, six with seconds first, or a name such as `@daily`. Raises ValueError or TypeError."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - not all callers have a type checker
            raise TypeError(f"a cron expression must be a text such as '*/5 * * * *', not {text!r}")
        if text.startswith("@"):
            text = _named(text)
        try:
            parsed = CronSim(text, datetime(2026, 1, 1))  # noqa: DTZ001 - cronsim computes without zones
        except CronSimError as error:
            number = len(text.split())
            wanted = "not five, or six with the seconds first"
            why = str(error) if number in (5, 6) else f"it has {counted(number, 'field')}, {wanted}"
            raise ValueError(f"not a cron expression: {text!r}: {why}") from error
        self.text = text
        self.fires_every_hour = len(parsed.hours) == _HOURS
        # Of the day of the month and the weekday, whether "both" must match, as in Debian's cron if one of the fields begins with a star.
        self.days = None if "*" in (parsed.parts[3], parsed.parts[5]) else "both" if parsed.day_and else "either"

    def after(self, moment: datetime, zone: ZoneInfo) -> Iterator[datetime]:
        """The firings later than `moment`, in order, in UTC."""
        return _Walk(self, zone, moment).firings()


def _named(name: str) -> str:
    """Returns the expression that a name stands for. Raises ValueError that says what to write instead."""
    known = _NAMED.get(name.lower())
    if known is not None:
        return known
    why = f"{name!r} is none of the names {', '.join(_NAMED)}"
    if name.lower() == "@reboot":
        why = f"{name!r}: a start is no time: call the function before worker.run()"
    elif name.lower().startswith("@every"):
        why = f"{name!r}: write '*/5 * * * *', for example"
    elif near := get_close_matches(name.lower(), _NAMED, n=1, cutoff=0.7):
        why += f"; did you mean {near[0]}?"
    raise ValueError(f"not a cron expression: {why}")


class _Walk:
    """Walks through a zone's time from one change of the clock to the next."""

    def __init__(self, expression: Expression, zone: ZoneInfo, moment: datetime) -> None:
        self._expression = expression
        self._zone = zone
        self._at = moment.astimezone(UTC).replace(microsecond=0)
        self._offset = self._offset_at(self._at)
        # The next change of the clock, or None if there is none up to `_looked_until`.
        self._coming: datetime | None = None
        self._looked_until = self._at
        # Matching times after this local time have not fired yet.
        self._past = self._local(self._at)
        if not expression.fires_every_hour:
            self._past = max(self._past, self._shown_before)

    def firings(self) -> Iterator[datetime]:
        while True:
            change: datetime | None = None
            for local in CronSim(self._expression.text, self._past):
                firing = (local - self._offset).replace(tzinfo=UTC)
                change = self._change_up_to(firing)
                if change is not None:
                    if self._cross(change, local):
                        yield change
                    break
                self._at = firing
                yield firing
            if change is None:
                return

    def _cross(self, change: datetime, due: datetime) -> bool:
        """Moves past a change of the clock. Whether the entry fires at the change; `due` is its first firing that did not come before."""
        ends = self._local(change)  # the clock changed before it showed this time
        self._at = self._looked_until = change
        self._coming = None
        self._offset = self._offset_at(change)
        begins = self._local(change)
        if self._expression.fires_every_hour:
            self._past = begins - _SECOND
            return False
        self._past = max(ends, begins) - _SECOND
        if due >= begins:
            return False
        self._past = begins
        return True

    @cached_property
    def _shown_before(self) -> datetime:
        """In a repeated hour: the latest time that the clock showed before it was set back."""
        local = self._at.astimezone(self._zone)
        if not local.fold:
            return self._past
        first = local.replace(fold=0).astimezone(UTC)
        change = _change(self._zone, first, self._at)
        return self._past if change is None else (change + self._offset_at(first)).replace(tzinfo=None) - _SECOND

    def _local(self, moment: datetime) -> datetime:
        return (moment + self._offset).replace(tzinfo=None)

    def _offset_at(self, moment: datetime) -> timedelta:
        return offset_at(self._zone, moment)

    def _change_up_to(self, moment: datetime) -> datetime | None:
        """The next change of the clock, if it comes no later than `moment`."""
        while self._coming is None and self._looked_until < moment:
            start, self._looked_until = self._looked_until, self._looked_until + _STEP
            self._coming = _change(self._zone, start, self._looked_until)
        return self._coming if self._coming is not None and self._coming <= moment else None


def offset_at(zone: ZoneInfo, moment: datetime) -> timedelta:
    """Local time minus UTC."""
    offset = moment.astimezone(zone).utcoffset()
    assert offset is not None  # noqa: S101 - a ZoneInfo always knows
    return offset


def _change(zone: ZoneInfo, start: datetime, end: datetime) -> datetime | None:
    """The first moment after `start`, up to `end`, at which the offset changes."""
    before = offset_at(zone, start)
    at = start
    while at < end:
        step = min(at + _STEP, end)
        if offset_at(zone, step) != before:
            break
        at = step
    else:
        return None
    while step - at > _SECOND:
        middle = at + (step - at) // _SECOND // 2 * _SECOND
        at, step = (middle, step) if offset_at(zone, middle) == before else (at, middle)
    return step
