"""The history of queues as charts show it: points in time, deploy marks, and when a backlog will be gone. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

MINUTE_S, TEN_MINUTES_S, HOUR_S = 60, 600, 3_600
MINUTE_MS = MINUTE_S * 1000
HOUR_MS = HOUR_S * 1000
KEPT_MS = {MINUTE_S: 6 * HOUR_MS, TEN_MINUTES_S: 25 * HOUR_MS, HOUR_S: 30 * 24 * HOUR_MS}
"""How long samples of each step, in seconds, are kept."""
LONGEST_MS = KEPT_MS[HOUR_S]

QUEUES_MAX = 100
POINTS_MAX = 5_000
"""Of all queues of one request together."""
MARKS_MAX = 1_000
MARK_CHARS_MAX = 200
MARK_AHEAD_MS = HOUR_MS
"""How far in the future a mark may be."""


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


def step_of(from_ms: int, until_ms: int, now_ms: int) -> int:
    """The finest step, in seconds, that is kept for this range, and gives it no more points than the finest range has.

    A range that begins up to a minute before that counts too: its caller took the time, and the call took some.
    """
    for step_s, kept_ms in KEPT_MS.items():
        if from_ms >= now_ms - kept_ms - MINUTE_MS and until_ms - from_ms <= kept_ms + MINUTE_MS:
            return step_s
    return HOUR_S


_FORECAST_OVER_MS = 15 * MINUTE_MS
_FORECAST_POINTS_MIN = 4


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
