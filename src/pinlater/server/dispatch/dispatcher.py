"""Claims jobs for dequeues, within rate limits, and lets dequeues wait.

`claiming` asks the shards, `claim_returns` releases claims that reached no caller.

A dequeue that waits costs no store query until something happens to its queue: an enqueue, a release, a retry that becomes due, a
change of its settings. Everything that makes a job ready tells `wakeups`.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Collection, Set
from itertools import count
from typing import Any
from weakref import WeakSet

from pinlater.domain.clock import Clock
from pinlater.domain.errors import DequeueRateLimited, TooManyWaiting
from pinlater.server.dispatch.claim_returns import ClaimReturns
from pinlater.server.dispatch.claiming import Claiming, FromShard
from pinlater.server.dispatch.late_claims import LateClaims
from pinlater.server.dispatch.rate_limits import Block, RateLimits
from pinlater.server.dispatch.settings import DispatchSettings
from pinlater.server.dispatch.waiters import JobsCame, Waiters
from pinlater.server.dispatch.wakeups import Wakeups
from pinlater.server.sharding.hooks import Hooks
from pinlater.server.sharding.shards import ClaimRequest, Shards

# After a claim that failed, another waiting dequeue asks again this much later: soon, but not all of them at once at a broken store.
_AFTER_FAILURE_MS = 100
# Some entries of deleted queues may remain; a queue beyond this many counts as never asked.
_ASKED_QUEUES_MAX = 20_000


class Dispatcher:
    """Hands out the jobs of all queues. A server has one."""

    def __init__(self, shards: Shards, limits: RateLimits, clock: Clock, settings: DispatchSettings) -> None:
        self.limits = limits
        self._shards = shards
        self._clock = clock
        self._settings = settings
        self.wakeups = Wakeups(clock, shards, lambda queue: not limits.is_open(queue))
        self._asked_s: dict[str, float] = {}  # by queue, when a worker asked last
        self._waiting_requests: dict[int, ClaimRequest] = {}
        self._draining = False
        self._impatient: WeakSet[asyncio.Task[Any]] = WeakSet()  # tasks whose dequeues wait no longer
        self.returns = ClaimReturns(shards, limits, self.wakeups.jobs_ready)
        self._claiming = Claiming(shards, clock, self._give_back_unanswered, self.wakeups.queue_gone)

    def connect(self, hooks: Hooks) -> None:
        """Makes the shards report new jobs, claims whose callers have gone, and shards that are back. Call it before any
        claim."""
        hooks.undelivered = self._claiming.undelivered
        hooks.inserting = self.wakeups.inserting
        hooks.came_first = self.wakeups.came_first
        hooks.back = self.wakeups.look_again
        self._shards.strays.found = self._strays_found

    def _strays_found(self, shard: str, queues: Set[str]) -> None:
        """Makes dequeues ask again that wait for jobs of these queues, if the shard is not a partition of theirs."""
        for queue in self.wakeups.count_by_queue():
            if queue in queues and not self._shards.is_partition(queue, shard):
                self.wakeups.look_again(queue)

    # --- claiming -----------------------------------------------------------------------------------------------------

    async def claim(self, request: ClaimRequest) -> list[FromShard]:
        """Up to `request.call.limit` jobs; with `wait_ms` as soon as there are any, else those that are there now.

        Raises `DequeueRateLimited` (never with `wait_ms`), `QueueNotFound`, `TooManyWaiting`.
        """
        self._note_asked(request.queue)
        if request.wait_ms and request.call.limit > 0:
            return await self._claim_or_wait(request)
        if self.limits.is_open(request.queue):
            claimed, _ = await self._claiming.claim(request)
            return claimed
        claimed, _, block = await self._claim_if_allowed(request)
        if block is not None:
            raise DequeueRateLimited.of(request.queue, retry_after_ms=block.retry_after_ms, paused=block.paused)
        return claimed

    async def _claim_or_wait(self, request: ClaimRequest) -> list[FromShard]:
        late = LateClaims(self._claiming.undelivered)
        try:
            return await self._claim_once_there_are_jobs(request, late)
        finally:
            late.end()

    async def _claim_once_there_are_jobs(self, request: ClaimRequest, late: LateClaims) -> list[FromShard]:
        deadline = self._clock.monotonic() + request.wait_ms / 1000
        for look in count():
            if self._is_to_end():
                break
            waiters = self.wakeups.waiters_of(request.queue)
            claimed = self._come_late(late, waiters)
            if claimed:
                return claimed
            try:
                version = waiters.version
                claimed, next_due_ms, block = await self._claim_if_allowed(request, waiters, look, late)
            except JobsCame:
                if self._is_to_end() or self._clock.monotonic() >= deadline:
                    waiters.pass_on()
                    return []
                continue
            except asyncio.CancelledError:
                waiters.pass_on()  # the wake that brought this call here, if one did, goes to another call now
                raise
            except Exception:
                if len(waiters):
                    waiters.due_at(self._clock.now_ms() + _AFTER_FAILURE_MS)
                elif look:
                    waiters.pass_on()
                raise
            if not claimed:
                claimed = self._come_late(late, waiters)
            if claimed:
                if len(waiters):  # there may be more than this call took
                    self._pass_on(waiters, request, claimed, next_due_ms)
                return claimed
            if block is None and waiters.version != version:
                continue
            if block is not None and block.retry_after_ms is not None:
                next_due_ms = self._clock.now_ms() + max(1, block.retry_after_ms)
            left = deadline - self._clock.monotonic()
            if left <= 0:
                if next_due_ms is not None:
                    waiters.due_at(next_due_ms)  # for the other waiters
                return []
            is_woken = not self._is_to_end() and await self._wait(waiters, request, left, next_due_ms, late)
            if is_woken and self._is_to_end():
                waiters.pass_on()
        return []

    def _come_late(self, late: LateClaims, waiters: Waiters) -> list[FromShard]:
        """Jobs from a slow shard that has answered by now. A wake for which the dequeue came is passed on to another one.

        Jobs go back if the queue was stopped meanwhile: the claim may have begun after that. So do jobs whose claims have ended by now.
        """
        come = late.take()
        if come is None:
            return []
        queue, token = come.request.queue, come.request.call.holder.token
        [jobs] = come.claimed.jobs
        good_after_ms = math.inf if self.limits.is_stopped(queue) else self._clock.now_ms()
        good = [job for job in jobs if job.claim_deadline_ms > good_after_ms]
        if len(good) < len(jobs):
            ended = [job for job in jobs if job.claim_deadline_ms <= good_after_ms]
            self._give_back_unanswered(queue, FromShard(come.shard, ended, token))
        if not good:
            return []
        self.limits.charge(queue, len(good))
        waiters.pass_on()
        return [FromShard(come.shard, good, token)]

    def _is_to_end(self) -> bool:
        """Whether the dequeue that runs in this task no longer waits."""
        return self._draining or (bool(self._impatient) and asyncio.current_task() in self._impatient)

    def _pass_on(
        self, waiters: Waiters, request: ClaimRequest, claimed: list[FromShard], next_due_ms: int | None
    ) -> None:
        # Under a limit the call may have been allowed fewer jobs than it asked for.
        if not self.limits.is_open(request.queue) or sum(len(part.jobs) for part in claimed) >= request.call.limit:
            waiters.wake(1)
        elif next_due_ms is not None:
            waiters.due_at(next_due_ms)

    async def _wait(
        self, waiters: Waiters, request: ClaimRequest, seconds: float, next_due_ms: int | None, late: LateClaims
    ) -> bool:
        """Returns whether it was woken before the time was up."""
        waiting = len(self._waiting_requests)
        if waiting >= self._settings.max_waiting_dequeues:
            raise TooManyWaiting(f"{waiting} dequeues wait already, the most this server takes", retry_after_ms=1000)
        self._waiting_requests[id(request)] = request
        try:
            return await waiters.wait(request.call.limit, seconds, next_due_ms, late.wakes)
        finally:
            del self._waiting_requests[id(request)]
            self._note_asked(request.queue)

    async def _claim_if_allowed(
        self,
        request: ClaimRequest,
        waiters: Waiters | None = None,
        look: int = 0,
        late: LateClaims | None = None,
    ) -> tuple[list[FromShard], int | None, Block | None]:
        if self.limits.is_open(request.queue):
            return *await self._claiming.claim(request, waiters, look, late), None
        permit = await self.limits.admit(request.queue, request.call.limit, may_overdraw=waiters is None)
        if permit is None:
            return *await self._claiming.claim(request, waiters, look), None
        if isinstance(permit, Block):
            return [], None, permit
        handed_out = 0
        request = request._replace(call=request.call._replace(limit=permit.wanted))
        try:
            claimed, next_due_ms = await self._claiming.claim(request, waiters, look)
            handed_out = sum([len(part.jobs) for part in claimed])
        finally:
            permit.settle(handed_out)
        return claimed, next_due_ms, None

    # --- giving back --------------------------------------------------------------------------------------------------

    def give_back(self, queue: str, part: FromShard) -> None:
        """Releases claims whose answer reached no caller. Continues in the background."""
        self.returns.give_back(queue, part, charged=True)

    def _give_back_unanswered(self, queue: str, part: FromShard) -> None:
        self.returns.give_back(queue, part, charged=False)

    # --- when workers asked, so that an operator sees that none does ----------------------------------------------------

    def _note_asked(self, queue: str) -> None:
        """Notes that a worker asks for jobs, or has just stopped waiting."""
        if queue not in self._asked_s and len(self._asked_s) >= _ASKED_QUEUES_MAX:
            del self._asked_s[min(self._asked_s, key=self._asked_s.__getitem__)]
        self._asked_s[queue] = self._clock.monotonic()

    def asked_at_ms(self, queue: str) -> int | None:
        """Returns when the queue was last asked for jobs on this server; None if it never was."""
        asked_s = self._asked_s.get(queue)
        if asked_s is None:
            return None
        return self._clock.now_ms() - round(1000 * (self._clock.monotonic() - asked_s))

    # --- waiting dequeues -----------------------------------------------------------------------------------------------

    def waiting(self, queue: str | None = None) -> int:
        """How many dequeues wait, on this queue or on all."""
        return len(self._waiting_requests) if queue is None else self.wakeups.count(queue)

    def waiting_by_source(self) -> Counter[tuple[str, str]]:
        """How many dequeues wait, by queue and source."""
        return Counter((request.queue, request.call.holder.source) for request in self._waiting_requests.values())

    def waiting_by_queue(self) -> dict[str, int]:
        """How many dequeues wait, for each queue that has any."""
        return self.wakeups.count_by_queue()

    def drain(self) -> None:
        """Answers waiting dequeues empty at once, because the server stops; later ones don't wait."""
        self._draining = True
        self.returns.drain()
        self.wakeups.look_again()

    def stop_waiting(self, tasks: Collection[asyncio.Task[Any]]) -> None:
        """Answers the dequeues that run in these tasks as if their time to wait were over."""
        self._impatient.update(tasks)
        if tasks:
            self.wakeups.look_again()

    async def close(self) -> None:
        """Refuses further claims, finishes those under way, and releases undelivered ones."""
        self.drain()
        await self._shards.end_claims()
        await self.returns.close()
