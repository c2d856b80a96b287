"""The claims of one dequeue: shards in turn (`sharding.claim_turns`) until it has enough jobs, each with a deadline if there are
others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pinlater.domain.clock import Clock
from pinlater.domain.errors import PinLaterError, QueueNotFound
from pinlater.domain.job import HandedOutJob, Holder
from pinlater.server.dispatch.identity import name_of, timed
from pinlater.server.dispatch.late_claims import ClaimAsker, LateClaims
from pinlater.server.dispatch.shard_deadlines import ShardDeadlines
from pinlater.server.dispatch.waiters import JobsCame, Waiters
from pinlater.server.sharding.claim_turns import ClaimTurns
from pinlater.server.sharding.guarded import shard_unreachable, slow_to_answer
from pinlater.server.sharding.shards import ClaimRequest, ShardLanes, Shards
from pinlater.server.storage.claim_bytes import content_bytes
from pinlater.server.storage.values import ClaimCall, Claimed

logger = logging.getLogger(__name__)

# A shard that failed or was slow may have had jobs: a dequeue that waits asks again after this time.
_AFTER_SLOWNESS_MS = 1_000


class FromShard(NamedTuple):
    """Jobs claimed from one shard by one call, and the token of that claim ('' for jobs that are only shown)."""

    shard: str
    jobs: Sequence[HandedOutJob]
    token: str


class Claiming:
    """Asks the shards. `give_back(queue, part)` takes claims that reach no caller; `queue_gone(queue)` is called for a queue that no
    shard knows."""

    def __init__(
        self,
        shards: Shards,
        clock: Clock,
        give_back: Callable[[str, FromShard], None],
        queue_gone: Callable[[str], None],
    ) -> None:
        self._shards = shards
        self._clock = clock
        self._give_back = give_back
        self._queue_gone = queue_gone
        self._deadlines: dict[str, ShardDeadlines] = {}  # by shard

    async def claim(
        self, request: ClaimRequest, waiters: Waiters | None = None, look: int = 0, late: LateClaims | None = None
    ) -> tuple[list[FromShard], int | None]:
        """Jobs from the covered shards, and when the next one becomes due if these shards had too few.

        `waiters`: the waiters of the queue, for a dequeue that waits. `look`: how often the dequeue has asked before. A shard that fails,
        or does not answer for a while, is skipped; raises its error if no shard answered. Raises `JobsCame` if the dequeue is to ask
        again.
        `late`: takes the answers of shards that were skipped as slow; until they answer, these shards are asked again only by another
        route.
        """
        claimed: list[FromShard] = []
        next_due_ms: int | None = None
        searches = waiters is not None and waiters.take_search()
        if searches:
            request = request._replace(search=True)
        left, holder, bytes_left = request.call
        failures: list[PinLaterError] = []
        covered = self._shards.for_claim(request.queue, request.coverage)
        shards = late.without_awaited(covered, request.queue) if late else covered
        turns = ClaimTurns(self._shards.heads, self._clock, request.queue, shards) if len(shards) > 1 else None
        try:
            for place, (shard, through) in enumerate(turns or [(shard, None) for shard in shards]):
                here = request if through is None else request._replace(through_priority=through)
                if look or place:
                    here = here._replace(
                        call=ClaimCall(left, _holder_of(holder, look, place, self._clock.now_ms()), bytes_left)
                    )
                try:
                    if shard.trusted or (len(shards) == 1 and not late and not self._has_others(shard)):
                        answer = shard.lanes_of(here.queue).claim.submit(here)
                        try:
                            found = await answer
                        except asyncio.CancelledError:
                            self._give_back_answer(shard, here, answer)
                            raise
                    else:
                        found = await self._in_time(shard, here, waiters, late, anything=bool(claimed))
                except PinLaterError as error:
                    if turns is None or turns.failed(shard):
                        failures.append(error)
                    continue
                [jobs] = found.jobs
                if claimed and content_bytes(jobs) > bytes_left:
                    # One job always fits into a call, but this one does not into the answer.
                    self._give_back(request.queue, FromShard(shard.name, jobs, here.call.holder.token))
                    break
                if turns is None:
                    next_due_ms = found.next_due_ms
                else:
                    next_due_ms = turns.answered(shard, left, found)
                    waiting = found.next_due_ms is not None
                    self._shards.note_claim(request.queue, shard, jobs, turns.began_s, waiting=waiting)
                if jobs:
                    part = tuple.__new__(FromShard, (shard.name, jobs, here.call.holder.token))  # as in `Dequeue`
                    claimed.append(part)
                    left -= len(jobs)
                if left <= 0 or turns is None:
                    break
                bytes_left -= content_bytes(jobs)
                if bytes_left <= 0:
                    break
        except (Exception, asyncio.CancelledError):
            # The caller has gone, or `JobsCame`, or a bug of ours: these jobs reach no caller.
            for part in claimed:
                self._give_back(request.queue, part)
            if searches and waiters is not None:
                waiters.search = True
            raise
        if failures or len(shards) < len(covered):  # an awaited shard may have answered meanwhile, without jobs
            if searches and waiters is not None:
                waiters.search = True
            if not late:
                self._judge(request.queue, failures, len(covered))
            again_ms = self._clock.now_ms() + _AFTER_SLOWNESS_MS
            next_due_ms = again_ms if next_due_ms is None else min(next_due_ms, again_ms)
        return claimed, next_due_ms

    def _has_others(self, shard: ShardLanes) -> bool:
        """Whether another call may go to another shard: this one may cover only some of them."""
        return len(self._shards) > 1 and any([other.usable for other in self._shards if other is not shard])  # noqa: C419 a list is quicker

    async def _in_time(
        self,
        shard: ShardLanes,
        request: ClaimRequest,
        waiters: Waiters | None,
        late: LateClaims | None,
        *,
        anything: bool,
    ) -> Claimed:
        """The answer of one shard of several; raises once the shard is seen to be slow.

        A dequeue that waits for jobs skips that shard sooner: if others gave it `anything`, or once jobs have arrived meanwhile.
        `late` takes the answer that the shard gives after that.
        """
        if not shard.healthy:
            raise shard_unreachable(shard.name)
        if anything and waiters is not None and shard.slow:
            raise slow_to_answer(shard.name)
        deadlines = self._deadlines.get(shard.name)
        if deadlines is None:
            settings = self._shards.settings
            deadlines = ShardDeadlines(shard.name, settings.slow_ms / 1000, settings.stall_ms / 1000)
            self._deadlines[shard.name] = deadlines
        lane = shard.lanes_of(request.queue).claim
        asker = None if late is None else ClaimAsker(shard.name, lane, request, late)
        taken = lane.submit(request, asker)
        answer: asyncio.Future[Claimed] = taken if asker is None else asker.answer
        deadlines.begin(answer, waiters, request.call.limit, anything=anything)
        try:
            return await answer
        except asyncio.CancelledError:
            self._give_back_answer(shard, request, answer)
            raise
        except (PinLaterError, JobsCame):
            if late is not None and asker is not None:
                late.keep(asker)
            raise

    def _give_back_answer(self, shard: ShardLanes, request: ClaimRequest, answer: asyncio.Future[Claimed]) -> None:
        """Gives jobs back whose caller went in the same turn of the loop in which they arrived: the lane counted them as delivered."""
        if answer.done() and not answer.cancelled() and answer.exception() is None:
            self.undelivered(shard.name, request, answer.result())

    def undelivered(self, shard: str, request: ClaimRequest, claimed: Claimed) -> None:
        """Releases the jobs of a claim whose caller had gone, or was told that the claim took too long."""
        [jobs] = claimed.jobs
        if jobs:
            self._give_back(request.queue, FromShard(shard, jobs, request.call.holder.token))

    def _judge(self, queue: str, failures: list[PinLaterError], asked: int) -> None:
        """Raises where no shard has answered. A shard that doesn't know the queue (yet) does not count as failed while others know it."""
        if len(failures) == asked:
            if all(isinstance(error, QueueNotFound) for error in failures):
                self._queue_gone(queue)
            raise next((error for error in failures if not isinstance(error, QueueNotFound)), failures[0])
        for error in failures:
            if not isinstance(error, QueueNotFound):
                logger.debug("a dequeue was answered without a shard", extra={"queue": queue, "reason": error.message})


def _holder_of(holder: Holder, look: int, place: int, now_ms: int) -> Holder:
    """The holder of claim number `place` of look number `look`, which count from 0 and are not both 0.

    A token names one claim call and is never used again: a claim of unknown outcome, or one that reached no caller, is released by its
    token some time later, when the same dequeue may hold jobs by another call. The descriptor stays the same, as old clients expect.
    """
    token = timed(f"{name_of(holder.token)}.{look:x}.{place:x}", now_ms)
    return Holder(holder.descriptor, holder.source, token)
