"""Which promises a run broke: judged by what clients saw, and by the shards' data at its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pinlater.simulation.cluster import SimulatedCluster
from pinlater.simulation.enqueue_tries import StoredCopy, was_overtaken
from pinlater.simulation.history import History, PromiseKind, check


class RunVerdict(NamedTuple):
    """`overtaken`: jobs stored twice by a repeat that overtook its first attempt: that breaks no promise, but is worth a look."""

    broken: Sequence[str]
    overtaken: int


def judge(cluster: SimulatedCluster, history: History, *, failures_allowed: bool = False) -> RunVerdict:
    """Judges a run. Call it once every job has ended. `failures_allowed`: whether a job may be FAILED."""
    rows = [(store.name, row) for store in cluster.stores for row in store.jobs()]
    final = {row.job.descriptor: int(row.job.state) for _, row in rows}
    slack_ns = cluster.clocks_differ_ms() * 1_000_000
    found = check(history, final, failures_allowed=failures_allowed, slack_ns=slack_ns)
    bodies = {row.job.descriptor: row.job.body or b"" for _, row in rows}
    copies: dict[bytes, list[tuple[str, int]]] = {}
    for shard, row in rows:
        copies.setdefault(row.job.body or b"", []).append((shard, row.key.id))
    # A body belongs to one job of one request, so two jobs with one body come from a request that was stored twice.
    twice = {body: places for body, places in copies.items() if len(places) > 1}
    excused = {body for body, places in twice.items() if was_overtaken(_copies(cluster, body, places))}
    broken = [
        f"{each.kind.name} {each.descriptor} {each.text}"
        for each in found
        if not (each.kind is PromiseKind.DOUBLED and bodies.get(each.descriptor) in excused)
    ]
    broken += [f"STORED {len(places)} times: {body.decode()}" for body, places in twice.items() if body not in excused]
    doubled = [key for store in cluster.stores for key in store.doubled_keys]
    broken += [f"DUPLICATES two unfinished jobs had the unique key {key}" for key in doubled]
    broken += [f"COMPLAINT {text}" for text in cluster.timeline.complaints]
    return RunVerdict(broken, len(excused))


def _copies(cluster: SimulatedCluster, body: bytes, places: Sequence[tuple[str, int]]) -> Sequence[StoredCopy]:
    stores = {store.name: store for store in cluster.stores}
    return [
        StoredCopy(shard, stores[shard].stored_at_s[job_id], stores[shard].tries.get(body, ()))
        for shard, job_id in places
    ]
