"""With which of several servers or shards the calls of a client stay for a while.

A server stores or claims with one call of its store what has arrived together, so calls that a client spread evenly would cost more.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")
# More jobs make fuller calls; fewer make one client, which a process in Python can't make faster than one server carries its calls out,
# keep more servers busy at a time. A large request goes to another place than the one before.
AFFINITY_JOBS = 128
# A slow server or shard gets no more calls of a client than it answers in this time.
_AFFINITY_S = 1.0


class Affinity:
    """Chooses for one client: at random in the long run."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._number = 0
        self._jobs_left = 0
        self._ends_s = 0.0

    def choose(self, choices: Sequence[T], jobs: int, now_s: float) -> T:
        """The place of a call about this number of jobs: among the same choices that of the call before, until it is time for another."""
        if self._jobs_left <= 0 or now_s >= self._ends_s:
            self._number = self._random.getrandbits(32)
            self._jobs_left, self._ends_s = AFFINITY_JOBS, now_s + _AFFINITY_S
        self._jobs_left -= jobs
        return choices[self._number % len(choices)]
