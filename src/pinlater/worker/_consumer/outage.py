"""What the log says while a worker reaches no server: a line for all its queues, once a minute, and one when it reaches a server again."""

from __future__ import annotations

import logging

from pinlater.client.errors import ServerUnreachable
from pinlater.domain.clock import Clock
from pinlater.domain.wording import span

_log = logging.getLogger("pinlater.worker")
_SAID_EVERY_S = 60.0


class Outage:
    """Belongs to one run of a worker, whose consumers tell it what they see."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_s: float | None = None  # monotonic; None while servers are reached
        self._said_at_s = 0.0

    def goes_on(self, error: ServerUnreachable, what: str = "claim") -> None:
        """No server was reached, so the worker can't do `what` now and tries again. The text of the error names the servers."""
        now_s = self._clock.monotonic()
        if self._since_s is None:
            self._since_s = self._said_at_s = now_s
            _log.warning("can't %s, retrying: %s", what, error)
        elif now_s - self._said_at_s >= _SAID_EVERY_S:
            self._said_at_s = now_s
            _log.warning("no server reached for %s, retrying: %s", self._length(self._since_s, now_s), error)

    def ends(self) -> None:
        """A server answered. Does nothing if there was no outage."""
        if self._since_s is not None:
            _log.info("a server answers again, after %s", self._length(self._since_s, self._clock.monotonic()))
            self._since_s = None

    @staticmethod
    def _length(since_s: float, now_s: float) -> str:
        return span(round((now_s - since_s) * 1000))
