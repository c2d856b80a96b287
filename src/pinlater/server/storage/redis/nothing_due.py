"""Queues in which a claim has just left nothing that is due: the next claim there needs no call of Redis.

A server remembers this only for queues that it owns, and forgets it whenever it changes a queue so that a job may be due, both before and
after the change. Jobs of other servers are found by a claim once a second, or once in three seconds while all other servers report no
changes on the shard. So this is a memory that makes polling an empty queue cheap; the jobs of a claim always come from Redis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from pinlater.domain.descriptor import I64_MAX
from pinlater.domain.errors import PinLaterError
from pinlater.server.storage.redis.claiming import FoundJobs
from pinlater.server.storage.values import Claimed, ClaimOrder

# How long after a claim its result is trusted.
TRUSTED_S = 1.0
# The same while all other servers report that they have changed nothing since. A server that this one does not know yet reports nothing.
TRUSTED_UNCHANGED_S = 3.0
_OTHERS_KEPT_S = 0.1
_QUEUES_MAX = 20_000


class Search(NamedTuple):
    """A claim: when it began, and what other servers had changed by then."""

    began_s: float
    others: Hashable | None


class _Found(NamedTuple):
    next_due_ms: int | None
    search: Search


class NothingDue:
    """Remembers, by the name of the queue, that nothing is due. Times in milliseconds of the shard's clock except for `now_s`, which is
    monotonic, in seconds.

    `others()`: another value after another server has changed something on the shard, or None while that is not known.
    `claims`: how many claims, of one queue each, for any number of calls, were answered without a call of Redis.
    """

    __slots__ = ("_asked_s", "_found", "_known", "_others", "_searches", "claims")

    def __init__(self, others: Callable[[], Hashable | None]) -> None:
        self._others = others
        self._known: Hashable | None = None  # the others' changes when that was asked
        self._asked_s = -math.inf
        self._found: dict[str, _Found] = {}
        # By queue, the newest claim under way, unless the queue has changed since it began.
        self._searches: dict[str, Search] = {}
        self.claims = 0

    def answer(self, order: ClaimOrder, now_ms: int, now_s: float) -> Claimed | None:
        """Returns what a claim would get: no jobs. None if Redis has to be queried."""
        found = self._found.get(order.queue)
        if found is None or not order.from_memory:
            return None
        until_ms = I64_MAX if found.next_due_ms is None else found.next_due_ms
        if now_ms >= until_ms or not self._is_trusted(found.search, now_s):
            del self._found[order.queue]
            return None
        self.claims += 1
        wanted = any([call.limit > 0 for call in order.calls])  # noqa: C419 a list is quicker
        return Claimed([[] for _ in order.calls], found.next_due_ms if wanted else None)

    def _is_trusted(self, search: Search, now_s: float) -> bool:
        age_s = now_s - search.began_s
        if age_s < TRUSTED_S:
            return True
        return age_s < TRUSTED_UNCHANGED_S and search.others is not None and search.others == self._changed_by(now_s)

    def _changed_by(self, now_s: float) -> Hashable | None:
        """Returns the others' changes as of a moment ago, because reading them takes longer than the rest of a poll."""
        if now_s - self._asked_s >= _OTHERS_KEPT_S:
            self._known, self._asked_s = self._others(), now_s
        return self._known

    def search_begins(self, orders: Iterable[ClaimOrder], now_s: float) -> Search:
        """Returns the mark of this claim, for `search_ends`."""
        mark = Search(now_s, self._changed_by(now_s))
        for order in orders:
            self._searches[order.queue] = mark
        return mark

    def search_ends(
        self, mark: Search, orders: Sequence[ClaimOrder], results: Sequence[FoundJobs | PinLaterError]
    ) -> None:
        """`results`: of the orders; none if the claim failed."""
        mine = [self._searches.get(order.queue) is mark for order in orders]
        for order, is_mine in zip(orders, mine, strict=True):
            if is_mine:
                self._searches.pop(order.queue, None)
        for order, is_mine, result in zip(orders, mine, results, strict=False):
            if is_mine and order.from_memory and isinstance(result, FoundJobs) and not (result.head or result.is_cut):
                if len(self._found) >= _QUEUES_MAX:
                    self._found.clear()
                self._found[order.queue] = _Found(result.next_due_ms, mark)

    @contextmanager
    def change(self, queues: Sequence[str]) -> Iterator[None]:
        """Surrounds work after which jobs of these queues, or of any queue if none is named, may be due."""
        self.changed(queues)
        try:
            yield
        finally:
            self.changed(queues)

    def changed(self, queues: Sequence[str]) -> None:
        """Notes that jobs of these queues, or of any queue if none is named, may be due now."""
        if not self._found and not self._searches:
            return
        for queue in queues or [*self._found, *self._searches]:
            self._found.pop(queue, None)
            self._searches.pop(queue, None)
