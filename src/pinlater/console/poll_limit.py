"""How many dequeues may wait for jobs at the same time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from http import HTTPStatus

from pinlater.console.problems import refused

# Half of the connections that may be open: the other half serves requests that don't wait.
WAITING_MAX = 500


class PollLimit:
    """Counts the dequeues that wait. `waiting_max`: how many may wait."""

    def __init__(self, waiting_max: int = WAITING_MAX) -> None:
        self.waiting = 0
        self._waiting_max = waiting_max

    @contextlib.contextmanager
    def place(self, wait_ms: int) -> Iterator[None]:
        """Takes a slot for a dequeue that waits this long. Raises RequestRefused if all are taken; a dequeue that doesn't wait needs
        none.
        """
        if not wait_ms:
            yield
            return
        if self.waiting >= self._waiting_max:
            raise refused(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "TOO_MANY_WAITING",
                f"{self._waiting_max} dequeues wait already; without wait_ms, a dequeue is possible",
                retryable=True,
            )
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1
