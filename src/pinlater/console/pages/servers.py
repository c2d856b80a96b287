"""The servers and shards behind the console, as the server that answers knows them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from pinlater.console.endpoints.servers import (
    ClusterServerItem,
    ClusterShardItem,
    ShardDetailsItem,
    ShardDrainItem,
    ShardJobsItem,
    ShardLaneItem,
    get_cluster,
    get_server,
)
from pinlater.console.pages.page import PageCall, PageView

LANES = ("insert", "claim", "finish", "extend", "checkpoint", "release")
KINDS = {
    "timeout": "it did not answer in time",
    "refused": "it refused the server",
    "connection": "the connection or a call failed",
    "internal": "an internal error",
}
"""The kinds of failures in words."""
_NOTHING = ShardLaneItem(
    kind="", waiting=0, running=0, running_ms=None, calls=0, requests=0, mean_ms=None, slowest_ms=None
)


class ShardMark(NamedTuple):
    """A label of a shard. `kind`: its class in the style sheet. `why`: a sentence, or empty."""

    word: str
    kind: str
    why: str = ""


class OwnedSlices(NamedTuple):
    """What a server owns of a shard. `owner`: '' for no server. `slices`, `leaving`: as ranges; the latter are about to move."""

    owner: str
    number: int
    slices: str
    leaving: str


class DrainProgress(NamedTuple):
    """`live`: jobs that wait or run. `done`: percent of those that there were at first, None if these are unknown. `is_empty`: according
    to a count a moment ago."""

    drain: ShardDrainItem
    live: int | None
    done: float | None
    is_empty: bool


class ShardRow(NamedTuple):
    """A shard. `failure`: the text or kind of the last failed call or probe, or empty. `lanes`: in the order of `LANES`. `drain`:
    None if the shard accepts enqueues.
    """

    shard: ClusterShardItem
    details: ShardDetailsItem | None
    failure: str
    marks: Sequence[ShardMark]
    jobs: ShardJobsItem | None
    lanes: Sequence[ShardLaneItem]
    drain: DrainProgress | None
    owned: Sequence[OwnedSlices]


class ServerRow(NamedTuple):
    """A server. `owns`: slices of all shards; `leaving`: those of them that are about to get another owner."""

    server: ClusterServerItem
    owns: int
    leaving: int


async def show(call: PageCall) -> PageView:
    """Shows the page. Makes two calls. `draining`: the shards that accept no enqueues; `detailed`: those whose state the server reports;
    `remembering`: those whose due jobs the server remembers.
    """
    server = await call.api.ask(get_server)
    cluster = await call.api.ask(get_cluster)
    shards = [shard_row(shard) for shard in cluster.shards]
    detailed = [row for row in shards if row.details is not None]
    return PageView(
        "Servers and shards",
        server=server,
        cluster=cluster,
        servers=[_server_row(each, shards) for each in cluster.servers],
        shards=shards,
        draining=[(row, row.drain) for row in shards if row.drain is not None],
        detailed=detailed,
        remembering=[(row, row.details.memory) for row in detailed if row.details and row.details.memory],
    )


def shard_row(shard: ClusterShardItem) -> ShardRow:
    """Returns the view of a shard."""
    details = shard.details
    lanes = {} if details is None else {lane.kind: lane for lane in details.lanes}
    return ShardRow(
        shard,
        details,
        "" if details is None else failure_of(details),
        list(_marks(shard, details)),
        None if details is None else details.jobs,
        [lanes.get(kind, _NOTHING) for kind in LANES],
        None if details is None else _progress(details),
        owned_slices(shard),
    )


def failure_of(details: ShardDetailsItem) -> str:
    """Returns the text of the last failure, or only its kind for visitors who may not see the text; '' from older servers."""
    return details.failure or KINDS.get(details.failure_kind, details.failure_kind)


def _marks(shard: ClusterShardItem, details: ShardDetailsItem | None) -> Iterable[ShardMark]:
    if not shard.in_reach:
        yield ShardMark("unreachable", "failed", "" if details is None else failure_of(details))
    elif details is not None and details.stalled:
        yield ShardMark("slow", "pending", "A call takes too long just now.")
    else:
        yield ShardMark("reachable", "succeeded")
    if details is not None and details.full:
        yield ShardMark("full", "failed", details.full)
    if details is not None and not details.takes_enqueues:
        leaving = details.drain is not None and details.drain.leaving
        yield ShardMark("leaving" if leaving else "draining", "in_progress", "It takes no enqueues.")


def _progress(details: ShardDetailsItem) -> DrainProgress | None:
    drain, jobs = details.drain, details.jobs
    if drain is None:
        return None
    live = None if jobs is None else jobs.due + jobs.scheduled + jobs.in_progress
    done = None
    if live is not None and drain.live_at_first is not None:
        at_most = max(drain.live_at_first, live)
        done = round(100 * (at_most - live) / at_most, 1) if at_most else 100.0
    return DrainProgress(drain, live, done, live == 0 and not details.probing)


def owned_slices(shard: ClusterShardItem) -> Sequence[OwnedSlices]:
    """Returns the slices by owner, in the order of the owners' first slices."""
    by_owner: dict[str, list[int]] = {}
    for index, owner in enumerate(shard.owners):
        by_owner.setdefault(owner, []).append(index)
    moving = set(shard.misplaced)
    return [
        OwnedSlices(owner, len(owned), ranges(owned), ranges([index for index in owned if index in moving]))
        for owner, owned in by_owner.items()
    ]


def ranges(numbers: Sequence[int]) -> str:
    """Returns ascending numbers as text: `0–3, 7`."""
    runs = [[number for _, number in run] for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    return ", ".join(f"{run[0]}" if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


def _server_row(server: ClusterServerItem, shards: Sequence[ShardRow]) -> ServerRow:
    owns = leaving = 0
    for row in shards if server.address else ():
        for index, owner in enumerate(row.shard.owners):
            if owner == server.address:
                owns += 1
                leaving += index in row.shard.misplaced
    return ServerRow(server, owns, leaving)
