"""Releases claims that reached no caller, in the background. Their jobs are due at once, and the attempts count as unspent."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from pinlater.domain.errors import OutcomeUnknown, PinLaterError
from pinlater.domain.job import Outcome
from pinlater.server.dispatch.claiming import FromShard
from pinlater.server.dispatch.rate_limits import RateLimits
from pinlater.server.sharding.guarded import shard_unreachable
from pinlater.server.sharding.shards import Shards
from pinlater.server.storage.values import ClaimRef, JobKey

logger = logging.getLogger(__name__)

# A shard that is unreachable is usually back within a minute; a claim that is not released waits for its time-out.
_RELEASE_PAUSES_S = (0.1, 0.5, 2.0, 5.0, 10.0, 30.0)


class ClaimReturns:
    """Releases claims. `ready(queue, jobs)` is called for jobs that can be claimed again."""

    def __init__(self, shards: Shards, limits: RateLimits, ready: Callable[[str, int], None]) -> None:
        self._shards = shards
        self._limits = limits
        self._ready = ready
        self._under_way: set[asyncio.Task[None]] = set()
        self._draining = False
        self._closing = asyncio.Event()

    @property
    def under_way(self) -> bool:
        return bool(self._under_way)

    def give_back(self, queue: str, part: FromShard, *, charged: bool) -> None:
        """Releases claims whose jobs reached no caller. `charged`: they were charged to the limit of the queue."""
        task = asyncio.ensure_future(self._release(queue, part, charged=charged))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def drain(self) -> None:
        """From now on a failed release is not retried."""
        self._draining = True

    async def close(self) -> None:
        """Waits for the releases that are under way."""
        self.drain()
        self._closing.set()
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def _release(self, queue: str, part: FromShard, *, charged: bool) -> None:
        """Retries for a while. It also does so if the outcome is unknown: the token names this claim alone, so a second release of it
        changes nothing."""
        shard = self._shards.get(part.shard)
        if shard is None:
            return
        refs = [ClaimRef(JobKey(queue, job.priority, job.id), part.token) for job in part.jobs]
        unknown = 0  # jobs that an earlier attempt may have released
        for pause_s in (*_RELEASE_PAUSES_S, None):
            try:
                if not shard.healthy:
                    raise shard_unreachable(shard.name)
                answers = await shard.lanes_of(queue).release.submit(refs)
                break
            except PinLaterError as error:
                if isinstance(error, OutcomeUnknown):
                    unknown = len(refs)
                if pause_s is None or self._draining:
                    logger.warning(
                        "claims that reached no client can't be released; they will time out",
                        extra={"queue": queue, "claims": len(refs), "reason": error.message},
                    )
                    return
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._closing.wait()
                shard = self._shards.get(part.shard) or shard
        released = sum([answer.outcome is Outcome.APPLIED for answer in answers])
        if charged:
            self._limits.charge(queue, -released)
        if released or unknown:
            self._ready(queue, max(released, unknown))
