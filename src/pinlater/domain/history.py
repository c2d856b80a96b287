"""Steps and bounds of the history of queues. Pure."""

from __future__ import annotations

MINUTE_S, TEN_MINUTES_S, HOUR_S = 60, 600, 3_600
MINUTE_MS = MINUTE_S * 1000
HOUR_MS = HOUR_S * 1000
KEPT_MS = {MINUTE_S: 6 * HOUR_MS, TEN_MINUTES_S: 25 * HOUR_MS, HOUR_S: 30 * 24 * HOUR_MS}
"""How long samples of each step, in seconds, are kept."""
LONGEST_MS = KEPT_MS[HOUR_S]

QUEUES_MAX = 100
POINTS_MAX = 5_000
"""The most points of all queues of one request together."""
MARKS_MAX = 1_000
MARK_CHARS_MAX = 200
MARK_AHEAD_MS = HOUR_MS
"""How far in the future a mark may be."""


def step_of(from_ms: int, until_ms: int, now_ms: int) -> int:
    """Returns the finest step, in seconds, that is kept for this range and gives it no more points than the finest range has. Tolerates a
    range that begins up to a minute earlier, because the call takes time.
    """
    for step_s, kept_ms in KEPT_MS.items():
        if from_ms >= now_ms - kept_ms - MINUTE_MS and until_ms - from_ms <= kept_ms + MINUTE_MS:
            return step_s
    return HOUR_S
