"""What a handler may raise to say how its job goes on, and what the worker raises. Anything else that a handler raises is a failure
that spends an attempt."""

from __future__ import annotations

from pinlater.worker.durations import Duration, as_duration_ms


class Reject(Exception):
    """Gives up at once: the job becomes FAILED whatever attempts it has left."""


class Retry(Exception):
    """Fails this attempt and runs the job again after `after` (seconds, a timedelta or text such as `5m`), if an attempt is left.

    For what says itself when to come back, as HTTP 429 does. The job's retry policy is not asked.
    """

    def __init__(self, after: Duration, reason: str = "") -> None:
        self.delay_ms = as_duration_ms(after, "after")
        super().__init__(f"again in {self.delay_ms / 1000:g} s" + (f": {reason}" if reason else ""))


class Snooze(Exception):
    """Runs the job again after `delay` (seconds, a timedelta or text such as `5m`) without spending an attempt."""

    def __init__(self, delay: Duration) -> None:
        self.delay_ms = as_duration_ms(delay, "delay")
        super().__init__(f"again in {self.delay_ms / 1000:g} s")


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
