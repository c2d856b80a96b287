"""Claims across shards: joined by the lanes, limited, and waited for.

A dequeue that waits costs no store query until something happens to its queue: an enqueue, a release, a retry that becomes due, a
change of its settings. Everything that makes a job ready has to say so (`jobs_ready`); what other servers do is not seen here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from typing import NamedTuple

from pinlater.domain.clock import Clock
from pinlater.domain.errors import (
    DequeueRateLimited,
    PinLaterError,
    QueueNotFound,
    TooManyWaiting,
)
from pinlater.domain.job import ClaimedJob, Holder, Outcome
from pinlater.server.dispatch.claim_deadlines import ClaimDeadlines
from pinlater.server.dispatch.limits import Block, RateLimits
from pinlater.server.dispatch.settings import DispatchSettings
from pinlater.server.dispatch.waiters import JobsCame, Waiters
from pinlater.server.sharding.guarded import out_of_reach, slow_to_answer
from pinlater.server.sharding.shards import ClaimRequest, ShardLanes, Shards
from pinlater.server.storage.values import ClaimCall, Claimed, ClaimRef, InsertRequest, JobKey

logger = logging.getLogger(__name__)

# Where a claim fails, somebody else who waits looks again so much later: soon, but not all of them at a broken store at once.
_AFTER_FAILURE_MS = 100
_AFTER_SLOWNESS_MS = 1_000
# A shard that is out of reach is mostly back within a minute, and a claim that reached nobody would else wait for its time-out.
_RELEASE_PAUSES_S = (0.1, 0.5, 2.0, 5.0, 10.0, 30.0)


# How a claim waits for one shard of several: see `Dispatcher._patient` and `ClaimDeadlines.begin`.
_Patient = tuple[ClaimDeadlines, Waiters | None, bool]


class ClaimWish(NamedTuple):
    """What one dequeue call wants. `holder` is that of its first claim call; later ones have tokens of their own (`_holder_of`)."""

    queue: str
    limit: int
    holder: Holder
    claim_timeout_ms: int
    max_bytes: int
    coverage: float = 1.0
    wait_ms: int = 0


class FromShard(NamedTuple):
    """Jobs claimed from one shard by one call, and the token of that claim."""

    shard: str
    jobs: Sequence[ClaimedJob]
    token: str


def _holder_of(wish: ClaimWish, attempt: int, place: int) -> Holder:
    """Whose claim it is that attempt `attempt` of the wish sends to the shard at `place` in its order, both counted from 0 and not both 0.

    A token names one claim call and is never used again: a claim of unknown outcome, or one that reached no caller, is released by its
    token some time later, when the same dequeue may hold jobs by another call. The descriptor stays one, as old clients expect.
    """
    holder = wish.holder
    return Holder(holder.descriptor, holder.source, f"{holder.token}.{attempt:x}.{place:x}")


class Dispatcher:
    """Hands out jobs. One a server."""

    def __init__(self, shards: Shards, limits: RateLimits, clock: Clock, settings: DispatchSettings) -> None:
        self.limits = limits
        self._shards = shards
        self._clock = clock
        self._settings = settings
        self._waiters: dict[str, Waiters] = {}
        self._patience: dict[str, ClaimDeadlines] = {}  # by shard
        self._waiting = 0
        self._waiting_wishes: dict[int, ClaimWish] = {}
        self._draining = False
        self._giving_back: set[asyncio.Task[None]] = set()
        self._closing = asyncio.Event()
        self.elsewhere: Callable[[str, int], None] | None = None  # told of jobs that others' waiting dequeues may want
        shards.hooks.undelivered = self._orphaned
        shards.hooks.inserting = self._inserting
        shards.hooks.back = self.look_again

    # --- claiming -----------------------------------------------------------------------------------------------------

    async def claim(self, wish: ClaimWish) -> list[FromShard]:
        """Up to `wish.limit` jobs; with `wait_ms` as soon as there are any, else what there is now.

        Raises `DequeueRateLimited` (never with `wait_ms`), `QueueNotFound`, `TooManyWaiting`.
        """
        if wish.wait_ms and wish.limit > 0:
            return await self._claim_or_wait(wish)
        if self.limits.is_open(wish.queue):
            return (await self._claim_now(wish, None, 0))[0]
        claimed, _, block = await self._claim_if_allowed(wish)
        if block is not None:
            raise DequeueRateLimited(wish.queue, retry_after_ms=block.retry_after_ms, paused=block.paused)
        return claimed

    async def _claim_or_wait(self, wish: ClaimWish) -> list[FromShard]:
        deadline = self._clock.monotonic() + wish.wait_ms / 1000
        for attempt in count():
            if self._draining:
                break
            waiters = self._waiters.get(wish.queue)
            if waiters is None:
                waiters = self._waiters[wish.queue] = Waiters(wish.queue, self._clock.now_ms)
            try:
                version = waiters.version
                claimed, next_due_ms, block = await self._claim_if_allowed(wish, waiters, attempt)
            except JobsCame:
                if self._clock.monotonic() >= deadline:
                    waiters.wake(1)
                    return []
                continue
            except asyncio.CancelledError:
                waiters.wake(1)  # the wake that brought this call here, if one did, is somebody else's now
                raise
            except Exception:
                waiters.due_at(self._clock.now_ms() + _AFTER_FAILURE_MS)
                raise
            if claimed:
                if len(waiters):  # there may be more than this call took
                    self._pass_on(waiters, wish, claimed, next_due_ms)
                return claimed
            if block is None and waiters.version != version:
                continue
            if block is not None and block.retry_after_ms is not None:
                next_due_ms = self._clock.now_ms() + max(1, block.retry_after_ms)
            left = deadline - self._clock.monotonic()
            if left <= 0:
                if next_due_ms is not None:
                    waiters.due_at(next_due_ms)  # for those who stay
                return []
            if not self._draining:
                await self._wait(waiters, wish, left, next_due_ms)
        return []

    def _pass_on(self, waiters: Waiters, wish: ClaimWish, claimed: list[FromShard], next_due_ms: int | None) -> None:
        if sum(len(part.jobs) for part in claimed) >= wish.limit:
            waiters.wake(1)
        elif next_due_ms is not None:
            waiters.due_at(next_due_ms)

    async def _wait(self, waiters: Waiters, wish: ClaimWish, seconds: float, next_due_ms: int | None) -> None:
        if self._waiting >= self._settings.max_waiting_dequeues:
            raise TooManyWaiting(
                f"{self._waiting} dequeues wait already, the most this server takes", retry_after_ms=1000
            )
        self._waiting += 1
        self._waiting_wishes[id(wish)] = wish
        try:
            await waiters.wait(wish.limit, seconds, next_due_ms)
        finally:
            self._waiting -= 1
            del self._waiting_wishes[id(wish)]

    async def _claim_if_allowed(
        self, wish: ClaimWish, waiters: Waiters | None = None, attempt: int = 0
    ) -> tuple[list[FromShard], int | None, Block | None]:
        if self.limits.is_open(wish.queue):
            return *await self._claim_now(wish, waiters, attempt), None
        permit = await self.limits.admit(wish.queue, wish.limit)
        if permit is None:
            return *await self._claim_now(wish, waiters, attempt), None
        if isinstance(permit, Block):
            return [], None, permit
        handed_out = 0
        try:
            claimed, next_due_ms = await self._claim_now(wish, waiters, attempt)
            handed_out = sum([len(part.jobs) for part in claimed])
        finally:
            permit.settle(handed_out)
        return claimed, next_due_ms, None

    async def _claim_now(
        self, wish: ClaimWish, waiters: Waiters | None, attempt: int
    ) -> tuple[list[FromShard], int | None]:
        """Jobs from the covered shards in random order, and when the next becomes due where they gave too few.

        Who was woken in `waiters` asks the shard first that got the newest jobs.

        One that fails, or doesn't answer for a while, is passed over; the call fails where none has answered. Raises `JobsCame` where it is
        to begin anew.
        """
        claimed: list[FromShard] = []
        next_due_ms: int | None = None
        left, bytes_left = wish.limit, wish.max_bytes
        failures: list[PinLaterError] = []
        shards = self._shards.for_claim(wish.coverage)
        if waiters is not None and waiters.newest_on is not None and len(shards) > 1:
            newest_on, waiters.newest_on = waiters.newest_on, None
            shards = sorted(shards, key=lambda shard: (shard.slow, shard.name != newest_on))
        try:
            for place, shard in enumerate(shards):
                try:
                    alone = len(shards) == 1 or shard.trusted
                    patient = None if alone else self._patient(shard, waiters, anything=bool(claimed))
                    holder = _holder_of(wish, attempt, place) if attempt or place else wish.holder
                    answer = await self._claim_from(shard, wish, ClaimCall(left, holder, bytes_left), patient)
                except PinLaterError as error:
                    failures.append(error)
                    continue
                jobs = answer.jobs[0]
                if answer.next_due_ms is not None:
                    next_due_ms = answer.next_due_ms if next_due_ms is None else min(next_due_ms, answer.next_due_ms)
                if jobs:
                    claimed.append(FromShard(shard.name, jobs, holder.token))
                    left -= len(jobs)
                if left <= 0 or shard is shards[-1]:
                    break
                bytes_left -= sum([len(job.body) for job in jobs])
                if bytes_left <= 0:
                    break
        except (Exception, asyncio.CancelledError):
            # The caller has gone, or `JobsCame`, or our own fault: these jobs reach no caller.
            for part in claimed:
                self.give_back(wish.queue, part, charged=False)
            raise
        if failures:
            self._judge(wish.queue, failures, len(shards))
            again_ms = self._clock.now_ms() + _AFTER_SLOWNESS_MS  # that shard may have had jobs
            next_due_ms = again_ms if next_due_ms is None else min(next_due_ms, again_ms)
        return claimed, next_due_ms

    async def _claim_from(
        self, shard: ShardLanes, wish: ClaimWish, call: ClaimCall, patient: _Patient | None = None
    ) -> Claimed:
        """What the shard gives; what it gives after the patience has ended goes back, and the call fails."""
        request = ClaimRequest((wish.queue, call, wish.claim_timeout_ms))
        answer = shard.claim.submit(request)
        if patient is not None:
            patience, waiters, anything = patient
            patience.begin(answer, waiters, wish.limit, anything=anything)
        try:
            return await answer
        except asyncio.CancelledError:
            # Answered and cancelled in one turn of the loop: the lane took it for delivered.
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                self._orphaned(shard.name, request, answer.result())
            raise

    def _patient(self, shard: ShardLanes, waiters: Waiters | None, *, anything: bool) -> _Patient:
        """One shard of several is not waited for longer than it takes to see that it is slow.

        Whoever waits for jobs goes without it sooner: with `anything` that others gave, or once jobs have come meanwhile.
        """
        if not shard.healthy:
            raise out_of_reach(shard.name)
        if anything and waiters is not None and shard.slow:
            raise slow_to_answer(shard.name)
        patience = self._patience.get(shard.name)
        if patience is None:
            settings = self._shards.settings
            patience = ClaimDeadlines(shard.name, settings.slow_ms / 1000, settings.stall_ms / 1000)
            self._patience[shard.name] = patience
        return patience, waiters, anything

    def _judge(self, queue: str, failures: list[PinLaterError], asked: int) -> None:
        """Raises where no shard has answered. One that doesn't know the queue (yet) is none that failed, while others do."""
        if len(failures) == asked:
            if all(isinstance(error, QueueNotFound) for error in failures):
                self.queue_gone(queue)
            raise next((error for error in failures if not isinstance(error, QueueNotFound)), failures[0])
        for error in failures:
            if not isinstance(error, QueueNotFound):
                logger.debug("a dequeue was answered without a shard", extra={"queue": queue, "reason": error.message})

    @property
    def gives_back(self) -> bool:
        """Whether claims that reached nobody are on their way back."""
        return bool(self._giving_back)

    # --- giving back --------------------------------------------------------------------------------------------------

    def give_back(self, queue: str, part: FromShard, *, charged: bool = True) -> None:
        """Releases claims whose jobs reached nobody, unspent and due at once. Goes on in the background.

        `charged`: the queue's limit was charged for them.
        """
        task = asyncio.ensure_future(self._release(queue, part, charged=charged))
        self._giving_back.add(task)
        task.add_done_callback(self._giving_back.discard)

    async def _release(self, queue: str, part: FromShard, *, charged: bool) -> None:
        """Tries again for a while. Also where the outcome is unknown: the token names this claim alone, so that a second release of it
        changes nothing."""
        shard = self._shards.get(part.shard)
        if shard is None:
            return
        refs = [ClaimRef(JobKey(queue, job.priority, job.id), part.token) for job in part.jobs]
        for pause_s in (*_RELEASE_PAUSES_S, None):
            try:
                if not shard.healthy:
                    raise out_of_reach(shard.name)
                answers = await shard.release.submit(refs)
                break
            except PinLaterError as error:
                if pause_s is None or self._draining:
                    logger.warning(
                        "claims that reached nobody can't be released; they will time out",
                        extra={"queue": queue, "claims": len(refs), "reason": error.message},
                    )
                    return
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._closing.wait()
                shard = self._shards.get(part.shard) or shard
        released = sum([answer.outcome is Outcome.APPLIED for answer in answers])
        if charged:
            self.limits.charge(queue, -released)
        if released:
            self.jobs_ready(queue, released)

    def _orphaned(self, shard: str, request: ClaimRequest, claimed: Claimed) -> None:
        if claimed.jobs[0]:
            self.give_back(request[0], FromShard(shard, claimed.jobs[0], request[1].holder.token), charged=False)

    # --- what happens to queues -----------------------------------------------------------------------------------------

    def jobs_ready(self, queue: str, jobs: int, due_at_ms: int | None = None) -> None:
        """`jobs` jobs of this queue can be claimed now; the next one can at `due_at_ms`."""
        if jobs and self.elsewhere is not None:
            self.elsewhere(queue, jobs)
        self._wake(queue, jobs, due_at_ms)

    def woken_from_elsewhere(self, queue: str, jobs: int) -> None:
        """Another server of the same shards says that there are jobs."""
        self._wake(queue, jobs)

    def _wake(self, queue: str, jobs: int, due_at_ms: int | None = None) -> None:
        waiters = self._waiters.get(queue)
        if waiters is None:
            return
        if jobs:
            waiters.wake(jobs)
        if due_at_ms is not None:
            waiters.version += 1
            waiters.due_at(due_at_ms)

    def _inserting(self, shard: str, request: InsertRequest, now_ms: int) -> bool:
        """Wakes who waits for these jobs, and says where they are; whether anybody does."""
        waiters = self._waiters.get(request.queue)
        if waiters is None:
            if self.elsewhere is not None:
                self.elsewhere(request.queue, len(request.jobs))
            return False
        awaited = len(waiters) > 0
        waiters.newest_on = shard
        later = [job.run_after_ms for job in request.jobs if job.run_after_ms > now_ms]
        self.jobs_ready(request.queue, len(request.jobs) - len(later), min(later) if later else None)
        return awaited

    def look_again(self, queue: str | None = None) -> None:
        """Something about this queue (None: about all) has changed: whoever waits looks again."""
        for waiters in list(self._waiters.values()) if queue is None else filter(None, [self._waiters.get(queue)]):
            waiters.wake_all()

    def queue_gone(self, queue: str) -> None:
        """The queue does not exist (any more): whoever waits on it is told so."""
        waiters = self._waiters.pop(queue, None)
        if waiters is not None:
            waiters.wake_all()

    def waiting(self, queue: str | None = None) -> int:
        """How many dequeues wait, on this queue or on all."""
        if queue is None:
            return self._waiting
        waiters = self._waiters.get(queue)
        return 0 if waiters is None else len(waiters)

    def waiting_by_source(self) -> Counter[tuple[str, str]]:
        """How many dequeues wait, by queue and source."""
        return Counter((wish.queue, wish.holder.source) for wish in self._waiting_wishes.values())

    def waiting_by_queue(self) -> dict[str, float]:
        """How many dequeues wait on each queue where any do."""
        return {name: len(waiters) for name, waiters in self._waiters.items() if len(waiters)}

    def drain(self) -> None:
        """The server is stopping: whoever waits is answered empty at once, and nobody waits from now on."""
        self._draining = True
        self.look_again()

    async def close(self) -> None:
        """Finishes giving back what reached nobody."""
        self.drain()
        self._closing.set()
        if self._giving_back:
            await asyncio.wait(self._giving_back)
