"""Detects that jobs are lost from an index of waiting jobs: its key was evicted, or deleted by hand.

A script that takes a job out of such an index adds to a total in the same step; one that puts a job in may not (a retry, a release). So
an index may be larger than its totals say, and the difference only grows, unless entries are lost. Weakness: an index that is lost
together with its totals, or before the first look, is not detected here; the walk of `index_repair.py` finds its jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# The fields of a line in the answer of `count_jobs.lua`, by position.
_PRIORITY, _WAITING, _TOTALS, _QUEUE = 1, 2, 7, 9


class WaitingCounts:
    """The result of the last read of all lines."""

    def __init__(self) -> None:
        self._before: dict[tuple[bytes, int], tuple[int, int]] = {}

    def missed(self, rows: Sequence[Any]) -> int:
        """Returns how many jobs have gone since the previous read, at least. `rows`: the whole answer of `count_jobs.lua`."""
        missed = 0
        now: dict[tuple[bytes, int], tuple[int, int]] = {}
        for row in rows:
            enqueued, claimed, succeeded, failed, retried, lost, deleted = map(int, row[_TOTALS])
            beyond = row[_WAITING] - enqueued + claimed + failed + lost + deleted
            moves = enqueued + claimed + succeeded + failed + retried + lost + deleted
            line = row[_QUEUE], row[_PRIORITY]  # of two queues with one name, made one after the other, each for itself
            before, moves_before = self._before.get(line, (beyond, moves))
            if moves >= moves_before:  # otherwise the totals were lost
                missed += max(0, before - beyond)
            now[line] = beyond, moves
        self._before = now
        return missed
