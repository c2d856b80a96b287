"""The clock of an in-process service: it stands still until the test moves it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from pinlater.domain.clock import ManualClock
from pinlater.worker.durations import Duration, as_duration_ms, as_time_ms

# 1 January 2026, a Thursday: the same in each run, so that a test of times gives the same each day.
STARTS_AT = datetime(2026, 1, 1, tzinfo=UTC)


class TurnedClock(ManualClock):
    """Time continues when the test calls for it: `clock.advance(hours=1)`. Afterwards the service has done everything that is due by the
    clock.

    `turned` is called each time, before `advance` returns.
    """

    def __init__(self, now: datetime = STARTS_AT, turned: Callable[[], None] | None = None) -> None:
        super().__init__(as_time_ms(now, "now", "for example datetime(2026, 1, 1, tzinfo=UTC)"))
        self._turned = turned

    @property
    def now(self) -> datetime:
        """The time of the clock, in UTC."""
        return datetime.fromtimestamp(self.now_ms() / 1000, UTC)

    def advance(
        self,
        duration: Duration = 0,
        *,
        ms: int = 0,
        seconds: float = 0,
        minutes: float = 0,
        hours: float = 0,
        days: float = 0,
    ) -> int:
        """Moves the clock forward; returns the new time in milliseconds. It skips the moments in between.

        `duration` is seconds, a timedelta or text such as `5m`; the sum of all arguments counts. Raises TypeError or ValueError.
        """
        given_ms = as_duration_ms(duration, "advance(): the duration")
        passed = timedelta(milliseconds=given_ms + ms, seconds=seconds, minutes=minutes, hours=hours, days=days)
        if passed < timedelta(0):
            raise ValueError(f"the clock goes forward only: {passed}")
        super().advance(ms=round(passed / timedelta(milliseconds=1)))
        if self._turned is not None:
            self._turned()
        return self.now_ms()

    def advance_to(self, moment: datetime | int) -> int:
        """Moves the clock forward to `moment`: a datetime with a time zone, or milliseconds since the epoch."""
        at_ms = as_time_ms(moment, "advance_to(): the moment", "for a duration use advance")
        return self.advance(ms=at_ms - self.now_ms())
