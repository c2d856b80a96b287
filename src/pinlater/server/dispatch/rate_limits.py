"""How fast each queue may be dequeued: the lower of the limit in the file and the one in the store, divided by the servers.

Zero in either, or the pause switch, stops dequeues. Charged by jobs handed out: one request may overdraw and the next pays. How
much a claim finds is known only after it, so what those under way may still take is held back for them: claims at the same moment
overdraw by one request together, not by one each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple

from pinlater.domain.clock import Clock
from pinlater.domain.queue import Queue
from pinlater.domain.rate_limit import TokenBucket, effective_rate


class Block(NamedTuple):
    """Why a queue may not be dequeued now. `retry_after_ms` is None if only a change of settings helps."""

    paused: bool
    retry_after_ms: int | None


class _Account:
    """A limited queue's bucket, and how many jobs the claims under way may still take out of it."""

    __slots__ = ("bucket", "door", "settled", "under_way")

    def __init__(self, bucket: TokenBucket) -> None:
        self.bucket = bucket
        self.under_way = 0
        self.door = asyncio.Lock()  # first come, first served; only its holder watches `settled`
        self.settled = asyncio.Event()


class Permit:
    """Leave to claim from a limited queue; must be settled, whatever comes of the claim."""

    __slots__ = ("_account", "_clock", "_wanted")

    def __init__(self, account: _Account, wanted: int, clock: Clock) -> None:
        account.under_way += wanted
        self._account = account
        self._wanted = wanted
        self._clock = clock

    def settle(self, jobs: int) -> None:
        """Charges `jobs` handed-out jobs."""
        account = self._account
        account.under_way -= self._wanted
        account.bucket.charge(jobs, self._clock.monotonic())
        account.settled.set()


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
        self._accounts: dict[str, _Account] = {}
        self._paused: set[str] = set()

    def of_file(self, queue: str) -> float | None:
        """The queue's limit in the limits file, for all servers together."""
        return self._file_limits().get(queue)

    def refresh(self, queues: Mapping[str, Queue]) -> None:
        """Takes over what the files and the store say now. Queues whose limit is unchanged keep their balance."""
        file_limits = self._file_limits()
        servers = self._servers()
        self._paused = {queue.name for queue in queues.values() if queue.paused}
        accounts: dict[str, _Account] = {}
        for name, queue in queues.items():
            rate = effective_rate(file_limits.get(name), queue.config.max_jobs_per_second, servers)
            if rate is not None:
                accounts[name] = self._account(name, rate)
        before, self._accounts = self._accounts, accounts
        for account in before.values():
            account.settled.set()

    def add(self, queue: Queue) -> None:
        """Adds a queue that was just created."""
        if queue.paused:
            self._paused.add(queue.name)
        rate = effective_rate(self._file_limits().get(queue.name), queue.config.max_jobs_per_second, self._servers())
        if rate is not None:
            self._accounts[queue.name] = self._account(queue.name, rate)

    def remove(self, queue: str) -> None:
        """Forgets a deleted queue."""
        self._paused.discard(queue)
        account = self._accounts.pop(queue, None)
        if account is not None:
            account.settled.set()

    def _account(self, queue: str, rate: float) -> _Account:
        account = self._accounts.get(queue)
        if account is None:
            return _Account(TokenBucket(rate, self._clock.monotonic()))
        if account.bucket.rate != rate:
            account.bucket.set_rate(rate, self._clock.monotonic())
        return account

    def is_open(self, queue: str) -> bool:
        """Whether the queue is neither limited nor paused, so that claims need no permit."""
        return queue not in self._accounts and queue not in self._paused

    async def admit(self, queue: str, wanted: int) -> Permit | Block | None:
        """Leave to claim up to `wanted` jobs, None if none is needed; waits only for claims under way that decide it."""
        account = self._accounts.get(queue)
        if account is None:
            return self.block(queue)
        async with account.door:
            while True:
                block = self.block(queue)
                if block is not None:
                    return block
                if self._accounts.get(queue) is not account:
                    return None
                if account.bucket.available(self._clock.monotonic(), account.under_way):
                    return Permit(account, wanted, self._clock)
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

    def charge(self, queue: str, jobs: int) -> None:
        """Charges `jobs` jobs of this queue; a negative number refunds jobs that reached no client."""
        account = self._accounts.get(queue)
        if account is not None:
            account.bucket.charge(jobs, self._clock.monotonic())
