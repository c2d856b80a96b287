"""Group commit: whatever arrives while one call is under way rides in the next.

No timers: an idle lane starts a call at once, a busy one fills the next batch meanwhile, so batches grow with the load and nothing
is added to the latency when there is none. A lane never drops an item in silence: it is answered with its result, with the error of
its call, or refused at the door when too much waits.

Weakness: one slow call holds up everything behind it in the same lane; that is what a lane is.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from pinlater.domain.errors import Draining, PinLaterError, TooManyWaiting

Item = TypeVar("Item")
Result = TypeVar("Result")

logger = logging.getLogger(__name__)


class Lane(Generic[Item, Result]):
    """Joins single items into batches for `execute`, one batch under way at a time.

    `execute` answers in order, with a `PinLaterError` value for an item that can't be done. `orphaned` is told of results whose
    caller has gone away meanwhile. `weigh` says how much an item counts against `batch_max` and `waiting_max` (default: one).
    """

    def __init__(
        self,
        name: str,
        execute: Callable[[list[Item]], Awaitable[Sequence[Result | PinLaterError]]],
        *,
        batch_max: int = 5_000,
        waiting_max: int = 200_000,
        weigh: Callable[[Item], int] | None = None,
        orphaned: Callable[[Item, Result], None] | None = None,
    ) -> None:
        self.name = name
        self._execute = execute
        self._batch_max = batch_max
        self._waiting_max = waiting_max
        self._weigh = weigh
        self._orphaned = orphaned
        self._waiting: deque[tuple[Item, asyncio.Future[Result], int]] = deque()
        self._weight = 0
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self.calls = 0
        self.items = 0

    @property
    def length(self) -> int:
        """How much waits or runs now, by weight."""
        return self._weight

    def submit(self, item: Item) -> asyncio.Future[Result]:
        """The future of this item's result. Raises `TooManyWaiting` at the bound, `Draining` once closed."""
        weight = 1 if self._weigh is None else self._weigh(item)
        if self._weight + weight > self._waiting_max and self._weight:
            raise TooManyWaiting(f"{self._weight} jobs wait in the {self.name} lane already", retry_after_ms=100)
        if self._closed:
            raise Draining
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self._waiting.append((item, future, weight))
        self._weight += weight
        if self._task is None:
            self._task = loop.create_task(self._run(), name=f"lane {self.name}")
        return future

    async def close(self) -> None:
        """Refuses what comes from now on and finishes what is there."""
        self._closed = True
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch = self._next_batch()
                if batch:
                    await self._carry_out(batch)
        finally:
            self._task = None

    def _next_batch(self) -> list[tuple[Item, asyncio.Future[Result], int]]:
        batch: list[tuple[Item, asyncio.Future[Result], int]] = []
        room = self._batch_max
        waiting = self._waiting
        while waiting and (room >= waiting[0][2] or not batch):
            entry = waiting.popleft()
            if entry[1].done():  # cancelled before anything happened: as if never asked
                self._weight -= entry[2]
                continue
            room -= entry[2]
            batch.append(entry)
        return batch

    async def _carry_out(self, batch: list[tuple[Item, asyncio.Future[Result], int]]) -> None:
        self.calls += 1
        self.items += len(batch)
        try:
            results = await self._execute([item for item, _, _ in batch])
        except PinLaterError as error:
            self._fail(batch, error)
        except Exception as error:  # noqa: BLE001 a bug: it must reach its own caller and no other
            await self._carry_out_alone(batch, error)
        except BaseException:
            self._fail(batch, Draining())
            raise
        else:
            self._answer(batch, results)

    async def _carry_out_alone(self, batch: list[tuple[Item, asyncio.Future[Result], int]], error: Exception) -> None:
        """A batch that fails by a bug is run item by item, so that a poisonous one harms only itself."""
        logger.error("lane %s: a call failed unexpectedly", self.name, exc_info=error)
        if len(batch) == 1:
            self._fail(batch, error)
            return
        for entry in batch:
            await self._carry_out([entry])

    def _answer(
        self, batch: list[tuple[Item, asyncio.Future[Result], int]], results: Sequence[Result | PinLaterError]
    ) -> None:
        for (item, future, weight), result in zip(batch, results, strict=True):
            self._weight -= weight
            if isinstance(result, PinLaterError):
                if not future.done():
                    future.set_exception(result)
            elif not future.done():
                future.set_result(result)
            elif self._orphaned is not None:
                self._orphaned(item, result)

    def _fail(self, batch: list[tuple[Item, asyncio.Future[Result], int]], error: Exception) -> None:
        for _, future, weight in batch:
            self._weight -= weight
            if not future.done():
                future.set_exception(error)
