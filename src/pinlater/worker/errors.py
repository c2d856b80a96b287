"""What a handler may raise to say how its job goes on. Anything else it raises is a failure that spends an attempt."""

from __future__ import annotations


class Reject(Exception):
    """Gives up at once: the job becomes FAILED whatever attempts it has left."""


class Snooze(Exception):
    """Runs the job again after `delay_ms`, without spending an attempt."""

    def __init__(self, delay_ms: int) -> None:
        if delay_ms < 0:
            raise ValueError(f"delay_ms must not be negative: {delay_ms}")
        super().__init__(f"again in {delay_ms} ms")
        self.delay_ms = delay_ms
