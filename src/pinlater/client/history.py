"""The history of queues as charts show it: points in time, deploy marks, and when a backlog will be gone. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pinlater.domain.history import MINUTE_MS

_FORECAST_OVER_MS = 15 * MINUTE_MS
_FORECAST_POINTS_MIN = 4


class SpanPercentiles(NamedTuple):
    """Of `number` spans, in milliseconds; at most a sixteenth off."""

    number: int
    p50_ms: int
    p90_ms: int
    p99_ms: int


class HistoryPoint(NamedTuple):
    """What happened in a queue from `at_ms` on for one step, on all servers; and the highest depth in it, None if it is not known.

    `failed`: attempts that failed. `timed_out`: claims. `oldest_ms`: how long the oldest due job had waited. `waits`: from when a
    job is due to its hand-out; `runs`: from a claim to its ack. None if there was none.
    """

    at_ms: int
    enqueued: int = 0
    claimed: int = 0
    succeeded: int = 0
    failed: int = 0
    timed_out: int = 0
    expired: int = 0
    due: int | None = None
    scheduled: int | None = None
    running: int | None = None
    oldest_ms: int | None = None
    waits: SpanPercentiles | None = None
    runs: SpanPercentiles | None = None


class QueueHistory(NamedTuple):
    """A queue's points, by time. A step without a point: nothing happened, and no unfinished job was there."""

    queue: str
    points: Sequence[HistoryPoint]


class DeployMark(NamedTuple):
    """Something that people did at some time, such as a deployment. `queue`: '' for all."""

    at_ms: int
    text: str
    queue: str = ""


class Histories(NamedTuple):
    """Of some queues from `from_ms` on and before `until_ms`. `incomplete`: a shard was unreachable."""

    step_s: int
    from_ms: int
    until_ms: int
    queues: Sequence[QueueHistory]
    marks: Sequence[DeployMark]
    incomplete: bool = False


def drained_in_ms(points: Sequence[HistoryPoint], now_ms: int, due: int) -> int | None:
    """When `due` jobs will be gone, by the line through the depths of the last quarter of an hour. `points` are of minutes.

    None if the backlog does not shrink, or if there are too few points. A median of slopes would ignore single odd minutes, but
    not follow a change for half the time.
    """
    recent = [
        (point.at_ms, point.due)
        for point in points
        if point.due is not None and point.at_ms >= now_ms - _FORECAST_OVER_MS
    ]
    if due <= 0 or len(recent) < _FORECAST_POINTS_MIN:
        return None
    middle_ms = sum(at_ms for at_ms, _ in recent) / len(recent)
    middle = sum(depth for _, depth in recent) / len(recent)
    spread = sum((at_ms - middle_ms) ** 2 for at_ms, _ in recent)
    slope = sum((at_ms - middle_ms) * (depth - middle) for at_ms, depth in recent) / spread  # jobs a millisecond
    return round(due / -slope) if slope < 0 else None
