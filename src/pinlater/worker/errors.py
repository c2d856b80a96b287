"""What a task may raise to decide how its job continues, and what the worker raises. Any other exception of a task is a failure, which uses
up an attempt."""

from __future__ import annotations

from datetime import timedelta


class Reject(Exception):
    """Gives up at once: the job becomes FAILED, whatever attempts it has left."""


class Snooze(Exception):
    """Runs the job again after `delay` (seconds or a timedelta) without using up an attempt."""

    def __init__(self, delay: float | timedelta) -> None:
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
        if seconds < 0:
            raise ValueError(f"a delay must not be negative: {delay}")
        super().__init__(f"again in {seconds:g} s")
        self.delay_ms = round(seconds * 1000)


class UnusableHandler(TypeError):
    """A function can't be a task; the text says why."""


class CantDecode(Reject):
    """A job's body does not fit its task. A retry would not help."""


class ClaimLost(Exception):
    """The claim has ended: it timed out, or the job was cancelled. Another worker may be running the job."""


class TimeLimitExceeded(Exception):
    """The job ran longer than its task's time limit."""


class ProcessDied(Exception):
    """The child process that ran the job ended: it was killed, crashed, ran out of memory, or exited."""
