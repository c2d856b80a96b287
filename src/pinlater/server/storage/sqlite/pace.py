"""Where the next COMMIT runs: on the loop while commits are quick, in the thread while they are not.

A time taken in the thread includes waiting for the interpreter's lock and so says little about the disk; every now and then, when the
thread's best time gives hope, one commit is tried on the loop again.
"""

from __future__ import annotations

_PROBE_EVERY = 64
_HOPEFUL = 4
_STEPS = 32
# On an idle store an inline commit delays no other call, and a hand-over costs most when everything sleeps: it may wait this many
# times as long on the loop.
_IDLE_TIMES = 10


class CommitPace:
    """A running median of what a commit on the loop costs: it moves by a small step towards each sample, whatever that one's size."""

    __slots__ = ("_best_s", "_limit_s", "_median_s", "_since_probe", "_step_s", "_usual_s")

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._step_s = limit_s / _STEPS
        self._median_s = limit_s / 2
        self._usual_s = limit_s  # of all commits, wherever they ran
        self._since_probe = 0
        self._best_s = 0.0

    def inline(self, *, idle: bool = False) -> bool:
        """Whether the next commit should run on the loop. `idle`: the store has had nothing to do lately."""
        if idle and self._usual_s < self._limit_s * _IDLE_TIMES:
            return True
        if self._median_s < self._limit_s:
            return True
        self._since_probe += 1
        if self._since_probe < _PROBE_EVERY:
            return False
        self._since_probe = 0
        best, self._best_s = self._best_s, 0.0
        return 0 < best < self._limit_s * _HOPEFUL

    def took(self, seconds: float, *, inline: bool) -> None:
        """Notes how long a commit took."""
        if inline:
            self._median_s += self._step_s if seconds > self._median_s else -self._step_s
        else:
            self._best_s = min(self._best_s or seconds, seconds)
        step = self._step_s * _IDLE_TIMES
        self._usual_s += step if seconds > self._usual_s else -step
