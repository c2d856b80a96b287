"""What a handler may raise to say how its job goes on, and what the worker raises. Anything else that a handler raises is a failure
that spends an attempt."""

from __future__ import annotations

from datetime import timedelta


class Reject(Exception):
    """Gives up at once: the job becomes FAILED whatever attempts it has left."""


class Snooze(Exception):
    """Runs the job again after `delay`, in seconds or a timedelta, without spending an attempt."""

    def __init__(self, delay: float | timedelta) -> None:
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
        if seconds < 0:
            raise ValueError(f"a delay must not be negative: {delay}")
        super().__init__(f"again in {seconds:g} s")
        self.delay_ms = round(seconds * 1000)


class UnusableHandler(TypeError):
    """A function can't be a handler; the text says why."""


class CantDecode(Reject):
    """A job's body is not what its handler takes. Trying again would not help."""


class ClaimLost(Exception):
    """The job is no longer this worker's: its claim timed out, or it was cancelled. What the handler goes on to do may be done twice."""


class TimeLimitExceeded(Exception):
    """The job ran longer than its handler's time limit."""


class ProcessDied(Exception):
    """The process that ran the job ended: killed, out of memory, crashed, or by an exit of its own."""
