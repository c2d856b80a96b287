"""Balances the work of the owners: a pure function of the owners and of the work on each slice.

`plan` gives each server the same number of slices. If one server owns the slices of several busy queues, it works more than the others.
Then it exchanges a busy slice of a shard for a quiet one of the same shard. So each server keeps as many slices of as many shards as
before, and a plan of the result changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from pinlater.server.cluster.ownership.work import Work
from pinlater.server.storage.values import NO_OWNER

# A server with at least the first share of the mean gives some work away, if that takes at least the second share of the mean off it.
_BUSY_SHARE = 1.25
_WORTH_SHARE = 0.1
# Jobs in a minute. A server that works less than that does not notice it, and gives nothing away.
_WORK_MIN = 6_000
_EXCHANGES_MAX = 4


class _Exchange(NamedTuple):
    """`busier`: the work of the busier of the two servers after the exchange."""

    busier: int
    shard: str
    given: int
    taken: int


def even_out(owners: Mapping[str, Sequence[str]], work: Iterable[Work]) -> dict[str, list[str]]:
    """The owners by shard, after at most four exchanges; each takes a slice from the server with the most work. `work`: of all servers."""
    evened = {name: list(by_slice) for name, by_slice in sorted(owners.items())}
    slices = _added_up(evened, work)
    for _ in range(_EXCHANGES_MAX):
        best = _best_exchange(evened, slices)
        if best is None:
            break
        by_slice = evened[best.shard]
        by_slice[best.given], by_slice[best.taken] = by_slice[best.taken], by_slice[best.given]
    return evened


def _added_up(owners: Mapping[str, Sequence[str]], work: Iterable[Work]) -> Mapping[str, Sequence[int]]:
    total = {name: [0] * len(by_slice) for name, by_slice in owners.items()}
    for by_shard in work:
        for name in by_shard.keys() & total.keys():
            for index, jobs in by_shard[name].items():
                total[name][index] += jobs
    return total


def _best_exchange(owners: Mapping[str, Sequence[str]], work: Mapping[str, Sequence[int]]) -> _Exchange | None:
    """Returns the best exchange, or None if none is worth it."""
    servers = {owner: 0 for by_slice in owners.values() for owner in by_slice if owner != NO_OWNER}
    for name, by_slice in owners.items():
        for owner, jobs in zip(by_slice, work[name], strict=True):
            if owner != NO_OWNER:
                servers[owner] += jobs
    if len(servers) < 2:
        return None
    mean = sum(servers.values()) / len(servers)
    busiest = max(sorted(servers), key=lambda server: servers[server])
    if servers[busiest] < max(_WORK_MIN, _BUSY_SHARE * mean):
        return None
    best = min(_exchanges(owners, work, servers, busiest), default=None)
    worth = servers[busiest] - _WORTH_SHARE * mean
    return best if best is not None and best.busier <= worth else None


def _exchanges(
    owners: Mapping[str, Sequence[str]], work: Mapping[str, Sequence[int]], servers: Mapping[str, int], busiest: str
) -> Iterable[_Exchange]:
    for name, by_slice in owners.items():
        jobs = work[name]
        own = [index for index, owner in enumerate(by_slice) if owner == busiest and jobs[index]]
        others = [index for index, owner in enumerate(by_slice) if owner not in {busiest, NO_OWNER}]
        for given, taken in product(own, others):
            less = jobs[given] - jobs[taken]
            if less > 0:
                yield _Exchange(max(servers[busiest] - less, servers[by_slice[taken]] + less), name, given, taken)
