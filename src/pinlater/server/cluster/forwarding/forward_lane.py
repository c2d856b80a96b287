"""Calls of one kind for one shard, which another server owns: what is submitted in one turn of the loop is one call there.

A lane of the shard itself waits for its call to end before it begins the next (`sharding.lane`). This one does not wait: the owner joins
the calls of several servers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Raw

from pinlater.domain.errors import OutcomeUnknown, PinLaterError, ShardConnectionFailed, TooManyWaiting
from pinlater.server.cluster.forwarding.messages import HEADS_SINCE_VERSION, SINGLE, TOO_LATE, CallKind, answers_of
from pinlater.server.link.messages import BadMessage, Failure, Part, PartAnswer, encoded, error_of
from pinlater.server.sharding.joined_claims import ClaimRequest
from pinlater.server.sharding.lane_queue import Asker, LaneQueue
from pinlater.server.storage.values import InsertRequest, have_keys

if TYPE_CHECKING:
    from pinlater.server.cluster.forwarding.peer_connection import PeerConnection

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")

_UNDER_WAY_MAX = 200_000


class NotSent(ShardConnectionFailed):
    """The call was not sent to the server that owns the queue, and nothing was done. To a client, this is an unreachable shard."""


class ForwardedCall(Generic[Item, Result]):
    """One call of a link (`link.asking.Call`): the items of many callers."""

    __slots__ = ("callers", "items", "lane", "left", "sent_s", "size_bytes")

    def __init__(self, lane: ForwardLane[Item, Result]) -> None:
        self.lane = lane
        self.items: list[Any] = []
        self.callers: list[tuple[Item, int, int, Asker[Result]]] = []  # with their places among the items
        self.size_bytes = 0
        self.sent_s = 0.0
        self.left: set[int] = set()  # positions of callers that the owner knows to have gone

    def add(self, item: Item, items: Sequence[Any], asker: Asker[Result]) -> None:
        """Adds an item. `items`: the parts of `item` that are sent."""
        start = len(self.items)
        self.items += items
        self.callers.append((item, start, len(self.items), asker))

    # --- called by the link ---------------------------------------------------------------------------------------------------

    def part(self, number: int) -> Part | None:
        """Sends the items of this turn of the loop; later items form another call. Drops the items of callers that have gone."""
        lane, sender = self.lane, self.lane.sender
        lane.gathering = None
        if any([asker.done() for *_, asker in self.callers]):  # noqa: C419 a list is quicker
            self._keep(lambda _, asker: not asker.done())
        try:
            items = sender.encode_items(self.items)
        except Exception:  # a bug: it must not take the other calls of this turn with it
            logger.exception("a forwarded request can't be encoded")
            self._keep(_encodes)
            items = sender.encode_items(self.items)
        if not self.callers:
            return None
        self.size_bytes = len(items)
        self.sent_s = sender.now_s
        lane.under_way[self] = None
        lane.calls += 1
        lane.items += len(self.callers)
        sender.traffic.count(lane.kind, len(self.items))
        return Part(number, lane.kind, lane.shard, Raw(items), sender.begin_by_ms, sender.now_ms)

    def _keep(self, wanted: Callable[[Sequence[Any], Asker[Result]], bool]) -> None:
        """Keeps the items of those callers for which `wanted(items, asker)` is true."""
        callers, items = self.callers, self.items
        self.callers, self.items = [], []
        for item, start, end, asker in callers:
            if wanted(items[start:end], asker):
                self.add(item, items[start:end], asker)
            else:
                self.lane.waiting -= 1

    def answered(self, answer: PartAnswer) -> None:
        lane = self.lane
        lane.ended(self)
        if answer.failure is not None:
            self._refused(answer.failure)
            return
        answers = answers_of(lane.kind, answer)
        if len(answers) != len(self.items):
            raise BadMessage(f"{len(answers)} answers to {len(self.items)} items")
        self.give(answers)

    def give(self, answers: Sequence[Any]) -> None:
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

    def _refused(self, failure: Failure) -> None:
        """Handles a refusal. A call that was late only by the owner's clock goes to the shard itself."""
        sender = self.lane.sender
        if failure.detail != TOO_LATE:
            self._fail(error_of(failure))
            return
        error = error_of(failure._replace(detail=ShardConnectionFailed.detail))
        if sender.monotonic() - self.sent_s >= sender.limit_s:
            self._fail(error)
            return
        logger.warning(
            "calls to a server go to the shards instead: it refuses them as too late, by a clock that is ahead of this one's",
            extra={"server": sender.address},
        )
        self._pass_owner(error)

    def _pass_owner(self, error: PinLaterError) -> None:
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
                own.submit(item, asker)
            except PinLaterError as refused:
                asker.set_exception(refused)

    def lost(self) -> None:
        self.lane.ended(self)
        self.lose(OutcomeUnknown("The connection to the server that owns the queue was lost before its answer came"))

    def lose(self, error: PinLaterError) -> None:
        """Fails the call for every caller that still waits, and counts the failure. A later answer to the call is orphaned."""
        self.lane.sender.traffic.count_lost(self._fail(error))

    def not_sent(self) -> None:
        self.lane.gathering = None
        self.lane.waiting -= len(self.callers)
        self._fail(NotSent("The connection to the server that owns the queue is lost", retry_after_ms=100))

    def _fail(self, error: PinLaterError) -> int:
        waiting = [asker for *_, asker in self.callers if not asker.done()]
        for asker in waiting:
            asker.set_exception(error)
        return len(waiting)

    def newly_left(self) -> Sequence[int]:
        """The positions of callers that have gone since the last time. A list of acks is executed even if its caller has gone: acks are to
        count."""
        if self.lane.takes_lists:
            return ()
        gone = [start for _, start, _, asker in self.callers if asker.done() and start not in self.left]
        self.left.update(gone)
        return gone


