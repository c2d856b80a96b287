"""Sends heartbeats, tells which claims have ended, and introduces this process to the servers, for their lists of workers.

Each claim's answer counts separately: an unreachable shard hides no lost claim on another. If a server without per-item errors refuses a
whole request because of one shard, each shard's heartbeats are sent separately.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import secrets
from collections.abc import Callable, Sequence
from os import getpid
from socket import gethostname

from pinlater.client.async_client import AsyncClient
from pinlater.client.errors import PinLaterError, ServerUnreachable, UnknownMethod
from pinlater.client.values import AckResult, Checkpoint, Claim, ClaimedJob, WorkerInfo, WorkingProcess
from pinlater.domain.clock import Clock
from pinlater.version import __version__
from pinlater.worker._outbox.heartbeat_log import log_apart
from pinlater.worker._outbox.leases import Lease, Leases, QueueShard, shard_of_job

_log = logging.getLogger("pinlater.worker")
CLAIMS_PER_REQUEST_MAX = 1_000
_TIMEOUT_MIN_S = 0.5
_INTRODUCED_EVERY_S = 10.0
_NUMBER_MAX = 2**31 - 1


def own_info(clock: Clock, concurrency: int) -> WorkerInfo:
    """Describes this process, which starts to work now."""
    return WorkerInfo("python", __version__, gethostname(), getpid(), concurrency, started_at_ms=clock.now_ms())


def new_number() -> int:
    """A number from the system's randomness: a forked process has the same common random numbers as its parent."""
    return 1 + secrets.randbelow(_NUMBER_MAX)


class Introduction:
    """Belongs to one run of a worker. The event loop and the heartbeat thread use it, each with topics of its own. `running`: jobs that run
    now."""

    def __init__(
        self, number: int, info: WorkerInfo, running: Callable[[], int], monotonic: Callable[[], float]
    ) -> None:
        self._brief = WorkingProcess(number)
        self._info = info
        self._running = running
        self._monotonic = monotonic
        self._next_s: dict[str, float] = {}

    def about(self, topic: str) -> WorkingProcess:
        """Makes what a request says: all of it with the first request of a topic, and again after ten seconds, since the request may go to
        another server, or may be lost."""
        now_s = self._monotonic()
        if now_s < self._next_s.get(topic, -math.inf):
            return self._brief
        self._next_s[topic] = now_s + _INTRODUCED_EVERY_S
        return self._brief._replace(info=self._info._replace(running=self._running()))


