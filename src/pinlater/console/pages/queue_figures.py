"""Figures of a queue for people, from the counters of the API, and the problems that an operator should look at first. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from pinlater.client.history import HistoryPoint, drained_in_ms
from pinlater.console.endpoints.queues import StatsItem
from pinlater.console.endpoints.queues_history import HistoryPointItem

_BEHIND_MS = 60_000
_FAILING_SHARE = 0.2


class Concern(NamedTuple):
    """A problem to look at. `rank`: 1 is the most urgent. `word`: one or two words; `text`: a sentence."""

    rank: int
    word: str
    text: str


class BarPart(NamedTuple):
    """A part of the bar that shows in which states the unfinished and failed jobs are; in percent."""

    state: str
    start: float
    width: float


@dataclass(frozen=True)
class QueueFigures:
    """`due`: may be handed out now; `scheduled`: later, with those that wait behind others of their ordering keys (`behind_key`).

    Rates are jobs a second over the last minute. They and `waiting_dequeues` are of all servers.

    `rate_out`: jobs that ended; `rate_retried`: failed attempts whose job returned to the queue. `forecast_ms`: when no job will be due
    any longer, according to the depths of the last quarter of an hour, or None if that is not known.
    """

    name: str
    paused: bool
    due: int
    scheduled: int
    running: int
    succeeded: int
    failed: int
    rate_in: float
    rate_out: float
    rate_failed: float
    rate_retried: float
    rate_claimed: float
    oldest_waiting_ms: int | None
    waiting_dequeues: int
    incomplete: bool
    behind_key: int = 0
    max_jobs_per_second: float | None = None
    forecast_ms: int | None = None

    @property
    def failure_share(self) -> float | None:
        """The share of failures among the attempts that ended in the last minute, or None if none did."""
        ended = self.rate_out + self.rate_retried
        return (self.rate_failed + self.rate_retried) / ended if ended else None

    @property
    def drained_in_ms(self) -> float | None:
        """The time until no job is due, by the forecast or else at the present rates, or None if that never happens."""
        if self.forecast_ms is not None and not self.paused:
            return self.forecast_ms
        faster = self.rate_out - self.rate_in
        return 1000 * self.due / faster if self.due and faster > 0 and not self.paused else None

    def with_forecast(self, points: Sequence[HistoryPointItem], now_ms: int) -> QueueFigures:
        """The same with a forecast from the depths of the last minutes."""
        depths = [HistoryPoint(point.at_ms, due=point.due) for point in points]
        return replace(self, forecast_ms=drained_in_ms(depths, now_ms, self.due))

    @property
    def depth(self) -> int:
        """Jobs that are not finished."""
        return self.due + self.scheduled + self.running

    @property
    def is_in_use(self) -> bool:
        """Whether it has unfinished jobs, or had some in the last minute."""
        return bool(self.depth or self.rate_in or self.rate_out)

    @property
    def bar(self) -> list[BarPart]:
        """The parts that are not empty, from left to right."""
        parts = {"due": self.due, "scheduled": self.scheduled, "running": self.running, "failed": self.failed}
        whole = sum(parts.values())
        made, start = [], 0.0
        for state, jobs in parts.items():
            if jobs:
                made.append(BarPart(state, round(start, 2), round(100 * jobs / whole, 2)))
                start += 100 * jobs / whole
        return made

    @cached_property
    def concerns(self) -> list[Concern]:
        """The most urgent first."""
        return sorted(_concerns(self))

    @cached_property
    def urgency(self) -> tuple[float, int, int]:
        """The order of queues by their problems, the most urgent first."""
        rank = min((concern.rank for concern in self.concerns), default=9)
        return rank, -(self.oldest_waiting_ms or 0), -self.depth


def figures_of(stats: StatsItem) -> QueueFigures:
    """The counts of all priorities together."""
    counts = stats.priorities
    scheduled = sum(one.future for one in counts)
    return QueueFigures(
        name=stats.queue,
        paused=stats.paused,
        due=max(0, sum(one.pending for one in counts) - scheduled),
        scheduled=scheduled,
        running=sum(one.in_progress for one in counts),
        succeeded=sum(one.succeeded for one in counts),
        failed=sum(one.failed for one in counts),
        rate_in=stats.rates.enqueued,
        rate_out=stats.rates.succeeded + stats.rates.failed,
        rate_failed=stats.rates.failed,
        rate_retried=stats.rates.retried,
        rate_claimed=stats.rates.claimed,
        oldest_waiting_ms=stats.oldest_waiting_ms,
        waiting_dequeues=stats.waiting_dequeues,
        incomplete=stats.incomplete,
        behind_key=sum(one.behind_key for one in counts),
        max_jobs_per_second=stats.max_jobs_per_second,
    )


def _concerns(queue: QueueFigures) -> list[Concern]:
    """Weakness: a key that a failed job has stopped shows only once no other job of the queue is due, runs or waits for its time, and not
    behind more jobs than `behind_key` counts."""
    found = []
    idle = not (queue.running or queue.waiting_dequeues or queue.rate_claimed)
    if queue.due and idle and not queue.paused:
        found.append(Concern(1, "No worker", "Jobs are due, and no worker takes any."))
    if (
        queue.behind_key
        and queue.behind_key == queue.scheduled
        and not (queue.due or queue.running or queue.incomplete)
    ):
        text = "All jobs wait behind failed ones that have stopped their ordering keys: retry or delete these, or unblock the keys."
        found.append(Concern(1, "Stopped", text))
    if (queue.failure_share or 0) >= _FAILING_SHARE:
        found.append(Concern(2, "Failing", "A fifth or more of the attempts that ended in the last minute failed."))
    if not queue.paused and (queue.oldest_waiting_ms or 0) >= _BEHIND_MS and not (idle and queue.due):
        found.append(Concern(3, "Behind", "The oldest due job has waited for more than a minute."))
    if queue.paused:
        text = "Dequeues are stopped, and jobs are due." if queue.due else "Dequeues are stopped."
        found.append(Concern(4 if queue.due else 6, "Paused", text))
    if queue.incomplete:
        found.append(Concern(5, "Incomplete", "A shard is unreachable; its jobs are not counted."))
    return found