def _encodes(items: Sequence[Any], asker: Asker[Any]) -> bool:
    """Returns whether the items can be encoded. Otherwise, fails them."""
    try:
        encoded(items)
    except Exception as error:  # noqa: BLE001 a bug: it must reach its own caller and no other
        asker.set_exception(error)
        return False
    return True


class ForwardLane(Generic[Item, Result]):
    """`orphaned`: see `Lane`. `own()`: this server's lane of the same kind to the shard, for calls that the owner refuses before it
    begins them, plain enqueues while it is saturated, and claims up to a priority that an older server would take as claims without one;
    None while it can't use it."""

    def __init__(
        self,
        sender: PeerConnection,
        kind: CallKind,
        shard: str,
        *,
        orphaned: Callable[[Item, Result], None] | None = None,
        own: Callable[[], LaneQueue[Item, Result] | None] = lambda: None,
    ) -> None:
        self.kind = kind
        self.shard = shard
        self.takes_lists = kind not in SINGLE
        self.orphaned = orphaned
        self.own = own
        self.sender = sender
        self.gathering: ForwardedCall[Item, Result] | None = None
        self.under_way: dict[ForwardedCall[Item, Result], None] = {}  # oldest first
        self.waiting = 0
        self._loop = asyncio.get_running_loop()
        self.calls = 0
        self.items = 0

    @property
    def rank(self) -> int:
        """Uses the ranks of `Lane.rank`: an item rides at once, with others or alone."""
        return 1 if self.gathering is None else 0

    def submit(self, item: Item, asker: Asker[Result] | None = None) -> asyncio.Future[Result]:
        """Takes an item as `LaneQueue.submit` does. Raises `NotSent`, and `TooManyWaiting` at the bound."""
        sender = self.sender
        if self._passes_owner(item):
            own = self.own()
            if own is not None:
                return own.submit(item, asker)
        if not sender.usable:
            raise NotSent("There is no connection to the server that owns the queue", retry_after_ms=100)
        if self.waiting >= _UNDER_WAY_MAX:
            raise TooManyWaiting(f"{self.waiting} requests wait for the owner of the queue", retry_after_ms=100)
        call = self.gathering
        if call is None:
            call = self.gathering = ForwardedCall(self)
            sender.say(call)
        self.waiting += 1
        answer: asyncio.Future[Result] = self._loop.create_future() if asker is None else asker  # type: ignore[assignment]
        call.add(item, item if self.takes_lists else (item,), answer)  # type: ignore[arg-type]
        return answer

    def _passes_owner(self, item: Item) -> bool:
        sender = self.sender
        if isinstance(item, InsertRequest):
            return sender.is_saturated and not have_keys(item.jobs)
        is_bounded = isinstance(item, ClaimRequest) and item.through_priority is not None
        return is_bounded and sender.version < HEADS_SINCE_VERSION

    def busy_for(self) -> float:
        """Returns for how many seconds the oldest call under way has been; 0.0 where there is none."""
        for call in self.under_way:
            return self.sender.monotonic() - call.sent_s
        return 0.0

    def ended(self, call: ForwardedCall[Item, Result]) -> None:
        """The call that was sent is answered, or lost; both are possible if its answer can't be read."""
        if call in self.under_way:
            del self.under_way[call]
            self.waiting -= len(call.callers)