class Renewals:
    """Renews claims over one client. `changed` is called when heartbeats are due earlier than planned."""

    def __init__(self, leases: Leases, clock: Clock) -> None:
        self._leases = leases
        self._clock = clock
        self._failing: set[QueueShard] = set()  # where the latest heartbeat failed
        self._knows_heartbeats = True
        self.introduction: Introduction | None = None
        self.errors = 0

    @property
    def failing(self) -> bool:
        """Whether the latest heartbeat of any claim in hand failed."""
        return self._leases.is_any_on(self._failing)

    def requests(self, due: Sequence[Lease]) -> list[tuple[str, list[Lease]]]:
        """Leases as requests, each of one queue. Those of failing shards get requests of their own."""
        groups: dict[QueueShard, list[Lease]] = {}
        for lease in due:
            shard = shard_of_job(lease.job)
            groups.setdefault(shard if shard in self._failing else (lease.job.queue, ""), []).append(lease)
        return [
            (queue, leases[start : start + CLAIMS_PER_REQUEST_MAX])
            for (queue, _), leases in groups.items()
            for start in range(0, len(leases), CLAIMS_PER_REQUEST_MAX)
        ]

    async def renew(
        self, client: AsyncClient, queue: str, leases: Sequence[Lease], changed: Callable[[], None]
    ) -> None:
        """Sends one request, or one for each shard if that fails."""
        timeout_s = max(_TIMEOUT_MIN_S, self._leases.shortest_interval_s(leases))
        try:
            async with asyncio.timeout(timeout_s):  # leaves time to use another connection
                results = await self._send(client, queue, [lease.job for lease in leases])
        except (PinLaterError, TimeoutError) as error:
            parts = _by_shard(leases)
            if len(parts) > 1 and not isinstance(error, ServerUnreachable):
                self.errors += 1
                await asyncio.gather(*(self.renew(client, queue, part, changed) for part in parts))
                return
            self._note_failure(queue, leases, str(error) or f"no answer within {timeout_s:g} s")
        except Exception as error:  # noqa: BLE001 - logged as what it is: a fault of ours
            self.errors += 1
            log_apart(_log, logging.ERROR, "queue %s: heartbeat failed", queue, exc_info=error)
        else:
            leases = self._note_results(queue, leases, results)
            if not leases:
                return
        self._leases.retry_soon(leases)
        changed()

    async def _send(self, client: AsyncClient, queue: str, jobs: Sequence[ClaimedJob]) -> Sequence[AckResult]:
        """On a server without heartbeats a bare checkpoint renews a claim, and there are no results."""
        if self._knows_heartbeats:
            try:
                claims = [Claim(job.descriptor, job.token) for job in jobs]
                about = None if self.introduction is None else self.introduction.about(f"heartbeat {queue}")
                return await client.heartbeat(queue, claims, per_item_errors=True, process=about)
            except UnknownMethod:
                self._knows_heartbeats = False
        await client.checkpoint_plain(queue, [Checkpoint(job.descriptor, job.token) for job in jobs])
        return []

    def _note_results(self, queue: str, leases: Sequence[Lease], results: Sequence[AckResult]) -> Sequence[Lease]:
        """Drops lost claims; the leases whose heartbeats failed."""
        failed = [(lease, result.error) for lease, result in zip(leases, results, strict=False) if result.error]
        failed_leases = [lease for lease, _ in failed]
        if self._failing:
            self._note_recovery(leases, failed_leases)
        self._drop_lost(leases, results)
        if failed:
            self._note_failure(queue, failed_leases, str(failed[0][1]))
        return failed_leases

    def _drop_lost(self, leases: Sequence[Lease], results: Sequence[AckResult]) -> None:
        for lease, result in zip(leases, results, strict=False):
            if result.applied or result.error is not None:
                continue
            if self._leases.drop_lost(lease):  # else the job has ended meanwhile, and its claim with it
                with contextlib.suppress(RuntimeError):  # the worker's loop is closed
                    lease.lost(result)

    def _note_failure(self, queue: str, leases: Sequence[Lease], reason: str) -> None:
        shards = _shards(leases)
        level = logging.DEBUG if shards <= self._failing else logging.WARNING  # one warning for many retries
        self.errors += 1
        self._failing |= shards
        names = ", ".join(sorted(shard for _, shard in shards))
        log_apart(_log, level, "queue %s, shard %s: heartbeat failed, retrying: %s", queue, names, reason)

    def _note_recovery(self, leases: Sequence[Lease], failed: Sequence[Lease]) -> None:
        well = _shards(leases) - _shards(failed)
        if well & self._failing:
            log_apart(_log, logging.INFO, "heartbeats arrive again")
        self._failing -= well

    async def release(self, client: AsyncClient, queue: str, jobs: Sequence[ClaimedJob]) -> None:
        """Gives jobs back."""
        if self._knows_heartbeats and all(job.token for job in jobs):
            await client.release(queue, [Claim(job.descriptor, job.token) for job in jobs])
            return
        now_ms = self._clock.now_ms()
        items = [Checkpoint(job.descriptor, job.token, move_to_pending=True, run_after_ms=now_ms) for job in jobs]
        await client.checkpoint_plain(queue, items)


def _shards(leases: Sequence[Lease]) -> set[QueueShard]:
    return {shard_of_job(lease.job) for lease in leases}


def _by_shard(leases: Sequence[Lease]) -> list[list[Lease]]:
    parts: dict[QueueShard, list[Lease]] = {}
    for lease in leases:
        parts.setdefault(shard_of_job(lease.job), []).append(lease)
    return list(parts.values())
