"""When each queue was last asked for jobs at this server, so that an operator sees that no worker does."""

from __future__ import annotations

from pinlater.domain.clock import Clock

# Of deleted queues some may be left; a queue beyond this many counts as never asked.
_QUEUES_MAX = 20_000


class LastDequeues:
    """Of one server, since its start."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._asked_s: dict[str, float] = {}

    def note(self, queue: str) -> None:
        """A worker asks, or has just stopped waiting."""
        if queue not in self._asked_s and len(self._asked_s) >= _QUEUES_MAX:
            del self._asked_s[min(self._asked_s, key=self._asked_s.__getitem__)]
        self._asked_s[queue] = self._clock.monotonic()

    def at_ms(self, queue: str) -> int | None:
        """When that was; None if it never was."""
        asked_s = self._asked_s.get(queue)
        if asked_s is None:
            return None
        return self._clock.now_ms() - round(1000 * (self._clock.monotonic() - asked_s))
