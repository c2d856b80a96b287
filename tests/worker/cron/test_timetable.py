"""The loop that makes firings, with a simulated clock that is set forward and back, and an unreachable server.

`SimulatedSchedule` is the simulation: true time goes on in sleeps and calls only; the worker's clock shows it plus what the clock is off
by; the server keeps unique keys by true time, as real ones do. Nothing here waits for real. The tests hold on to `Timetable`, which is
given its sleep: no public door shows thousands of nights.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise, takewhile
from typing import Any, NamedTuple, cast
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pinlater.client import UniqueKey
from pinlater.client.batching import Placed
from pinlater.client.errors import ServerUnreachable
from pinlater.domain.clock import Clock
from pinlater.worker._cron.timetable import Timetable
from pinlater.worker.cron import Cron, Missed

NIGHT = datetime(2026, 10, 25, tzinfo=UTC)  # clocks are set back in Europe at 01:00 UTC
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
POLL = timedelta(seconds=30)


class EndOfTime(Exception):
    """The end of the simulated time."""


class Made(NamedTuple):
    """A firing that became a job."""

    firing: datetime
    shown: datetime  # what the worker's clock showed then


@dataclass
class SimulatedSchedule:
    """`steps`: when (true time) the worker's clock is set, and its error from then on. `away`: when the server is unreachable."""

    start: datetime
    until: datetime
    steps: list[tuple[datetime, timedelta]] = field(default_factory=list)
    away: tuple[datetime, datetime] | None = None
    sleeps: int = 0
    calls: int = 0
    made: list[Made] = field(default_factory=list)
    keys: dict[str, datetime] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.true = self.start

    @property
    def shown(self) -> datetime:
        off = [by for at, by in self.steps if at <= self.true]
        return self.true + (off[-1] if off else timedelta(0))

    # --- the clock and the sleep that the timetable is given ------------------------------------------------------------
    def now_ms(self) -> int:
        return int(self.shown.timestamp() * 1000)

    def monotonic(self) -> float:
        return (self.true - self.start).total_seconds()

    async def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.sleeps += 1
        self._go(timedelta(seconds=seconds) + timedelta(milliseconds=1))

    def _go(self, span: timedelta) -> None:
        self.true += span
        if self.true >= self.until:
            raise EndOfTime

    # --- the task that it enqueues --------------------------------------------------------------------------------------
    def using(self, *, unique: UniqueKey, headers: object) -> SimulatedSchedule:
        self._key = unique
        return self

    async def enqueue_async(self) -> Placed:
        self.calls += 1
        self._go(timedelta(milliseconds=2))
        if self.away is not None and self.away[0] <= self.true < self.away[1]:
            self._go(timedelta(seconds=2))
            raise ServerUnreachable("away")
        key = self._key
        existing = self.keys.get(key.key, self.start - HOUR) > self.true
        if not existing:
            self.keys[key.key] = self.true + timedelta(milliseconds=key.for_ms)
            firing = datetime.fromisoformat(key.key.removeprefix("cron:night:"))
            self.made.append(Made(firing, self.shown))
        return Placed(f"q:s1:p1:{self.calls}", existing)

    def run(self, expression: str, zone: str, missed: Missed | str, look_back: timedelta = HOUR) -> Cron:
        entry = Cron(cast(Any, self), "night", expression, ZoneInfo(zone), Missed(missed), look_back)
        with pytest.raises(EndOfTime):
            asyncio.run(Timetable(entry, cast(Clock, self), self.sleep).run())
        return entry


def firings(entry: Cron, after: datetime, until: datetime) -> list[datetime]:
    return list(takewhile(lambda firing: firing <= until, entry.after(after)))


EXPRESSIONS = [
    "*/10 * * * *",
    "30 2 * * *",
    "0 */2 * * *",
    "*/20 * 1-3 * * *",
    "15,45 0-4 * * *",
    "7 * * * *",
    "* * * * *",
]
ZONES = ["Europe/Berlin", "UTC", "Africa/Casablanca", "America/New_York"]
spans = st.integers(-3000, 3000).map(lambda seconds: timedelta(seconds=seconds))
moments = st.integers(0, 5 * 3600).map(lambda seconds: NIGHT - 2 * HOUR + timedelta(seconds=seconds))


