"""Group commit: items that arrive while one call is under way go into the next.

No timers: an idle lane starts a call at once, a busy one fills the next batch meanwhile, so batches grow with the load and no latency is
added when there is none. The next call begins before the answers of the last are distributed, so that the store works while they are
written. A lane never silently drops an item: it is answered with its result, with the error of its call, or refused on arrival when too
much waits.

A call that takes too long can be given up from outside (`give_up`): its callers get an error, the lane continues, and a later answer to
the call is orphaned. A lane that is replaced passes on items that haven't begun, and all later ones (`hand_over`).

Weakness: one slow call delays everything behind it in the same lane, by design.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from pinlater.domain.errors import Draining, OutcomeUnknown, PinLaterError
from pinlater.server.sharding.joined import NotBegun
from pinlater.server.sharding.lane_queue import Item, LaneEntry, LaneQueue, Result

logger = logging.getLogger(__name__)


class Lane(LaneQueue[Item, Result]):
    """Joins single items into batches for `execute`, one batch under way at a time.

    `execute` answers in order, with a `PinLaterError` value for an item that can't be done and `NOT_BEGUN` for one that is to be in the
    next call; at least one item of each call must be answered otherwise.
    `reads_on`: when a call ends, input that has arrived meanwhile is read first, so that it fills the next call. For further options see
    `LaneQueue`.
    """

    def __init__(
        self,
        name: str,
        execute: Callable[[list[Item]], Awaitable[Sequence[Result | PinLaterError | NotBegun]]],
        *,
        reads_on: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(name, **options)
        self._execute = execute
        self._reads_on = reads_on
        self._task: asyncio.Task[None] | None = None
        self._late: set[asyncio.Task[None]] = set()  # with a call that was given up

    @property
    def has_late_calls(self) -> bool:
        return bool(self._late)

    async def close(self) -> None:
        """Refuses new items and finishes the present ones, except for a call that was given up."""
        self._closed = True
        while self._task is not None:
            await asyncio.wait([self._task])

    async def abandon(self, error: PinLaterError) -> None:
        await super().abandon(error)
        for task in self._late:
            task.cancel()
        if self._late:
            await asyncio.wait(self._late, timeout=1)

    def give_up(self, error: PinLaterError, *, cancel_after_s: float = 60.0) -> bool:
        """Answers the callers of the call under way with `error` and continues without it. Returns False if there is none.

        The call itself may still succeed within its limit; then it is cancelled.
        """
        batch = self._under_way
        if batch is None or self._task is None:
            return False
        self._under_way = None
        self.outcome_unknown = True
        self.busy_s += self._monotonic() - self._began_at
        self._fail(batch, error)
        loop, late = asyncio.get_running_loop(), self._task
        self._late.add(late)
        late.add_done_callback(self._late.discard)
        cancelling = loop.call_later(cancel_after_s, late.cancel)
        late.add_done_callback(lambda _: cancelling.cancel())
        self._task = loop.create_task(self._run(), name=f"lane {self.name}") if self._waiting else None
        return True

    def _start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name=f"lane {self.name}")

    async def _run(self) -> None:
        me = asyncio.current_task()
        try:
            while self._waiting and self._task is me:
                batch = self._next_batch()
                if batch:
                    await self._execute_batch(batch)
        finally:
            if self._task is me:
                self._task = None

    async def _execute_batch(self, batch: list[LaneEntry[Item, Result]]) -> None:
        items = self._begin(batch)
        try:
            results = await self._execute(items)
        except PinLaterError as error:
            if self._ended(batch, error):
                self.outcome_unknown = self.outcome_unknown or isinstance(error, OutcomeUnknown)
                self._fail(batch, error)
        except Exception as error:  # noqa: BLE001 a bug: it must reach its own caller and no other
            if self._ended(batch, None):
                await self._execute_one_by_one(batch, error)
        except BaseException:
            if self._ended(batch, None):
                self._fail(batch, Draining())
            raise
        else:
            try:
                if self._reads_on:
                    await asyncio.sleep(0)  # what has already arrived is read in this turn, and rides in the next call
            finally:
                if self._ended(batch, None):
                    self.outcome_unknown = False
                    self._answer(batch, results)
                else:
                    self._orphan(batch, results)

    async def _execute_one_by_one(self, batch: list[LaneEntry[Item, Result]], error: Exception) -> None:
        """A batch that fails because of a bug is repeated item by item, so that a bad item harms only itself."""
        logger.error("lane %s: a call failed unexpectedly", self.name, exc_info=error)
        if len(batch) == 1:
            self._fail(batch, error)
            return
        for index, entry in enumerate(batch):
            if self._task is not asyncio.current_task():  # given up meanwhile; the others have not begun
                self._waiting.extendleft(reversed(batch[index:]))
                if self._task is None:
                    self._task = asyncio.get_running_loop().create_task(self._run(), name=f"lane {self.name}")
                return
            await self._execute_batch([entry])

    def _orphan(
        self,
        batch: list[LaneEntry[Item, Result]],
        results: Sequence[Result | PinLaterError | NotBegun],
    ) -> None:
        """Handles the answer of a call that was given up: no caller waits for it."""
        if self._orphaned is not None:
            for (item, _, _), result in zip(batch, results, strict=True):
                if not isinstance(result, PinLaterError | NotBegun):
                    self._orphaned(item, result)
