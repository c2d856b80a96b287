"""Gives back jobs that a blocked event loop can't start, so that other workers run them.

That is what was claimed and has not started, also by a long poll whose answer the loop has not read. Weakness: a blocked loop is noticed
after a second. Unread jobs without tokens (of an original server) are left to their claims' timeout.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from pinlater.client.async_client import AsyncClient
from pinlater.client.errors import PinLaterError
from pinlater.client.values import ClaimedJob
from pinlater.worker._outbox.blocked_loop import BlockedLoopWarnings
from pinlater.worker._outbox.leases import Leases, QueueShard, shard_of_job
from pinlater.worker._outbox.loop_watchdog import LoopWatchdog
from pinlater.worker._outbox.renewals import CLAIMS_PER_REQUEST_MAX, Renewals

_log = logging.getLogger("pinlater.worker")
# How often the watchdog is asked, and for how long the loop may be blocked.
CHECK_S = 0.25
_BLOCKED_S = 1.0
_REQUEST_S = 5.0
# How long a release is retried; then the claims time out.
_RETRY_S = 30.0


class UnstartedJobs:
    """Watches one event loop. `unread` returns the answers that have arrived and that the loop has not read."""

    def __init__(
        self, leases: Leases, renewals: Renewals, watchdog: LoopWatchdog, unread: Callable[[], list[Any]]
    ) -> None:
        self._leases = leases
        self._renewals = renewals
        self._watchdog = watchdog
        self._blocked_loop = BlockedLoopWarnings(watchdog.thread_id)
        self._unread = unread
        self._unsent: deque[tuple[float, ClaimedJob]] = deque()  # until when (monotonic) to try

    async def give_back_until_cancelled(self, client: AsyncClient) -> None:
        """Looks four times a second."""
        while True:
            await asyncio.sleep(CHECK_S)
            try:
                blocked_s = self._watchdog.blocked_s()
                self._blocked_loop.looked(0 if self._watchdog.is_closed else blocked_s)
                if blocked_s >= _BLOCKED_S:
                    self._take()
                await self._send(client)
            except Exception:  # noqa: BLE001 - logged as what it is: a fault of ours
                self._renewals.errors += 1
                _log.exception("jobs that a blocked event loop has not started can't be given back")

    def _take(self) -> None:
        unread = [job for dequeued in self._unread() for job in dequeued.jobs if job.token]
        leases, jobs = self._leases.take_unstarted(unread, self._watchdog)
        until = time.monotonic() + _RETRY_S
        self._unsent.extend((until, job) for job in [*(lease.job for lease in leases), *jobs])
        for lease in leases:
            with contextlib.suppress(RuntimeError):  # the worker's loop is closed
                lease.given_back()
        if leases or jobs:
            count = len(leases) + len(jobs)
            _log.warning("the event loop is blocked: %d waiting jobs are given back to other workers", count)

    async def _send(self, client: AsyncClient) -> None:
        while self._unsent and self._unsent[0][0] < time.monotonic():
            _, job = self._unsent.popleft()
            _log.warning("job %s could not be given back; its claim times out", job.descriptor)
        batch = [self._unsent.popleft() for _ in range(min(len(self._unsent), CLAIMS_PER_REQUEST_MAX))]
        parts: dict[QueueShard, list[tuple[float, ClaimedJob]]] = {}
        for until, job in batch:
            parts.setdefault(shard_of_job(job), []).append((until, job))
        await asyncio.gather(*(self._send_part(client, queue, part) for (queue, _), part in parts.items()))

    async def _send_part(self, client: AsyncClient, queue: str, part: Sequence[tuple[float, ClaimedJob]]) -> None:
        try:
            async with asyncio.timeout(_REQUEST_S):
                await self._renewals.release(client, queue, [job for _, job in part])
        except (PinLaterError, TimeoutError) as error:
            _log.debug("queue %s: %d jobs can't be given back yet: %s", queue, len(part), error)
            self._unsent.extend(part)
