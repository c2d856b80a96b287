"""How many jobs a consumer claims and when it claims again.

The plain functions decide; `Pacing` and its implementations act. A worker claims about 50 ms of work ahead, which keeps its slots busy
during a claim's round trip; a longer look-ahead would hold jobs that other workers could run.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from typing import Protocol

from pinlater.client.errors import PinLaterError, QueueNotFound, ServerUnreachable, TokenRequired
from pinlater.client.values import Dequeued
from pinlater.worker._consumer.outage import Outage
from pinlater.worker._enqueueing.server_access import WHERE_FROM
from pinlater.worker.settings import WorkerSettings, backoff_ms

_log = logging.getLogger("pinlater.worker")
LOOK_AHEAD_MS = 50.0
_SMOOTHING = 0.1


def smoothed_ms(mean_ms: float | None, sample_ms: float) -> float:
    """A moving mean; the first sample starts it."""
    return sample_ms if mean_ms is None else mean_ms + _SMOOTHING * (sample_ms - mean_ms)


def prefetch_count(mean_ms: float | None, concurrency: int, prefetch_max: int) -> int:
    """How many jobs to claim beyond the free slots. 0 if jobs take longer than the look-ahead, or if no job has ended yet."""
    if mean_ms is None or mean_ms >= LOOK_AHEAD_MS:
        return 0
    return min(prefetch_max, int(concurrency * LOOK_AHEAD_MS / max(mean_ms, 0.01)))


def claim_limit(held: int, concurrency: int, prefetch: int) -> int:
    """How many jobs to claim now; 0 while more than half of the prefetched jobs are waiting, so that claims stay batches."""
    limit = concurrency + prefetch - held
    return limit if limit > prefetch // 2 else 0


class Pacing(Protocol):
    """Decides when a consumer claims again: each method returns when it may."""

    def claiming(self) -> None:
        """A claim starts."""
        ...

    async def answered(self, dequeued: Dequeued, took_s: float) -> None:
        """A claim was answered."""
        ...

    async def failed(self, error: PinLaterError) -> None:
        """A claim failed."""
        ...


class PollingPace:
    """Claims until the worker stops, with a backoff after errors and after empty answers that come early."""

    def __init__(self, queue: str, settings: WorkerSettings, stop: asyncio.Event, outage: Outage) -> None:
        self._queue = queue
        self._settings = settings
        self._stop = stop
        self._outage = outage
        self._failures = 0
        self._said = False  # that claims of this queue fail, and not those of all
        self._missing = False  # the queue does not exist
        self._early_answers = 0

    def claiming(self) -> None: ...

    async def answered(self, dequeued: Dequeued, took_s: float) -> None:
        """A draining server answers early, and an original server always does."""
        self._outage.ends()
        if self._said:
            _log.info("queue %s: %s", self._queue, "it exists now" if self._missing else "the server answers again")
        self._failures, self._said = 0, False
        if dequeued.jobs or took_s * 2000 >= self._settings.wait_ms > 0:
            self._early_answers = 0
            return
        self._early_answers += 1
        await asyncio.sleep(self._backoff_s(self._early_answers))

    async def failed(self, error: PinLaterError) -> None:
        self._failures += 1
        self._missing = isinstance(error, QueueNotFound)
        if isinstance(error, ServerUnreachable):
            self._outage.goes_on(error)
            self._said = False
        else:
            self._refused(error)
        delay_s = max(self._backoff_s(self._failures), (error.retry_after_ms or 0) / 1000)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._stop.wait()

    def _refused(self, error: PinLaterError) -> None:
        """The claim failed although a server was reached: said once until a claim is answered."""
        if error.code is not None:
            self._outage.ends()
        if not self._said:
            self._said = True
            _log.warning("queue %s: can't claim, retrying: %s%s", self._queue, error, self._hint(error))

    def _hint(self, error: PinLaterError) -> str:
        """What can be done about it; '' if the error's text says enough."""
        if isinstance(error, TokenRequired):
            return f". {WHERE_FROM}"
        if not isinstance(error, QueueNotFound):
            return ""
        return (
            f"; create it: `pinlater queue create {self._queue}`, or start the worker with --create-queues"
            " (in Python: worker.create_queues(), or the setting `create_queues`)"
        )

    def _backoff_s(self, failures: int) -> float:
        return backoff_ms(self._settings, failures, random.random()) / 1000  # noqa: S311 - spreads load, guards nothing
