"""Retry policies: how long to wait after the n-th failed attempt.

The job's `attempts_allowed` says whether there is another attempt, unless the policy gives up first.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

_log = logging.getLogger("pinlater.worker")
_LONGEST_MS = 365 * 24 * 3_600_000


class RetryPolicy(Protocol):
    """How long to wait before the next attempt."""

    def delay_ms(self, attempt: int, error: BaseException, spread: float) -> int | None:
        """Milliseconds after the failed attempt number `attempt` (from 1), or None to give up. `spread` in [0, 1) is random."""
        ...


def delay_of(retry: RetryPolicy, attempt: int, error: BaseException, spread: float) -> int | None:
    """The policy's delay, within what can be sent, since policies are user code. A policy that raises counts as `linear(1)`."""
    try:
        delay_ms = retry.delay_ms(attempt, error, spread)
        return None if delay_ms is None else min(max(0, int(delay_ms)), _LONGEST_MS)
    except Exception:  # noqa: BLE001 - the job's own failure must be reported
        _log.exception("the retry policy %s failed", type(retry).__name__)
        return linear(1).delay_ms(attempt, error, spread)


@dataclass(frozen=True, slots=True)
class _Growing:
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


@dataclass(frozen=True, slots=True)
class _Never:
    def delay_ms(self, attempt: int, error: BaseException, spread: float) -> int | None:
        del attempt, error, spread
        return None


@dataclass(frozen=True, slots=True)
class _ByError:
    policies: tuple[tuple[type[BaseException], RetryPolicy], ...]
    otherwise: RetryPolicy

    def delay_ms(self, attempt: int, error: BaseException, spread: float) -> int | None:
        for kind in type(error).__mro__:
            for wanted, policy in self.policies:
                if kind is wanted:
                    return policy.delay_ms(attempt, error, spread)
        return self.otherwise.delay_ms(attempt, error, spread)


def constant(seconds: float, *, jitter: float = 0.0) -> RetryPolicy:
    """The same delay each time."""
    return _growing(seconds, 0, 1, seconds, jitter)


def linear(seconds: float, *, step: float | None = None, max: float = 3600, jitter: float = 0.0) -> RetryPolicy:
    """`seconds` after the first failure, `step` (default: `seconds`) more after each further one, `max` at most."""
    return _growing(seconds, seconds if step is None else step, 1, max, jitter)


def exponential(seconds: float = 1, *, factor: float = 2, max: float = 3600, jitter: float = 0.2) -> RetryPolicy:
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
    """A policy for each type of exception; the most derived type counts."""
    return _ByError(tuple(policies.items()), otherwise or exponential())


def _growing(seconds: float, step: float, factor: float, longest: float, jitter: float) -> RetryPolicy:
    if min(seconds, step, longest) < 0 or factor < 1:
        raise ValueError("delays must not be negative, and a factor at least 1")
    if not 0 <= jitter <= 1:
        raise ValueError(f"jitter must be from 0 to 1, not {jitter}")
    return _Growing(seconds * 1000, step * 1000, factor, min(longest * 1000, _LONGEST_MS), jitter)
