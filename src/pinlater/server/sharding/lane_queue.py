"""The items that wait in a lane, and their answers."""

from __future__ import annotations

import asyncio
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from pinlater.domain.errors import Draining, PinLaterError, TooManyWaiting
from pinlater.server.sharding.joined import NOT_BEGUN, NotBegun

Item = TypeVar("Item")
Result = TypeVar("Result")
ResultIn = TypeVar("ResultIn", contravariant=True)


class Asker(Protocol[ResultIn]):
    """Receives the result of an item: a future, or a position in the answer to a call of another server."""

    def done(self) -> bool:
        """Returns whether it has its result, or no longer waits."""

    def set_result(self, result: ResultIn, /) -> None: ...

    def set_exception(self, error: BaseException, /) -> None: ...


# An item, the receiver of its result, and its weight.
LaneEntry: TypeAlias = tuple[Item, Asker[Result], int]


_ITEM: Callable[[LaneEntry[Any, Any]], Any] = itemgetter(0)


class LaneQueue(ABC, Generic[Item, Result]):
    """Items that wait for the next call, and those in the call under way.

    `orphaned`: called with results whose caller has gone meanwhile. `weigh`: returns how much an item counts against `batch_max` and
    `waiting_max` (default: one). `observe`: called when a call has ended: with None, or with the error of the whole call. `monotonic`
    (seconds) measures calls.
    `whole_up_to`: up to this many waiting items go into one call; of more it takes half, so that the store works on some while the
    answers to others are sent (default: all of them).
    """

    def __init__(
        self,
        name: str,
        *,
        batch_max: int = 5_000,
        whole_up_to: int | None = None,
        waiting_max: int = 200_000,
        weigh: Callable[[Item], int] | None = None,
        orphaned: Callable[[Item, Result], None] | None = None,
        observe: Callable[[PinLaterError | None], None] | None = None,
        monotonic: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.name = name
        self._batch_max = batch_max
        self._whole_up_to = sys.maxsize if whole_up_to is None else whole_up_to
        self._waiting_max = waiting_max
        self._weigh = weigh
        self._orphaned = orphaned
        self._observe = observe
        self._monotonic = monotonic
        self._waiting: deque[LaneEntry[Item, Result]] = deque()
        self._under_way: list[LaneEntry[Item, Result]] | None = None
        self._began_at = 0.0
        self._weight = 0
        self._loop: asyncio.AbstractEventLoop | None = None  # kept: reading it costs a system call
        self._closed = False
        self._successor: LaneQueue[Item, Result] | None = None
        self.outcome_unknown = False
        """Whether a call may still be executed although it has ended: its outcome is unknown, or it was given up. A store finishes
        earlier calls of a writer before it executes the writer's next one, so that after a call that ends well no outcome is unknown."""
        self.calls = 0
        self.items = 0
        self.busy_s = 0.0

    @abstractmethod
    def _start(self) -> None:
        """Executes the waiting items, unless a call is under way."""

    @abstractmethod
    async def close(self) -> None:
        """Refuses new items and finishes the present ones."""

    @property
    def length(self) -> int:
        """The weight of the items that wait or run now."""
        return self._weight

    @property
    def waiting(self) -> int:
        """How many items wait for the next call."""
        return len(self._waiting)

    @property
    def running(self) -> int | None:
        """How many items are in the call under way, or None if there is none."""
        return None if self._under_way is None else len(self._under_way)

    @property
    def rank(self) -> int:
        """Returns the placement preference for one more item, lower is better: with others at once, alone at once, with others later,
        alone later.
        """
        return (0 if self._under_way is None else 2) + (0 if self._waiting else 1)

    def busy_for(self) -> float:
        """Returns for how many seconds the present call has been under way; 0.0 if there is none."""
        return 0.0 if self._under_way is None else self._monotonic() - self._began_at

    def forgive(self, seconds: float) -> None:
        """Moves the start of the call under way to later, by that much."""
        self._began_at += seconds

    def submit(self, item: Item, asker: Asker[Result] | None = None) -> asyncio.Future[Result]:
        """Takes an item. Its result goes to `asker`; without one, to a future. Returns the one or the other.

        Raises `TooManyWaiting` at the bound, `Draining` once closed.
        """
        weight = 1 if self._weigh is None else self._weigh(item)
        if self._weight + weight > self._waiting_max and self._weight:
            raise TooManyWaiting(f"{self._weight} jobs wait in the {self.name} lane already", retry_after_ms=100)
        if self._closed:
            if self._successor is not None:
                return self._successor.submit(item, asker)
            raise Draining
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        answer: asyncio.Future[Result] = self._loop.create_future() if asker is None else asker  # type: ignore[assignment]
        self._waiting.append((item, answer, weight))
        self._weight += weight
        self._start()
        return answer

    @property
    def has_late_calls(self) -> bool:
        """Whether a call that was given up is still under way, and may still take effect."""
        return False

    # --- ends -------------------------------------------------------------------------------------------------------------

    def fail_waiting(self, error: PinLaterError) -> int:
        """Answers items that haven't begun with `error`; returns how many. None of them has had any effect."""
        waiting = list(self._waiting)
        self._waiting.clear()
        self._fail(waiting, error)
        return len(waiting)

    def give_up(self, error: PinLaterError) -> bool:
        """Answers the callers of the call under way with `error` and continues without it. Returns False if there is none, or if it runs
        in this process, where no call is given up.
        """
        del error
        return False

    async def abandon(self, error: PinLaterError) -> None:
        """Ends what `close` would wait for: each caller gets `error`, and calls under way are cancelled."""
        self._closed = True
        self.fail_waiting(error)
        self.give_up(error)

    def hand_over(self, successor: LaneQueue[Item, Result]) -> None:
        """Sends all further items and all waiting ones to `successor`; the call under way completes in this lane."""
        self._closed = True
        self._successor = successor
        waiting = list(self._waiting)
        self._waiting.clear()
        self._weight -= sum([weight for _, _, weight in waiting])
        successor._take_over([entry for entry in waiting if not entry[1].done()])

    def _take_over(self, entries: list[LaneEntry[Item, Result]]) -> None:
        if entries:
            self._waiting += entries
            self._weight += sum([weight for _, _, weight in entries])
            self._start()

    # --- calls ------------------------------------------------------------------------------------------------------------

    def _begin(self, batch: list[LaneEntry[Item, Result]]) -> list[Item]:
        """Counts a call that begins. Returns its items."""
        self.calls += 1
        self.items += len(batch)
        self._under_way = batch
        self._began_at = self._monotonic()
        return list(map(_ITEM, batch))

    def _next_batch(self) -> list[LaneEntry[Item, Result]]:
        batch: list[LaneEntry[Item, Result]] = []
        left = self._batch_max
        waiting = self._waiting
        most = max(self._whole_up_to, (len(waiting) + 1) // 2)
        while waiting and len(batch) < most:
            entry = waiting[0]
            _, asker, weight = entry
            if weight > left and batch:
                break
            waiting.popleft()
            if asker.done():  # cancelled before anything happened: as if never requested
                self._weight -= weight
                continue
            left -= weight
            batch.append(entry)
        return batch

    def _ended(self, batch: list[LaneEntry[Item, Result]], error: PinLaterError | None) -> bool:
        """Returns whether the call's callers still wait for it: False if it was given up."""
        if self._under_way is not batch:
            return False
        self._under_way = None
        self.busy_s += self._monotonic() - self._began_at
        if self._observe is not None:
            self._observe(error)
        return True

    def _answer(
        self,
        batch: list[LaneEntry[Item, Result]],
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

    def _put_back(self, entries: list[LaneEntry[Item, Result]]) -> None:
        """Puts these items first into the next call."""
        self._waiting.extendleft(reversed(entries))
        if self._successor is not None:
            self.hand_over(self._successor)

    def _fail(self, batch: Sequence[LaneEntry[Item, Result]], error: BaseException) -> None:
        for _, asker, weight in batch:
            self._weight -= weight
            if not asker.done():
                asker.set_exception(error)
