"""When a consumer claims again after an answer or a failure. How many jobs, and which consumer first, is decided in `slots`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from typing import Protocol

from pinlater.client.errors import PinLaterError, QueueNotFound, ServerUnreachable, TokenRequired
from pinlater.client.values import Dequeued
from pinlater.domain.clock import Clock
from pinlater.domain.wording import span
from pinlater.worker._enqueueing.servers import WHERE_FROM
from pinlater.worker.settings import WorkerSettings, backoff_ms

_log = logging.getLogger("pinlater.worker")
_SAID_EVERY_S = 60.0


class Outage:
    """What the log says while a worker reaches no server: a line for all its queues, once a minute, and one when it reaches a server again.

    Belongs to one run of a worker, whose consumers tell it what they see.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_s: float | None = None  # monotonic; None while servers are reached
        self._said_at_s = 0.0

    def continues(self, error: ServerUnreachable) -> None:
        """No server was reached by a claim, which is made again. The text of the error names the servers."""
        now_s = self._clock.monotonic()
        if self._since_s is None:
            self._since_s = self._said_at_s = now_s
            _log.warning("can't claim, retrying: %s", error)
        elif now_s - self._said_at_s >= _SAID_EVERY_S:
            self._said_at_s = now_s
            _log.warning("no server reached for %s, retrying: %s", span(round((now_s - self._since_s) * 1000)), error)

    def ends(self) -> None:
        """A server answered. Does nothing if there was no outage."""
        if self._since_s is not None:
            length_ms = round((self._clock.monotonic() - self._since_s) * 1000)
            _log.info("a server answers again, after %s", span(length_ms))
            self._since_s = None


class Pacing(Protocol):
    """Decides when a consumer claims again: each method returns when it may."""

    def claiming(self) -> None:
        """A claim starts."""
        ...

    async def answered(self, dequeued: Dequeued, took_s: float, wait_ms: int | None) -> None:
        """A claim was answered. `wait_ms`: how long the server should have waited for jobs; None if another claim follows that waits."""
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

    async def answered(self, dequeued: Dequeued, took_s: float, wait_ms: int | None) -> None:
        """A draining server answers early, and an original server always does."""
        self._outage.ends()
        if self._said:
            _log.info("queue %s: %s", self._queue, "it exists now" if self._missing else "the server answers again")
        self._failures, self._said = 0, False
        if wait_ms is None:
            return
        if dequeued.jobs or took_s * 2000 >= wait_ms > 0:
            self._early_answers = 0
            return
        self._early_answers += 1
        await asyncio.sleep(self._backoff_s(self._early_answers))

    async def failed(self, error: PinLaterError) -> None:
        self._failures += 1
        self._missing = isinstance(error, QueueNotFound)
        if isinstance(error, ServerUnreachable):
            self._outage.continues(error)
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
        return f"; create it: `pinlater queue create {self._queue}`"

    def _backoff_s(self, failures: int) -> float:
        return backoff_ms(self._settings, failures, random.random()) / 1000  # noqa: S311 - spreads load, guards nothing
