"""Retry policies: how long to wait after the n-th failed attempt.

The job's `attempts_allowed` says whether there is another attempt, unless the policy gives up first.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from pinlater.domain.durations import YEAR_MS
from pinlater.worker.durations import Duration, as_delay_ms

_log = logging.getLogger("pinlater.worker")


class RetryPolicy(Protocol):
    """How long to wait before the next attempt."""

    def delay_ms(self, attempt: int, error: BaseException, spread: float) -> int | None:
        """Milliseconds after the failed attempt number `attempt` (from 1), or None to give up. `spread` in [0, 1) is random."""
        ...


def check_retry(argument: str, retry: object) -> None:
    """Raises TypeError, which begins with `argument`, unless this is a retry policy."""
    if not isinstance(retry, type) and callable(getattr(retry, "delay_ms", None)):
        return
    hint = ""
    shown = getattr(retry, "__name__", None) or repr(retry)
    if any(retry is maker for maker in _MAKERS) or (isinstance(retry, type) and hasattr(retry, "delay_ms")):
        hint = f" itself: call it, as in {shown}()"
    elif callable(retry):
        hint = "; for delays of your own, give an object with the method delay_ms(attempt, error, spread)"
    raise TypeError(f"{argument} must be a retry policy such as constant(5) or exponential(), not {shown}{hint}")


def delay_of(retry: RetryPolicy, attempt: int, error: BaseException, spread: float) -> int | None:
    """The policy's delay, within what can be sent, since policies are user code. A policy that raises counts as `linear(1)`."""
    try:
        delay_ms = retry.delay_ms(attempt, error, spread)
        return None if delay_ms is None else min(max(0, int(delay_ms)), YEAR_MS)
    except Exception:  # noqa: BLE001 - the job's own failure must be reported
        _log.exception("the retry policy %s failed", type(retry).__name__)
        return linear(1).delay_ms(attempt, error, spread)


class _Growing(NamedTuple):
    first_ms: float
    step_ms: float
    factor: float
    max_ms: float
    jitter: float

    def delay_ms(self, attempt: int, error: BaseException, spread: float) -> int | None:
        del error
        exponent = min(attempt - 1, 1_000)
        try:
            delay = (self.first_ms + self.step_ms * exponent) * self.factor**exponent
        except OverflowError:
            delay = self.max_ms
        return int(min(delay, self.max_ms) * (1 + self.jitter * (2 * spread - 1)))


class _Never(NamedTuple):
    kind: str = "never"

    def delay_ms(self, attempt: int, error: BaseException, spread: float) -> int | None:
        del attempt, error, spread
        return None


class _ByError(NamedTuple):
    policies: tuple[tuple[type[BaseException], RetryPolicy], ...]
    otherwise: RetryPolicy

    def delay_ms(self, attempt: int, error: BaseException, spread: float) -> int | None:
        for kind in type(error).__mro__:
            for wanted, policy in self.policies:
                if kind is wanted:
                    return policy.delay_ms(attempt, error, spread)
        return self.otherwise.delay_ms(attempt, error, spread)


def constant(seconds: Duration, *, jitter: float = 0.0) -> RetryPolicy:
    """The same delay each time: seconds, a timedelta or text such as `5m`, as all durations here."""
    return _growing(seconds, 0, 1, seconds, jitter)


def linear(
    seconds: Duration, *, step: Duration | None = None, max: Duration = 3600, jitter: float = 0.0
) -> RetryPolicy:
    """`seconds` after the first failure, `step` (default: `seconds`) more after each further one, `max` at most."""
    return _growing(seconds, seconds if step is None else step, 1, max, jitter)


def exponential(seconds: Duration = 1, *, factor: float = 2, max: Duration = 3600, jitter: float = 0.2) -> RetryPolicy:
    """`seconds` after the first failure, `factor` times as long after each, `max` at most.

    `jitter` spreads jobs that failed together: 0.2 is up to a fifth sooner or later.
    """
    return _growing(seconds, 0, factor, max, jitter)


def never() -> RetryPolicy:
    """Gives up at the first failure, whatever attempts the job has left."""
    return _Never()


def by_error(
    policies: Mapping[type[BaseException], RetryPolicy], *, otherwise: RetryPolicy | None = None
) -> RetryPolicy:
    """A policy for each type of exception; the most derived type counts. Raises TypeError for any other key or value."""
    for kind, policy in policies.items():
        if not isinstance(kind, type) or not issubclass(kind, BaseException):
            raise TypeError(f"by_error(): a key must be a type of exception such as ConnectionError, not {kind!r}")
        check_retry(f"by_error(): the value of {kind.__name__}", policy)
    if otherwise is not None:
        check_retry("by_error(): otherwise", otherwise)
    return _ByError(tuple(policies.items()), otherwise or exponential())


def _growing(seconds: Duration, step: Duration, factor: float, longest: Duration, jitter: float) -> RetryPolicy:
    first_ms, step_ms = as_delay_ms(seconds, "seconds"), as_delay_ms(step, "step")
    longest_ms = YEAR_MS if longest == math.inf else as_delay_ms(longest, "max")
    if factor < 1:
        raise ValueError(f"factor must be at least 1, not {factor}")
    if not 0 <= jitter <= 1:
        raise ValueError(f"jitter must be from 0 to 1, not {jitter}")
    return _Growing(first_ms, step_ms, factor, longest_ms, jitter)


_MAKERS = (constant, linear, exponential, never, by_error)
