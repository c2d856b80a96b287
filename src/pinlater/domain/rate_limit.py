"""A queue's dequeue limit as arithmetic: a bucket of tokens that fills with time, one token a job.

Each call passes the time (monotonic seconds), so nothing here waits or reads a clock. Jobs are charged after they are handed out,
because the size of a claim isn't known before; one request may overdraw and the next ones pay. Over any time t, jobs handed out ≤ rate ·
t + burst + one request's overdraft. A request that waits need not overdraw: `whole` returns how much it may take.
"""

from __future__ import annotations

import math

# Added-up floats miss a whole token by this much at most; without it a caller would wake a moment too early, again and again.
_SLACK = 1e-6
_RETRY_MS_MAX = 24 * 3_600_000
# Under a high limit a request that is refused is told to wait for the tokens of this time, not for one.
_WORTHWHILE_S = 0.05


def lower_limit(in_file: float | None, in_store: float | None) -> float | None:
    """Jobs a second, for all servers together, or None if there is no limit."""
    limits = [limit for limit in (in_file, in_store) if limit is not None]
    return min(limits) if limits else None


class TokenBucket:
    """The state of one queue's limit on this server. Starts full. `burst`: the most that it saves up; by default one second's worth, at
    least one job."""

    __slots__ = ("_burst", "_rate", "_then", "_tokens")

    def __init__(self, rate: float, now: float, burst: float | None = None) -> None:
        self._rate, self._burst = _checked(rate), burst
        self._then = now
        self._tokens = self.burst

    @property
    def rate(self) -> float:
        """Jobs a second; 0 hands out nothing."""
        return self._rate

    @property
    def burst(self) -> float:
        """The most that can be saved up."""
        return max(1.0, self._rate if self._burst is None else self._burst)

    def available(self, now: float, spoken_for: int = 0) -> bool:
        """Returns whether a request may claim now, if `spoken_for` tokens are reserved. It may then take more tokens than there are."""
        return self.whole(now, spoken_for) >= 1

    def whole(self, now: float, spoken_for: int = 0) -> int:
        """Returns how many jobs may be handed out now without an overdraft, if `spoken_for` tokens are reserved; 0 or less: none."""
        self._refill(now)
        return math.floor(self._tokens - spoken_for + _SLACK) if self._rate > 0 else 0

    def charge(self, jobs: int, now: float) -> None:
        """Subtracts the jobs that were handed out. A negative number refunds jobs that were released."""
        self._refill(now)
        self._tokens = min(self.burst, self._tokens - jobs)

    def retry_after_ms(self, now: float) -> int | None:
        """Milliseconds until a retry is worthwhile, 0 if it is `available`. Returns None if time won't help, because the rate is
        0. A day at most.
        """
        if self.available(now):
            return 0
        if self._rate <= 0:
            return None
        wanted = min(max(1.0, self._rate * _WORTHWHILE_S), self.burst)
        seconds = min((wanted - self._tokens) / self._rate, _RETRY_MS_MAX / 1000)
        return max(1, math.ceil(seconds * 1000))

    def set_rate(self, rate: float, now: float, burst: float | None = None) -> None:
        """Applies a new rate and burst from now on. A debt is never paid off more slowly than it would have been at the old rate."""
        self._refill(now)
        old, self._rate, self._burst = self._rate, _checked(rate), burst
        if self._tokens < 0 and 0 < self._rate < old:
            self._tokens *= self._rate / old
        self._tokens = min(self._tokens, self.burst)

    def _refill(self, now: float) -> None:
        if now > self._then:
            self._tokens = min(self.burst, self._tokens + (now - self._then) * self._rate)
            self._then = now


def _checked(rate: float) -> float:
    if not (math.isfinite(rate) and rate >= 0):
        raise ValueError(f"a rate is a finite number of at least 0, not {rate}")
    return rate
