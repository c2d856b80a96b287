"""A worker's choices, as plain functions: how many jobs to claim, how long to wait. No I/O.

Figures: handlers are kept busy over one claim's round trip by claiming ahead about 50 ms worth of jobs; a longer look-ahead would
hoard jobs that other workers could run.
"""

from __future__ import annotations

from pinlater.client.values import ClaimedJob

LOOK_AHEAD_MS = 50.0
_SMOOTHING = 0.1


def smoothed_ms(mean_ms: float | None, sample_ms: float) -> float:
    """A moving mean of how long jobs take; the first sample starts it."""
    return sample_ms if mean_ms is None else mean_ms + _SMOOTHING * (sample_ms - mean_ms)


def prefetch_count(mean_ms: float | None, concurrency: int, prefetch_max: int) -> int:
    """How many jobs to claim beyond the free handlers: none while nothing is known, or where a job takes longer than the look-ahead."""
    if mean_ms is None or mean_ms >= LOOK_AHEAD_MS:
        return 0
    return min(prefetch_max, int(concurrency * LOOK_AHEAD_MS / max(mean_ms, 0.01)))


def claim_limit(in_hand: int, concurrency: int, prefetch: int) -> int:
    """How many jobs to ask for now; 0 while the stock is still more than half full, so that claims stay batches."""
    room = concurrency + prefetch - in_hand
    return room if room > prefetch // 2 else 0


def backoff_ms(failures: int, first_ms: int, max_ms: int, spread: float) -> int:
    """How long to stay away from a server after that many failures in a row. `spread` in [0, 1) keeps workers from returning as one."""
    longest = min(max_ms, first_ms * 2 ** min(failures - 1, 20))
    return int(longest * (0.5 + spread / 2))


def attempts_so_far(job: ClaimedJob) -> int:
    """Attempts including this one; from the attempts left where a server doesn't count them."""
    return max(1, job.attempt or job.attempts_allowed - job.attempts_remaining + 1)
