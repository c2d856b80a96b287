"""Queues in which a claim has just found that nothing is due: the next claim there needs no call of Redis.

A server remembers this only for queues that it owns, and forgets it as soon as it changes a queue so that a job may be due, both before
and after the change. Jobs of other servers are found by a claim once a second. So this is a memory that makes polling an empty queue
cheap; the jobs of a claim always come from Redis.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from pinlater.domain.descriptor import I64_MAX
from pinlater.domain.errors import PinLaterError
from pinlater.server.storage.values import Claimed, ClaimOrder

# So long after a claim its result is trusted.
TRUSTED_S = 1.0
_QUEUES_MAX = 20_000


class _Found(NamedTuple):
    next_due_ms: int | None
    searched_s: float


class NothingDue:
    """By name of the queue. Times in milliseconds of the shard's clock but for `now_s`, which is monotonic, in seconds.

    `claims`: of one queue each, for any number of calls, that were answered without a call of Redis.
    """

    __slots__ = ("_found", "_searches", "claims")

    def __init__(self) -> None:
        self._found: dict[str, _Found] = {}
        # By queue, the newest claim under way, unless the queue has changed since it began.
        self._searches: dict[str, object] = {}
        self.claims = 0

    def answer(self, order: ClaimOrder, now_ms: int, now_s: float) -> Claimed | None:
        """What a claim would get: no jobs. None if Redis has to be asked."""
        found = self._found.get(order.queue)
        if found is None or not order.from_memory:
            return None
        until_ms = I64_MAX if found.next_due_ms is None else found.next_due_ms
        if now_s - found.searched_s >= TRUSTED_S or now_ms >= until_ms:
            del self._found[order.queue]
            return None
        self.claims += 1
        wanted = any([call.limit > 0 for call in order.calls])  # noqa: C419 a list is quicker
        return Claimed([[] for _ in order.calls], found.next_due_ms if wanted else None)

    def search_begins(self, orders: Iterable[ClaimOrder]) -> object:
        """Returns the mark of this claim, for `search_ends`."""
        mark = object()
        for order in orders:
            self._searches[order.queue] = mark
        return mark

    def search_ends(
        self, mark: object, orders: Sequence[ClaimOrder], results: Sequence[Claimed | PinLaterError], now_s: float
    ) -> None:
        """`results`: of the orders; none if the claim failed. `now_s`: when it began."""
        mine = [self._searches.get(order.queue) is mark for order in orders]
        for order, is_mine in zip(orders, mine, strict=True):
            if is_mine:
                self._searches.pop(order.queue, None)
        for order, is_mine, result in zip(orders, mine, results, strict=False):
            if is_mine and order.from_memory and isinstance(result, Claimed) and _found_all(order, result):
                if len(self._found) >= _QUEUES_MAX:
                    self._found.clear()
                self._found[order.queue] = _Found(result.next_due_ms, now_s)

    @contextmanager
    def change(self, queues: Sequence[str]) -> Iterator[None]:
        """Around work after which jobs of these queues may be due; of any queue if none is named."""
        self.changed(queues)
        try:
            yield
        finally:
            self.changed(queues)

    def changed(self, queues: Sequence[str]) -> None:
        """Jobs of these queues may be due now; of any queue if none is named."""
        if not self._found and not self._searches:
            return
        for queue in queues or [*self._found, *self._searches]:
            self._found.pop(queue, None)
            self._searches.pop(queue, None)


def _found_all(order: ClaimOrder, claimed: Claimed) -> bool:
    """Whether no job is due any more: a call got fewer jobs than it wanted, and not because they are large."""
    wanted = sum([max(0, call.limit) for call in order.calls])
    got = sum([len(jobs) for jobs in claimed.jobs])
    return got < wanted and not claimed.cut_short and not claimed.expired
