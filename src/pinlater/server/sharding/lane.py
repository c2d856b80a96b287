"""Group commit: items that arrive while one call is under way go into the next.

No timers: an idle lane starts a call at once, a busy one fills the next batch meanwhile, so batches grow with the load and nothing
is added to the latency when there is none. The next call begins before the answers of the last are given out, so that the store works
while they are written. A lane never drops an item in silence: it is answered with its result, with the error of
its call, or refused at the door when too much waits.

A call that takes too long can be given up from outside (`give_up`): its callers are told so, the lane goes on, and what the call
brings after all is orphaned. A lane that is replaced hands over what hasn't begun, and whatever still comes (`hand_over`).

Weakness: one slow call holds up everything behind it in the same lane; that is what a lane is.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from pinlater.domain.errors import Draining, OutcomeUnknown, PinLaterError, TooManyWaiting

Item = TypeVar("Item")
Result = TypeVar("Result")
ResultIn = TypeVar("ResultIn", contravariant=True)

logger = logging.getLogger(__name__)


class NotBegun(Enum):
    """The answer of `execute` for an item that did not fit into this call: the item goes first into the next one."""

    NOT_BEGUN = "not begun"


NOT_BEGUN: Final = NotBegun.NOT_BEGUN


class Asker(Protocol[ResultIn]):
    """What takes the result of an item: a future, or a place in the answer to a call of another server."""

    def done(self) -> bool:
        """Whether it has its result, or waits no longer."""

    def set_result(self, result: ResultIn, /) -> None: ...

    def set_exception(self, error: BaseException, /) -> None: ...


# An item, what takes its result, and its weight.
_Entry: TypeAlias = tuple[Item, Asker[Result], int]


class Lane(Generic[Item, Result]):
    """Joins single items into batches for `execute`, one batch under way at a time.

    `execute` answers in order, with a `PinLaterError` value for an item that can't be done and `NOT_BEGUN` for one that is to be in the
    next call; at least one item of each call must be answered otherwise. `orphaned` is told of results whose
    caller has gone away meanwhile. `weigh` says how much an item counts against `batch_max` and `waiting_max` (default: one).
    `observe` is told how each call ended: None, or the error of all of it. `monotonic` (seconds) measures calls.
    `whole_up_to`: up to this many waiting items go into one call; of more it takes half, so that the store works on some while the
    answers to others go out (default: all of them).
    `reads_on`: at a call's end what has arrived meanwhile is read first. It fills the next call if the store works elsewhere; if it
    works in this process it only costs a turn.
    """

    def __init__(
        self,
        name: str,
        execute: Callable[[list[Item]], Awaitable[Sequence[Result | PinLaterError | NotBegun]]],
        *,
        batch_max: int = 5_000,
        whole_up_to: int | None = None,
        waiting_max: int = 200_000,
        weigh: Callable[[Item], int] | None = None,
        orphaned: Callable[[Item, Result], None] | None = None,
        observe: Callable[[PinLaterError | None], None] | None = None,
        monotonic: Callable[[], float] = lambda: 0.0,
        reads_on: bool = False,
    ) -> None:
        self.name = name
        self._execute = execute
        self._batch_max = batch_max
        self._whole_up_to = sys.maxsize if whole_up_to is None else whole_up_to
        self._waiting_max = waiting_max
        self._weigh = weigh
        self._orphaned = orphaned
        self._observe = observe
        self._monotonic = monotonic
        self._reads_on = reads_on
        self._waiting: deque[_Entry[Item, Result]] = deque()
        self._under_way: list[_Entry[Item, Result]] | None = None
        self._began_at = 0.0
        self._weight = 0
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # kept: asking for it costs a system call
        self._late: set[asyncio.Task[None]] = set()  # with a call that was given up
        self._closed = False
        self._successor: Lane[Item, Result] | None = None
        self.outcome_unknown = False
        """Whether a call may be carried out yet although it has ended: its outcome is unknown, or it was given up. A store ends what it
        has of a writer's call before it carries out the writer's next one, so that after a call that ends well no outcome is unknown."""
        self.calls = 0
        self.items = 0
        self.busy_s = 0.0

    @property
    def length(self) -> int:
        """How much waits or runs now, by weight."""
        return self._weight

    @property
    def waiting(self) -> int:
        """How many items wait for the next call."""
        return len(self._waiting)

    @property
    def running(self) -> int | None:
        """How many items are in the call under way; None if there is none."""
        return None if self._under_way is None else len(self._under_way)

    @property
    def rank(self) -> int:
        """How well one more item would ride, the least best: with others at once, alone at once, with others later, alone later."""
        return (0 if self._under_way is None else 2) + (0 if self._waiting else 1)

    def busy_for(self) -> float:
        """For how many seconds the call under way has been; 0.0 if there is none."""
        return 0.0 if self._under_way is None else self._monotonic() - self._began_at

    @property
    def has_late_calls(self) -> bool:
        """Whether a call that was given up is still under way, and may do yet what was asked of it."""
        return bool(self._late)

    def forgive(self, seconds: float) -> None:
        """Moves the start of the call under way to later, by that much."""
        self._began_at += seconds

    def submit(self, item: Item) -> asyncio.Future[Result]:
        """The future of this item's result. Raises as `submit_for`."""
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self.submit_for(item, future)
        return future

    def submit_for(self, item: Item, asker: Asker[Result]) -> None:
        """Takes an item whose result goes to `asker`. Raises `TooManyWaiting` at the bound, `Draining` once closed."""
        weight = 1 if self._weigh is None else self._weigh(item)
        if self._weight + weight > self._waiting_max and self._weight:
            raise TooManyWaiting(f"{self._weight} jobs wait in the {self.name} lane already", retry_after_ms=100)
        if self._closed:
            if self._successor is not None:
                self._successor.submit_for(item, asker)
                return
            raise Draining
        self._take_over(item, asker, weight)

    # --- ends -------------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Refuses what comes from now on and finishes what is there, but not what was given up."""
        self._closed = True
        while self._task is not None:
            await asyncio.wait([self._task])

    async def abandon(self, error: PinLaterError) -> None:
        """Ends what `close` would wait for: each caller gets `error`, and calls under way are cancelled."""
        self._closed = True
        self.fail_waiting(error)
        self.give_up(error)
        for task in self._late:
            task.cancel()
        if self._late:
            await asyncio.wait(self._late, timeout=1)

    def give_up(self, error: PinLaterError, *, cancel_after_s: float = 60.0) -> bool:
        """Answers the callers of the call under way with `error` and goes on without it; False if there is none.

        The call itself may still end well for so long; then it is cancelled.
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

    def fail_waiting(self, error: PinLaterError) -> int:
        """Answers calls that haven't begun with `error`; returns how many. Nothing of theirs has happened."""
        waiting = list(self._waiting)
        self._waiting.clear()
        self._fail(waiting, error)
        return len(waiting)

    def hand_over(self, successor: Lane[Item, Result]) -> None:
        """Sends all further items and all waiting ones to `successor`; the call under way completes in this lane."""
        self._closed = True
        self._successor = successor
        waiting = list(self._waiting)
        self._waiting.clear()
        for item, asker, weight in waiting:
            self._weight -= weight
            if not asker.done():
                successor._take_over(item, asker, weight)

    def _take_over(self, item: Item, asker: Asker[Result], weight: int) -> None:
        self._waiting.append((item, asker, weight))
        self._weight += weight
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name=f"lane {self.name}")

    # --- calls ------------------------------------------------------------------------------------------------------------

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

    def _next_batch(self) -> list[_Entry[Item, Result]]:
        batch: list[_Entry[Item, Result]] = []
        left = self._batch_max
        waiting = self._waiting
        most = max(self._whole_up_to, (len(waiting) + 1) // 2)
        while waiting and len(batch) < most:
            entry = waiting[0]
            _, asker, weight = entry
            if weight > left and batch:
                break
            waiting.popleft()
            if asker.done():  # cancelled before anything happened: as if never asked
                self._weight -= weight
                continue
            left -= weight
            batch.append(entry)
        return batch

    async def _execute_batch(self, batch: list[_Entry[Item, Result]]) -> None:
        self.calls += 1
        self.items += len(batch)
        self._under_way = batch
        self._began_at = self._monotonic()
        try:
            results = await self._execute([item for item, _, _ in batch])
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
                    await asyncio.sleep(0)  # what has arrived already is read in this turn, and rides in the next call
            finally:
                if self._ended(batch, None):
                    self.outcome_unknown = False
                    self._answer(batch, results)
                else:
                    self._orphan(batch, results)

    def _ended(self, batch: list[_Entry[Item, Result]], error: PinLaterError | None) -> bool:
        """Whether the call's callers still wait for it: False if it was given up."""
        if self._under_way is not batch:
            return False
        self._under_way = None
        self.busy_s += self._monotonic() - self._began_at
        if self._observe is not None:
            self._observe(error)
        return True

    async def _execute_one_by_one(self, batch: list[_Entry[Item, Result]], error: Exception) -> None:
        """A batch that fails by a bug is run item by item, so that a poisonous one harms only itself."""
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

    def _answer(
        self,
        batch: list[_Entry[Item, Result]],
        results: Sequence[Result | PinLaterError | NotBegun],
    ) -> None:
        not_begun = []
        for entry, result in zip(batch, results, strict=True):
            if result is NOT_BEGUN:
                not_begun.append(entry)
                continue
            item, asker, weight = entry
            self._weight -= weight
            if isinstance(result, PinLaterError):
                if not asker.done():
                    asker.set_exception(result)
            elif not asker.done():
                asker.set_result(result)
            elif self._orphaned is not None:
                self._orphaned(item, result)
        if not_begun:
            self._put_back(not_begun)

    def _put_back(self, entries: list[_Entry[Item, Result]]) -> None:
        """They go first into the next call."""
        self._waiting.extendleft(reversed(entries))
        if self._successor is not None:
            self.hand_over(self._successor)

    def _orphan(
        self,
        batch: list[_Entry[Item, Result]],
        results: Sequence[Result | PinLaterError | NotBegun],
    ) -> None:
        """The answer of a call that was given up: no caller waits for it any more."""
        if self._orphaned is not None:
            for (item, _, _), result in zip(batch, results, strict=True):
                if not isinstance(result, PinLaterError | NotBegun):
                    self._orphaned(item, result)

    def _fail(self, batch: Sequence[_Entry[Item, Result]], error: Exception) -> None:
        for _, asker, weight in batch:
            self._weight -= weight
            if not asker.done():
                asker.set_exception(error)
