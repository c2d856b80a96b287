"""What servers are told of this process, for their lists of workers: its number with each claim and heartbeat, the rest now and then."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from os import getpid
from socket import gethostname

from pinlater.client.values import WorkerInfo, WorkingProcess
from pinlater.domain.clock import Clock
from pinlater.version import __version__

EVERY_S = 10.0
_NUMBER_MAX = 2**31 - 1


def own_info(clock: Clock, concurrency: int) -> WorkerInfo:
    """Describes this process, which starts to work now."""
    return WorkerInfo("python", __version__, gethostname(), getpid(), concurrency, started_at_ms=clock.now_ms())


def new_number() -> int:
    """A number from the system's randomness: a forked process has the same common random numbers as its parent."""
    return 1 + secrets.randbelow(_NUMBER_MAX)


class Introduction:
    """Belongs to one run of a worker. The event loop and the heartbeat thread use it, each with topics of its own. `running`: jobs that run
    now."""

    def __init__(
        self, number: int, info: WorkerInfo, running: Callable[[], int], monotonic: Callable[[], float]
    ) -> None:
        self._brief = WorkingProcess(number)
        self._info = info
        self._running = running
        self._monotonic = monotonic
        self._next_s: dict[str, float] = {}

    def about(self, topic: str) -> WorkingProcess:
        """Makes what a request says: all of it with the first request of a topic, and again after ten seconds, since the request may go to
        another server, or may be lost."""
        now_s = self._monotonic()
        if now_s < self._next_s.get(topic, -math.inf):
            return self._brief
        self._next_s[topic] = now_s + EVERY_S
        return self._brief._replace(info=self._info._replace(running=self._running()))
