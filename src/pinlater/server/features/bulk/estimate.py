"""The progress of a bulk run, and the time that it still needs. Pure.

Both are estimates. A run counts the jobs of its state, from counters, before it looks at them; jobs come and go meanwhile. The time left
assumes that each remaining job takes as long as the jobs so far.
"""

from __future__ import annotations

from pinlater.domain.bulk import BulkState

_BEGUN_MS = 2_000
"""From then on a run has a speed."""
_SILENT_MS_MAX = 10_000
"""A run that continues reports its progress every second; one that is silent for longer is stuck, or its server is gone."""


def percent_of(state: BulkState, passed: int, to_look_at: int | None) -> int | None:
    """The share of the jobs that it has looked at, in per cent: 100 if it is done, at most 99 before, None if it is not known."""
    if state is BulkState.DONE:
        return 100
    return min(99, 100 * passed // to_look_at) if to_look_at else None


def left_ms(passed: int, to_look_at: int | None, busy_ms: int, silent_ms: int) -> int | None:
    """Returns how much longer a run that continues will take. None if that is not known: it has just begun, is silent, or looks at more
    than was counted.

    `passed`: jobs that it has looked at in `busy_ms`. `silent_ms`: time since its latest report.
    """
    if to_look_at is None or not 0 < passed < to_look_at:
        return None
    if busy_ms < _BEGUN_MS or silent_ms > _SILENT_MS_MAX:
        return None
    return max(0, busy_ms * (to_look_at - passed) // passed - max(0, silent_ms))
