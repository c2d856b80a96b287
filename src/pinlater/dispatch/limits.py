"""How fast each queue may be dequeued: the lower of the limit in the file and the one in the store, divided by the servers.

Zero in either, or the pause switch, stops dequeues. Charged by jobs handed out: one request may overdraw and the next pays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from pinlater.domain.clock import Clock
from pinlater.domain.queue import Queue
from pinlater.domain.rate_limit import TokenBucket, effective_rate


class Block(NamedTuple):
    """Why a queue may not be dequeued now. `retry_after_ms` is None where only a change of settings helps."""

    paused: bool
    retry_after_ms: int | None


class RateLimits:
    """One token bucket for each limited queue; a queue without a limit costs a dictionary look-up."""

    def __init__(
        self,
        clock: Clock,
        *,
        file_limits: Callable[[], Mapping[str, float]] = dict,
        servers: Callable[[], int] = lambda: 1,
    ) -> None:
        self._clock = clock
        self._file_limits = file_limits
        self._servers = servers
        self._buckets: dict[str, TokenBucket] = {}
        self._paused: set[str] = set()

    def refresh(self, queues: Mapping[str, Queue]) -> None:
        """Takes over what the files and the store say now. Queues whose limit is unchanged keep their balance."""
        file_limits = self._file_limits()
        servers = self._servers()
        self._paused = {queue.name for queue in queues.values() if queue.paused}
        buckets: dict[str, TokenBucket] = {}
        for name in queues:
            rate = effective_rate(file_limits.get(name), queues[name].config.max_jobs_per_second, servers)
            if rate is None:
                continue
            bucket = self._buckets.get(name)
            if bucket is None:
                bucket = TokenBucket(rate, self._clock.monotonic())
            elif bucket.rate != rate:
                bucket.set_rate(rate, self._clock.monotonic())
            buckets[name] = bucket
        self._buckets = buckets

    def block(self, queue: str) -> Block | None:
        """None if the queue may be dequeued now."""
        if self._paused and queue in self._paused:
            return Block(True, None)
        bucket = self._buckets.get(queue)
        if bucket is None:
            return None
        now = self._clock.monotonic()
        if bucket.available(now):
            return None
        return Block(False, bucket.retry_after_ms(now))

    def charge(self, queue: str, jobs: int) -> None:
        """`jobs` of this queue were handed out."""
        bucket = self._buckets.get(queue)
        if bucket is not None:
            bucket.charge(jobs, self._clock.monotonic())
