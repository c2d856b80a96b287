"""Calls of one kind for one shard, which another server owns: what is submitted in one turn of the loop is one call there.

A lane of the shard itself waits for its call to end before it begins the next (`sharding.lane`). This one does not wait: the owner joins
what several servers send.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from pinlater.domain.errors import PinLaterError, ShardConnectionFailed, TooManyWaiting
from pinlater.server.cluster.forwarding.messages import CallKind
from pinlater.server.sharding.lane import Asker, Lane

Item = TypeVar("Item")
Result = TypeVar("Result")

_UNDER_WAY_MAX = 200_000


class NotSent(ShardConnectionFailed):
    """The call was not sent to the server that owns the queue; nothing of it was done. To a client it is a shard that is unreachable."""


class Call(Generic[Item, Result]):
    """One part of a frame: the items of many callers."""

    __slots__ = ("callers", "items", "lane", "left", "sent_s", "size_bytes")

    def __init__(self, lane: ForwardLane[Item, Result]) -> None:
        self.lane = lane
        self.items: list[Any] = []
        self.callers: list[tuple[Item, int, int, Asker[Result]]] = []  # with their places among the items
        self.size_bytes = 0
        self.sent_s = 0.0
        self.left: set[int] = set()  # places of callers of which the owner knows that they have gone

    def add(self, item: Item, items: Sequence[Any], asker: Asker[Result]) -> None:
        """`items`: what of `item` goes over the wire."""
        start = len(self.items)
        self.items += items
        self.callers.append((item, start, len(self.items), asker))

    def drop_cancelled(self) -> bool:
        """Leaves out what callers that have gone asked for; whether anything is left."""
        if any([asker.done() for *_, asker in self.callers]):  # noqa: C419 a list is quicker
            callers, items = self.callers, self.items
            self.callers, self.items = [], []
            for item, start, end, asker in callers:
                if asker.done():
                    self.lane.waiting -= 1
                else:
                    self.add(item, items[start:end], asker)
        return bool(self.callers)

    def newly_left(self) -> Sequence[int]:
        """The places of callers that have gone since the last time. A list is done for a caller that has gone, too: acks are to count."""
        if self.lane.takes_lists:
            return ()
        gone = [start for _, start, _, asker in self.callers if asker.done() and start not in self.left]
        self.left.update(gone)
        return gone

    def fail_unsendable(self, encode: Callable[[Sequence[Any]], object]) -> bool:
        """Fails, for their callers alone, the items that can't be encoded; whether anything is left."""
        callers, items = self.callers, self.items
        self.callers, self.items = [], []
        for item, start, end, asker in callers:
            try:
                encode(items[start:end])
            except Exception as error:  # noqa: BLE001 a bug: it must reach its own caller and no other
                self.lane.waiting -= 1
                asker.set_exception(error)
            else:
                self.add(item, items[start:end], asker)
        return bool(self.callers)

    def answer(self, answers: Sequence[Any]) -> None:
        """Gives each caller the answers to its items, errors among them as values."""
        lane = self.lane
        for item, start, end, asker in self.callers:
            result: Any = answers[start:end] if lane.takes_lists else answers[start]
            if isinstance(result, PinLaterError):
                if not asker.done():
                    asker.set_exception(result)
            elif not asker.done():
                asker.set_result(result)
            elif lane.orphaned is not None:
                lane.orphaned(item, result)

    def pass_owner(self, error: PinLaterError) -> None:
        """Sends the items to the shard itself, for each caller that still waits: the owner has refused the call and begun nothing of it.
        Without a lane of this server they fail with `error`."""
        own = self.lane.own()
        for item, *_, asker in self.callers:
            if asker.done():
                continue
            if own is None:
                asker.set_exception(error)
                continue
            try:
                own.submit_for(item, asker)
            except PinLaterError as refused:
                asker.set_exception(refused)

    def fail(self, error: PinLaterError) -> int:
        """Fails for every caller that still waits; for how many."""
        waiting = [asker for *_, asker in self.callers if not asker.done()]
        for asker in waiting:
            asker.set_exception(error)
        return len(waiting)


class Sender(Protocol):
    """The connection over which lanes send."""

    @property
    def usable(self) -> bool: ...

    def gather(self, call: Call[Any, Any]) -> None:
        """Sends the call at the end of this turn of the loop, with all that is added to it until then."""
        ...

    def monotonic(self) -> float: ...


class ForwardLane(Generic[Item, Result]):
    """`takes_lists`: its items are lists of items of the wire. `size_of`: bytes of bodies in an item. `orphaned`: as of a `Lane`. `own()`:
    this server's lane of the same kind to the shard, for calls that the owner refuses before it begins them; None while it can't use it."""

    def __init__(
        self,
        sender: Sender,
        kind: CallKind,
        shard: str,
        *,
        takes_lists: bool,
        size_of: Callable[[Item], int] | None = None,
        orphaned: Callable[[Item, Result], None] | None = None,
        own: Callable[[], Lane[Item, Result] | None] = lambda: None,
    ) -> None:
        self.kind = kind
        self.shard = shard
        self.takes_lists = takes_lists
        self.orphaned = orphaned
        self.own = own
        self._sender = sender
        self._size_of = size_of
        self._gathering: Call[Item, Result] | None = None
        self._under_way: OrderedDict[int, Call[Item, Result]] = OrderedDict()
        self.waiting = 0
        self._loop = asyncio.get_running_loop()
        self.calls = 0
        self.items = 0

    @property
    def rank(self) -> int:
        """Ranks as `Lane.rank` does: an item rides at once, with others or alone."""
        return 1 if self._gathering is None else 0

    def submit(self, item: Item) -> asyncio.Future[Result]:
        """The future of this item's result. Raises as `submit_for`."""
        future: asyncio.Future[Result] = self._loop.create_future()
        self.submit_for(item, future)
        return future

    def submit_for(self, item: Item, asker: Asker[Result]) -> None:
        """Takes an item whose result goes to `asker`. Raises `TooManyWaiting` at the bound, `NotSent`."""
        sender = self._sender
        if not sender.usable:
            raise NotSent("There is no connection to the server that owns the queue", retry_after_ms=100)
        if self.waiting >= _UNDER_WAY_MAX:
            raise TooManyWaiting(f"{self.waiting} requests wait for the owner of the queue", retry_after_ms=100)
        call = self._gathering
        if call is None:
            call = self._gathering = Call(self)
            sender.gather(call)
        self.waiting += 1
        call.add(item, item if self.takes_lists else (item,), asker)  # type: ignore[arg-type]
        if self._size_of is not None:
            call.size_bytes += self._size_of(item)

    def busy_for(self) -> float:
        """For how many seconds the oldest call under way has been; 0.0 where there is none."""
        for call in self._under_way.values():
            return self._sender.monotonic() - call.sent_s
        return 0.0

    # --- told by the connection ---------------------------------------------------------------------------------------------

    def gathered(self) -> None:
        """The turn is over: what comes now is another call."""
        self._gathering = None

    def sent(self, number: int, call: Call[Item, Result]) -> None:
        call.sent_s = self._sender.monotonic()
        self._under_way[number] = call
        self.calls += 1
        self.items += len(call.callers)

    def ended(self, number: int | None, call: Call[Item, Result]) -> None:
        """Answered, or failed, or never sent."""
        self.waiting -= len(call.callers)
        if number is not None:
            del self._under_way[number]