@settings(deadline=None, max_examples=80)
@given(
    expression=st.sampled_from(EXPRESSIONS),
    zone=st.sampled_from(ZONES),
    missed=st.sampled_from(list(Missed)),
    start=moments,
    steps=st.lists(st.tuples(moments, spans), max_size=3),
    look_back=st.sampled_from([timedelta(0), 10 * MINUTE, HOUR]),
)
@example("30 2 * * *", "Europe/Berlin", Missed.LATEST, NIGHT + MINUTE * 61, [], HOUR)
@example("* * * * *", "UTC", Missed.SKIP, NIGHT, [(NIGHT, HOUR), (NIGHT + 10 * MINUTE, timedelta(0))], timedelta(0))
def test_each_firing_is_made_once_on_time_and_missed_ones_as_configured(
    expression: str,
    zone: str,
    missed: Missed,
    start: datetime,
    steps: list[tuple[datetime, timedelta]],
    look_back: timedelta,
) -> None:
    """In a night with a change of the zone's clock, with workers' clocks off by up to 50 minutes."""
    world = SimulatedSchedule(start, NIGHT + 5 * HOUR, sorted(steps))
    entry = world.run(expression, zone, missed, look_back)

    assert [firing for firing, count in Counter(made.firing for made in world.made).items() if count > 1] == []
    for made in world.made:
        assert made.firing <= made.shown
        late = timedelta(minutes=1) if missed is Missed.SKIP else max(look_back, timedelta(minutes=1))
        assert made.shown - made.firing <= late + timedelta(seconds=2)
        assert made.firing in firings(entry, made.firing - MINUTE, made.firing)
    # What came while the clock went on undisturbed was made on time.
    times = [start, *(at for at, _ in sorted(steps) if at > start), world.until]
    for begin, end in pairwise(times):
        off = ([timedelta(0)] + [by for at, by in sorted(steps) if at <= begin])[-1]
        undisturbed = firings(entry, begin + off + POLL + timedelta(seconds=2), end + off - timedelta(seconds=5))
        assert [firing for firing in undisturbed if firing not in {made.firing for made in world.made}] == []
    # One sleep for half a minute or a firing, and some calls for what is found made already after the clock was set back.
    elapsed = (world.until - start) / POLL
    asked = len(firings(entry, start - 3 * HOUR, world.until + 3 * HOUR))
    assert world.sleeps <= elapsed + (1 + len(steps)) * (asked + 2)
    assert world.calls <= (1 + len(steps)) * (asked + 2)


@pytest.mark.parametrize("missed", list(Missed))
def test_after_a_clock_is_set_back_firings_continue_and_a_warning_is_logged(
    missed: Missed, caplog: pytest.LogCaptureFixture
) -> None:
    world = SimulatedSchedule(NIGHT, NIGHT + 2 * HOUR, [(NIGHT, HOUR), (NIGHT + 20 * MINUTE, timedelta(0))])
    with caplog.at_level(logging.WARNING, "pinlater.worker"):
        entry = world.run("* * * * *", "UTC", missed)
    made = {each.firing for each in world.made}
    assert set(firings(entry, NIGHT + 21 * MINUTE, NIGHT + HOUR)) <= made
    [said] = [record for record in caplog.records if "the clock was set back" in record.message]
    assert abs(said.__dict__["seconds"] - 3600) <= 31


@pytest.mark.parametrize("missed", list(Missed))
def test_a_new_entry_makes_a_firing_of_the_past_hour_unless_it_skips_missed_ones(missed: Missed) -> None:
    """As the page about tasks says: a worker cannot know that no worker ran the entry before."""
    world = SimulatedSchedule(NIGHT + 34 * MINUTE, NIGHT + 2 * HOUR)
    world.run("14 * * * *", "UTC", missed)
    past, coming = NIGHT + 14 * MINUTE, NIGHT + 74 * MINUTE
    assert [made.firing for made in world.made] == ([coming] if missed is Missed.SKIP else [past, coming])


def test_a_late_firing_that_is_to_be_skipped_is_given_up_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """After an outage of 40 minutes a firing 40 minutes late is skipped."""
    due = NIGHT + 10 * MINUTE
    for missed, late in ((Missed.SKIP, False), (Missed.LATEST, True), (Missed.ALL, True)):
        caplog.clear()
        world = SimulatedSchedule(NIGHT, NIGHT + 2 * HOUR, away=(due - MINUTE, due + 40 * MINUTE))
        with caplog.at_level(logging.WARNING, "pinlater.worker"):
            world.run("10 0 * * *", "UTC", missed)
        assert [made.firing for made in world.made] == ([due] if late else [])
        assert any("a firing was missed" in record.message for record in caplog.records) is not late


def test_firings_missed_in_one_outage_have_equal_lines_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    """The first one says when it was due; the log leaves out the others, and counts them."""
    world = SimulatedSchedule(NIGHT, NIGHT + HOUR, away=(NIGHT + 10 * MINUTE, NIGHT + 15 * MINUTE))
    with caplog.at_level(logging.WARNING, "pinlater.worker"):
        world.run("* * * * *", "UTC", Missed.LATEST)
    first, *others = [record for record in caplog.records if "a firing was missed" in record.message]
    assert len(others) > 2
    assert {record.message for record in others} == {first.message}
    assert not first.message.endswith("missed")
    assert ["due" in vars(record) for record in (first, *others)] == [True, *(False for _ in others)]


@pytest.mark.parametrize("missed", list(Missed))
def test_a_firing_is_given_up_when_its_key_may_have_expired(missed: Missed) -> None:
    due = NIGHT + 10 * MINUTE
    world = SimulatedSchedule(NIGHT, NIGHT + 5 * HOUR, away=(due - MINUTE, due + 3 * HOUR))
    world.run("10 0 * * *", "UTC", missed)
    assert world.made == []
