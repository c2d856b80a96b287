"""The reports of one shard that could not be delivered at once, sent by themselves until the server has taken or refused each.

A shard out of reach thus holds up neither claims nor the reports of other shards. Bounded by the claims that the worker had in hand
there: while the shard is away no more come.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

from pinlater.client.errors import PinLaterError
from pinlater.worker._reports.ack_buffer import ACKS_PER_REQUEST_MAX
from pinlater.worker._reports.delivery import Delivery, Report, first_request, mark_sent

_log = logging.getLogger("pinlater.worker")


class RetryQueue:
    """`pause_s` says how long to wait after so many failures in a row."""

    def __init__(self, delivery: Delivery, shard: str, queue: str, pause_s: Callable[[int], float]) -> None:
        self._delivery = delivery
        self._pause_s = pause_s
        self._name = f"queue {queue}, shard {shard}"
        self._reports: deque[Report] = deque()
        self._failures = 0
        self._hint_s = 0.0  # how long the server asks to wait
        self._said = False  # that they can't be delivered

    def __len__(self) -> int:
        return len(self._reports)

    def add(self, reports: Sequence[Report]) -> None:
        """Keeps more of them."""
        self._reports.extend(reports)

    def pause_first(self) -> None:
        """The server itself did not answer: a try at once would most likely fail as well."""
        self._failures = max(1, self._failures)

    def hurry(self) -> None:
        """The next try is made at once."""
        self._failures, self._hint_s = 0, 0.0

    async def run(self) -> None:
        """Returns when nothing is left. Cancelled in the middle of a try it keeps what was sent."""
        while self._reports:
            if self._failures:
                await asyncio.sleep(max(self._pause_s(self._failures), self._hint_s))
            batch = first_request(list(islice(self._reports, ACKS_PER_REQUEST_MAX)))
            again = await self._try(batch)
            for _ in batch:
                self._reports.popleft()
            self._reports.extend(again)
            if again:
                self._failures += 1
                continue
            if self._said:
                _log.info("%s: reports arrive again", self._name)
            self._failures, self._hint_s, self._said = 0, 0.0, False

    async def _try(self, batch: list[Report]) -> list[Report]:
        """What has to be sent again."""
        try:
            again = await self._delivery.send(batch)
        except PinLaterError as error:
            self._say(batch, str(error))
            self._hint_s = (error.retry_after_ms or 0) / 1000
        except asyncio.CancelledError:
            mark_sent(batch)
            raise
        except Exception:  # noqa: BLE001 - logged as what it is: a fault of ours, which must not lose them
            _log.exception("%s: reports can't be sent", self._name)
        else:
            if again:
                self._say(again, "the server could not carry them out")
            return again
        mark_sent(batch)
        return batch

    def _say(self, reports: Sequence[Report], reason: str) -> None:
        level = logging.DEBUG if self._said else logging.WARNING  # once: it is tried again often
        self._said = True
        _log.log(level, "%s: %d reports can't be delivered, trying again: %s", self._name, len(reports), reason)
