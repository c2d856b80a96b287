"""Which server sent a request with a key to which shard, and whether that explains why two shards have stored it.

The server that chooses the shard decides this, and not the owner of the queue, which stores the request.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from typing import NamedTuple


class EnqueueTry(NamedTuple):
    """A request on its way to a shard. `server`: the process that chose the shard. `looked_from_s`: for a repeat, since when that server
    has looked for an earlier attempt; None for a first attempt."""

    server: str
    sent_s: float
    looked_from_s: float | None


class StoredCopy(NamedTuple):
    """A request as one shard has stored it. `tries`: those that were sent to that shard."""

    shard: str
    stored_at_s: float
    tries: Sequence[EnqueueTry]


def was_overtaken(copies: Sequence[StoredCopy]) -> bool:
    """Returns whether repeats overtook the first attempt, which the guarantees page names: through another server, on another shard."""
    if len({copy.shard for copy in copies}) < len(copies):
        return False
    by_time = sorted(copies, key=lambda copy: copy.stored_at_s)
    possible = [[each for each in copy.tries if each.sent_s <= copy.stored_at_s] for copy in by_time]
    return any(
        all(
            _may_not_know(earlier, copy.stored_at_s, later)
            for (copy, earlier), (_, later) in combinations(zip(by_time, tries, strict=True), 2)
        )
        for tries in product(*possible)
    )


def _may_not_know(earlier: EnqueueTry, stored_at_s: float, later: EnqueueTry) -> bool:
    """Returns whether `later` may be stored although `earlier` was, at that time: a repeat finds what was stored before it looked, and a
    server knows its own requests."""
    if earlier.server == later.server:
        return False
    if later.looked_from_s is None:
        return earlier.looked_from_s is not None
    return later.looked_from_s <= stored_at_s
