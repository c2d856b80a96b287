"""When cron entries fire, compared with reading the zone's clock minute by minute, around every change of every zone's clock.

The walk is the rule as the documentation says it: what a clock on the wall shows, and which of its times are shown twice or left out.
A run checks some changes at random; PINLATER_ALL_CLOCK_CHANGES=1 checks all of ten years in all zones.
"""

from __future__ import annotations

import os
import random
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice, takewhile
from typing import NamedTuple
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinlater.worker.cron import Cron
from tests.worker.cron.test_cron import entry

FIRST, LAST = datetime(2017, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
ZONES = sorted(available_timezones() - {"localtime", "posixrules", "Factory"})
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
SPAN = timedelta(hours=30)


class Fields(NamedTuple):
    """An expression of five fields as sets; days and months are always `*`."""

    minutes: frozenset[int]
    hours: frozenset[int]

    @property
    def text(self) -> str:
        hours = "*" if len(self.hours) == 24 else ",".join(map(str, sorted(self.hours)))
        return f"{','.join(map(str, sorted(self.minutes)))} {hours} * * *"

    def match(self, shown: datetime) -> bool:
        return shown.minute in self.minutes and shown.hour in self.hours


def offset(zone: ZoneInfo, moment: datetime) -> timedelta:
    found = moment.astimezone(zone).utcoffset()
    assert found is not None
    return found


@cache
def changes(name: str) -> tuple[datetime, ...]:
    """When a zone's clock changes, to the minute."""
    zone, found, moment = ZoneInfo(name), [], FIRST
    while moment < LAST:
        low, high = moment, moment + DAY
        if offset(zone, low) != offset(zone, high):
            while high - low > MINUTE:
                middle = low + ((high - low) // MINUTE // 2) * MINUTE
                low, high = (middle, high) if offset(zone, middle) == offset(zone, low) else (low, middle)
            found.append(high)
        moment += DAY
    return tuple(found)


def walked(zone: ZoneInfo, fields: Fields, after: datetime, until: datetime) -> list[datetime]:
    """The firings later than `after`, up to `until`, found by reading the zone's clock each minute."""
    every_hour, fired = len(fields.hours) == 24, []
    moment = after.replace(second=0, microsecond=0) - DAY
    before = moment.astimezone(zone).replace(tzinfo=None)
    latest = before  # the latest time that the clock has shown
    while (moment := moment + MINUTE) <= until:
        shown = moment.astimezone(zone).replace(tzinfo=None)
        if every_hour:
            fires = fields.match(shown)
        else:  # each time once: those that are left out at the first moment after, those that come again not at all
            new = (latest + number * MINUTE for number in range(1, (shown - latest) // MINUTE + 1))
            fires = any(fields.match(each) for each in new)
        latest = max(latest, shown)
        if fires and moment > after:
            fired.append(moment)
    return fired


def found(entry: Cron, after: datetime, until: datetime) -> list[datetime]:
    return [firing.astimezone(UTC) for firing in takewhile(lambda firing: firing <= until, entry.after(after))]


def check(name: str, change: datetime, fields: Fields, start: timedelta) -> None:
    after = change + start
    firings = found(entry(fields.text, tz=name), after, after + SPAN)
    assert firings == walked(ZoneInfo(name), fields, after, after + SPAN), (name, change, fields.text, after)


def near_to(change: datetime, zone: str) -> Fields:
    """Times around the change, some of them repeated or skipped."""
    local = (change - MINUTE).astimezone(ZoneInfo(zone))
    return Fields(frozenset({local.minute, 0, 30}), frozenset({local.hour, (local.hour + 1) % 24}))


@st.composite
def expressions(draw: st.DrawFn) -> Fields:
    minutes = draw(st.sets(st.integers(0, 59), min_size=1, max_size=4))
    hours = draw(st.one_of(st.just(range(24)), st.sets(st.integers(0, 23), min_size=1, max_size=23)))
    return Fields(frozenset(minutes), frozenset(hours))


@settings(deadline=None, max_examples=int(os.environ.get("PINLATER_CLOCK_CHANGES", "150")))
@given(
    zone=st.sampled_from(ZONES),
    which=st.integers(0, 1_000),
    fields=expressions(),
    near=st.booleans(),
    start=st.one_of(st.integers(-2 * 3600, 3 * 3600), st.integers(-36 * 3600, 6 * 3600)).map(
        lambda seconds: timedelta(seconds=seconds)
    ),
)
def test_around_a_change_of_the_clock_each_time_of_a_zone_fires_once(
    zone: str, which: int, fields: Fields, start: timedelta, near: bool
) -> None:
    """And an entry for every hour fires whenever the clock shows its time."""
    of_zone = changes(zone)
    change = of_zone[which % len(of_zone)] if of_zone else FIRST + which * DAY
    check(zone, change, near_to(change, zone) if near else fields, start)


@pytest.mark.skipif(
    "PINLATER_ALL_CLOCK_CHANGES" not in os.environ, reason="takes minutes: set PINLATER_ALL_CLOCK_CHANGES"
)
@pytest.mark.timeout(7200)
def test_around_every_change_of_every_zone_each_time_fires_once() -> None:
    rng, seen, checked = random.Random(20260301), set(), 0
    for name in ZONES:
        same = (changes(name), tuple(offset(ZoneInfo(name), change) for change in changes(name)))
        if same in seen:
            continue  # another name of a zone that was checked
        seen.add(same)
        for change in changes(name):
            every_hour = Fields(frozenset(rng.sample(range(60), 2)), frozenset(range(24)))
            some = Fields(frozenset(rng.sample(range(60), 2)), frozenset(rng.sample(range(24), rng.randrange(1, 23))))
            for fields in (every_hour, some, near_to(change, name)):
                check(name, change, fields, timedelta(seconds=rng.randrange(-4 * 3600, 4 * 3600)))
                checked += 1
    assert checked > 1_000


def nights(zone: str, expression: str, start: str, count: int) -> list[str]:
    firings = entry(expression, tz=zone).after(datetime.fromisoformat(start).replace(tzinfo=UTC))
    return [f"{firing.astimezone(UTC):%d %H:%M:%S}" for firing in islice(firings, count)]


@pytest.mark.parametrize(
    ("zone", "expression", "start", "firings"),
    [
        ("Europe/Berlin", "0 30 2 * * *", "2026-10-24T12:00", ["25 00:30:00", "26 01:30:00"]),
        ("Europe/Berlin", "30 30 2 * * *", "2026-03-28T12:00", ["29 01:00:00", "30 00:30:30"]),
        ("Europe/Berlin", "*/30 2 * * *", "2026-03-28T12:00", ["29 01:00:00", "30 00:00:00"]),
        ("Europe/Berlin", "0 */2 * * *", "2026-10-24T22:30", ["25 00:00:00", "25 03:00:00"]),
        ("Europe/Berlin", "0 */2 * * *", "2026-03-28T23:30", ["29 01:00:00", "29 02:00:00"]),
        (
            "Europe/Berlin",
            "30 * * * *",
            "2026-10-24T23:00",
            ["24 23:30:00", "25 00:30:00", "25 01:30:00", "25 02:30:00"],
        ),
        ("Europe/Berlin", "30 * * * *", "2026-03-29T00:00", ["29 00:30:00", "29 01:30:00"]),
        ("Australia/Lord_Howe", "45 1 * * *", "2026-04-04T12:00", ["04 14:45:00", "05 15:15:00"]),
        ("Australia/Lord_Howe", "15 2 * * *", "2026-10-03T12:00", ["03 15:30:00", "04 15:15:00"]),
        ("America/Havana", "30 * 1 11 *", "2026-01-01T00:00", ["01 04:30:00", "01 05:30:00", "01 06:30:00"]),
        ("America/Havana", "0 0 8 3 *", "2026-01-01T00:00", ["08 05:00:00"]),
        ("Antarctica/Troll", "30 2 * * *", "2026-03-28T12:00", ["29 01:00:00", "30 00:30:00"]),
        ("Europe/Berlin", "0 3 29 2 *", "2025-01-01T00:00", ["29 02:00:00", "29 02:00:00"]),
    ],
)
def test_nights_on_which_the_clock_is_changed(zone: str, expression: str, start: str, firings: list[str]) -> None:
    assert nights(zone, expression, start, len(firings)) == firings


@pytest.mark.parametrize("expression", ["* * * * * *", "*/7 * 1-3 * * *", "30 2 * * *", "*/15 * * * *"])
@pytest.mark.parametrize("zone", ["America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Antarctica/Casey"])
def test_the_next_firing_is_later_and_the_rest_does_not_depend_on_the_start(zone: str, expression: str) -> None:
    """A worker that starts in the repeated hour, or asks after each firing, sees the same firings."""
    cron = entry(expression, tz=zone)
    for change in changes(zone)[-4:]:
        start, end = change - 2 * HOUR, change + 4 * HOUR
        through = found(cron, start, end)
        assert through == sorted(set(through))
        rng = random.Random(change.timestamp())
        for _ in range(40):
            moment = start + (end - start) * rng.random()
            following = next(iter(cron.after(moment)))
            assert following > moment
            assert following in through or following > end
            assert not [firing for firing in through if moment < firing < following]


@pytest.mark.parametrize(
    "written", [("*/20 2", "0,20,40 2"), ("*/30 */1", "0,30 0-23"), ("15 */2", "15 0,2,4,6,8,10,12,14,16,18,20,22")]
)
@pytest.mark.parametrize("zone", ["America/New_York", "Europe/Berlin", "Australia/Lord_Howe"])
def test_times_that_are_written_otherwise_fire_alike_when_the_clock_is_changed(
    zone: str, written: tuple[str, str]
) -> None:
    one, other = (entry(f"{times} * * *", tz=zone) for times in written)
    for change in changes(zone)[-4:]:
        start, end = change - 26 * HOUR, change + 26 * HOUR
        assert found(one, start, end) == found(other, start, end)


@pytest.mark.parametrize(
    ("expression", "days", "first"),
    [
        ("0 7 1 * MON", "either", ["01 07", "02 07", "09 07"]),
        ("0 7 1-31/2 * MON", "either", ["01 07", "02 07", "03 07"]),
        ("0 7 */2 * MON", "both", ["09 07", "23 07", "13 07"]),
        ("0 7 1 * */2", "both", ["01 07", "01 07", "01 07"]),
        ("0 7 * * MON", None, ["02 07", "09 07", "16 07"]),
        ("0 7 1 * *", None, ["01 07", "01 07", "01 07"]),
    ],
)
def test_an_entry_says_whether_day_and_weekday_must_both_match(
    expression: str, days: str | None, first: list[str]
) -> None:
    cron = entry(expression)
    firings = islice(cron.after(datetime(2026, 2, 28, 12, tzinfo=UTC)), 3)
    assert (cron.days, [f"{firing:%d %H}" for firing in firings]) == (days, first)
