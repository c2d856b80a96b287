"""How fast each queue may be dequeued: the lower of the limit in the file and the one in the store, divided by the servers that hand out
jobs of the queue.

Zero in either, or the pause switch, stops dequeues. Jobs are charged when they are handed out. A dequeue that waits gets no more than the
limit allows at that moment. One that does not wait may overdraw, and the next pays. The size of a claim is known only after it, so the
jobs that claims under way may still take are reserved for them: concurrent claims overdraw by one request together, not by one each.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from pinlater.domain.clock import Clock
from pinlater.domain.queue import Queue
from pinlater.domain.rate_limit import TokenBucket, lower_limit

# For how long after a dequeue a server keeps its share of the limit: a worker whose slots are all taken asks for no jobs.
DEQUEUED_WITHIN_S = 10.0


class Block(NamedTuple):
    """Why a queue may not be dequeued now. `retry_after_ms` is None if only a change of settings helps."""

    paused: bool
    retry_after_ms: int | None


class _Account:
    """The bucket of a limited queue, and how many jobs the claims under way may still take from it. `limit`, `burst`: of all servers
    together."""

    __slots__ = ("bucket", "burst", "dequeued_s", "door", "limit", "settled", "under_way")

    def __init__(self, limit: float, burst: int | None, bucket: TokenBucket) -> None:
        self.limit, self.burst = limit, burst
        self.bucket = bucket
        self.dequeued_s = -math.inf  # when a dequeue last asked
        self.under_way = 0
        self.door = asyncio.Lock()  # first come, first served; only its holder watches `settled`
        self.settled = asyncio.Event()


class Permit:
    """Permission to claim from a limited queue; must be settled, whatever the result of the claim. `wanted`: the most jobs to claim."""

    __slots__ = ("_account", "_clock", "wanted")

    def __init__(self, account: _Account, wanted: int, clock: Clock) -> None:
        account.under_way += wanted
        self._account = account
        self.wanted = wanted
        self._clock = clock

    def settle(self, jobs: int) -> None:
        """Charges `jobs` handed-out jobs."""
        account = self._account
        account.under_way -= self.wanted
        account.bucket.charge(jobs, self._clock.monotonic())
        account.settled.set()


class RateLimits:
    """One token bucket for each limited queue; a queue without a limit costs a dictionary look-up.

    `servers(queue)`: how many servers share the queue's limit now.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        file_limits: Callable[[], Mapping[str, float]] = dict,
        servers: Callable[[str], int] = lambda _: 1,
    ) -> None:
        self._clock = clock
        self._file_limits = file_limits
        self._servers = servers
        self._accounts: dict[str, _Account] = {}
        self._paused: set[str] = set()
        self._begins: Callable[[str], None] = lambda _: None

    def join_others(self, begins: Callable[[str], None]) -> None:
        """Connects the other servers: `begins(queue)` tells them that this server hands out jobs of a limited queue."""
        self._begins = begins

    def dequeued_lately(self) -> Iterable[str]:
        """The limited queues for which dequeues recently asked this server for jobs."""
        since_s = self._clock.monotonic() - DEQUEUED_WITHIN_S
        return [name for name, account in self._accounts.items() if account.dequeued_s >= since_s]

    def of_file(self, queue: str) -> float | None:
        """The queue's limit in the limits file, for all servers together."""
        return self._file_limits().get(queue)

    def refresh(self, queues: Mapping[str, Queue]) -> None:
        """Applies the current limits of the files and the store. Queues whose limit is unchanged keep their balance."""
        file_limits = self._file_limits()
        self._paused = {queue.name for queue in queues.values() if queue.paused}
        accounts: dict[str, _Account] = {}
        for name, queue in queues.items():
            limit = lower_limit(file_limits.get(name), queue.config.max_jobs_per_second)
            if limit is not None:
                accounts[name] = self._account(name, limit, queue.config.burst)
        before, self._accounts = self._accounts, accounts
        for account in before.values():
            account.settled.set()

    def share_again(self) -> None:
        """Divides the limits again: the queues whose jobs other servers hand out have changed."""
        for name, account in self._accounts.items():
            self._account(name, account.limit, account.burst)
            account.settled.set()

    def add(self, queue: Queue) -> None:
        """Adds a queue that was just created."""
        if queue.paused:
            self._paused.add(queue.name)
        limit = lower_limit(self._file_limits().get(queue.name), queue.config.max_jobs_per_second)
        if limit is not None:
            self._accounts[queue.name] = self._account(queue.name, limit, queue.config.burst)

    def remove(self, queue: str) -> None:
        """Forgets a deleted queue."""
        self._paused.discard(queue)
        account = self._accounts.pop(queue, None)
        if account is not None:
            account.settled.set()

    def _account(self, queue: str, limit: float, burst: int | None) -> _Account:
        servers = max(1, self._servers(queue))
        rate, share = limit / servers, None if burst is None else burst / servers
        account = self._accounts.get(queue)
        if account is None:
            return _Account(limit, burst, TokenBucket(rate, self._clock.monotonic(), share))
        account.limit, account.burst = limit, burst
        account.bucket.set_rate(rate, self._clock.monotonic(), share)
        return account

    def is_open(self, queue: str) -> bool:
        """Whether the queue is neither limited nor paused, so that claims need no permit."""
        return queue not in self._accounts and queue not in self._paused

    async def admit(self, queue: str, wanted: int, *, may_overdraw: bool) -> Permit | Block | None:
        """Permission to claim up to `wanted` jobs, None if none is needed; waits only for claims under way that affect it.

        Permission for fewer jobs, if all of them would exceed the limit, unless the request `may_overdraw`.
        """
        account = self._accounts.get(queue)
        if account is None:
            return self.block(queue)
        account.dequeued_s = self._clock.monotonic()
        self._begins(queue)
        async with account.door:
            while True:
                block = self.block(queue)
                if block is not None:
                    return block
                if self._accounts.get(queue) is not account:
                    return None
                whole = account.bucket.whole(self._clock.monotonic(), account.under_way)
                if whole >= 1:
                    return Permit(account, wanted if may_overdraw else min(wanted, whole), self._clock)
                account.settled.clear()
                await account.settled.wait()

    def block(self, queue: str) -> Block | None:
        """None if the queue may be dequeued now."""
        if self._paused and queue in self._paused:
            return Block(True, None)
        account = self._accounts.get(queue)
        if account is None:
            return None
        now = self._clock.monotonic()
        if account.bucket.available(now):
            return None
        return Block(False, account.bucket.retry_after_ms(now))

    def is_stopped(self, queue: str) -> bool:
        """Whether the queue is paused, or its limit is 0."""
        block = self.block(queue)
        return block is not None and block.retry_after_ms is None

    def charge(self, queue: str, jobs: int) -> None:
        """Charges `jobs` jobs of this queue; a negative number refunds jobs that reached no client."""
        account = self._accounts.get(queue)
        if account is not None:
            account.bucket.charge(jobs, self._clock.monotonic())
