"""The reports of one shard that could not be delivered at once: sent separately until the server has taken or refused each.

So an unreachable shard delays neither claims nor the reports of other shards. Bounded by the claims that the worker held on that shard:
an unreachable shard gives it no more.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

from pinlater.client.errors import PinLaterError
from pinlater.domain.wording import counted
from pinlater.worker._outbox.delivery import Delivery
from pinlater.worker._outbox.report import ACKS_PER_REQUEST_MAX, Reported, first_request, mark_maybe_applied

_log = logging.getLogger("pinlater.worker")


class RetryQueue:
    """`backoff_s` is how long to wait after that many consecutive failures."""

    def __init__(self, delivery: Delivery, shard: str, queue: str, backoff_s: Callable[[int], float]) -> None:
        self._delivery = delivery
        self._backoff_s = backoff_s
        self._name = f"queue {queue}, shard {shard}"
        self._reports: deque[Reported] = deque()
        self._failures = 0
        self._retry_after_s = 0.0  # as the server asks
        self._warned = False

    def __len__(self) -> int:
        return len(self._reports)

    def add(self, reports: Sequence[Reported]) -> None:
        """Adds more."""
        self._reports.extend(reports)

    def wait_first(self) -> None:
        """Waits before the first try: the server did not answer."""
        self._failures = max(1, self._failures)

    def retry_now(self) -> None:
        """The next try comes at once."""
        self._failures, self._retry_after_s = 0, 0.0

    async def run(self) -> None:
        """Returns when the queue is empty. Cancelled during a try, it keeps those reports."""
        while self._reports:
            if self._failures:
                await asyncio.sleep(max(self._backoff_s(self._failures), self._retry_after_s))
            batch = first_request(list(islice(self._reports, ACKS_PER_REQUEST_MAX)))
            again = await self._try(batch)
            for _ in batch:
                self._reports.popleft()
            self._reports.extend(again)
            if again:
                self._failures += 1
                continue
            if self._warned:
                _log.info("%s: reports arrive again", self._name)
            self._failures, self._retry_after_s, self._warned = 0, 0.0, False

    async def _try(self, batch: list[Reported]) -> list[Reported]:
        """The reports to send again."""
        try:
            again = await self._delivery.send(batch)
        except PinLaterError as error:
            self._warn(batch, str(error))
            self._retry_after_s = (error.retry_after_ms or 0) / 1000
        except asyncio.CancelledError:
            mark_maybe_applied(batch)
            raise
        except Exception:  # noqa: BLE001 - logged as what it is: a fault of ours, which must not lose them
            _log.exception("%s: reports can't be sent", self._name)
        else:
            if again:
                self._warn(again, "the server could not apply them")
            return again
        mark_maybe_applied(batch)
        return batch

    def _warn(self, reports: Sequence[Reported], reason: str) -> None:
        level = logging.DEBUG if self._warned else logging.WARNING  # one warning for many retries
        self._warned = True
        number = counted(len(reports), "report")
        _log.log(level, "%s: %s can't be delivered, retrying: %s", self._name, number, reason)
