"""What a task may raise or return to decide how its job continues, and what the worker raises. Any other exception of a task is a failure,
which uses up an attempt."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

from pinlater.worker.durations import Duration, as_delay_ms
from pinlater.worker.other_names import ending_option_hint

P = ParamSpec("P")


def _with_hints(init: Callable[P, None]) -> Callable[P, None]:
    """The constructor, which says of an unknown name what to write instead."""
    own = [*inspect.signature(init).parameters][1:]

    @wraps(init)
    def checked(*given: P.args, **named: P.kwargs) -> None:
        for name in named:
            if name not in own:
                kind = type(given[0]).__name__
                raise TypeError(f"{kind}() has no argument {name!r}{ending_option_hint(name, kind, own[0])}")
        init(*given, **named)

    return checked


class Reject(Exception):
    """Gives up at once: the job becomes FAILED, whatever attempts it has left. A task raises or returns it."""

    __module__ = "pinlater"

    def __init__(self, *reasons: object, reason: str = "") -> None:
        super().__init__(*(reasons or filter(None, [reason])))


class Retry(Exception):
    """Fails this attempt and runs the job again after `after` (seconds, a timedelta or text such as `5m`), if an attempt is left.

    For what says itself when to come back, as HTTP 429 does. The job's retry policy is not asked. A task raises or returns it.
    """

    __module__ = "pinlater"

    @_with_hints
    def __init__(self, after: Duration, reason: str = "") -> None:
        self.delay_ms = as_delay_ms(after, "Retry: after")
        self.reason = reason
        again = f"again in {self.delay_ms / 1000:g} s"
        super().__init__(f"{reason}; {again}" if reason else again)


class Snooze(Exception):
    """Runs the job again after `delay` (seconds, a timedelta or text such as `5m`) without spending an attempt.

    A task raises or returns it.
    """

    __module__ = "pinlater"

    @_with_hints
    def __init__(self, delay: Duration) -> None:
        self.delay_ms = as_delay_ms(delay, "Snooze: delay")
        super().__init__(f"again in {self.delay_ms / 1000:g} s")


class UnusableHandler(TypeError):
    """A function can't be a task; the text says why."""

    __module__ = "pinlater.worker"


class CantDecode(Reject):
    """A job's body does not fit its task. A retry would not help."""

    __module__ = "pinlater.worker"


class ClaimLost(Exception):
    """The claim has ended: it timed out, or the job was cancelled. Another worker may be running the job."""

    __module__ = "pinlater.worker"


class TimeLimitExceeded(Exception):
    """The job ran longer than its task's time limit, or its child process did not start in time."""

    __module__ = "pinlater.worker"


class ProcessDied(Exception):
    """The child process that ran the job ended: it was killed, crashed, ran out of memory, or exited."""

    __module__ = "pinlater.worker"
