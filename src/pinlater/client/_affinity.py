"""With which of several servers or shards the calls of a thread stay for a while.

A server stores or claims with one call of its store what has arrived together: mostly the next calls of those whose last calls it has
answered together. Calls that go to another server each time arrive in smaller groups.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")
# A large request is not worth staying for: its call is full by itself.
AFFINITY_JOBS = 128
# A slow server or shard gets no more calls of a client than it answers in this time.
_AFFINITY_S = 1.0


class Affinity(threading.local):
    """Chooses for each thread of a client by itself: at random in the long run. Threads therefore use several servers at a time, and each
    needs one connection. The calls of one event loop stay together, and share a connection.
    """

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
