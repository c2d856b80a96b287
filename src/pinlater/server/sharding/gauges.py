"""The gauges of each shard in /metrics. Read at each request for the page, from values that are already known; no I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from pinlater.domain.queue import PriorityCounts, QueueCounts
from pinlater.server.sharding.shard_lanes import ShardLanes
from pinlater.server.sharding.shards import Shards
from pinlater.server.storage.values import FIGURES
from pinlater.server.telemetry.metrics import Metrics

Counted = Callable[[], Mapping[str, Sequence[QueueCounts]]]


def show_shards(shards: Shards, metrics: Metrics, counted: Counted = dict) -> None:
    """Gauges of all shards of the map, including those that come later. `counted`: the latest job counts of each."""
    _show_use(shards, metrics)
    _show_jobs(shards, metrics, counted)
    _show_lanes(shards, metrics)
    _show_figures(shards, metrics)


def _show_use(shards: Shards, metrics: Metrics) -> None:
    def each(read: Callable[[ShardLanes], float]) -> Callable[[], Mapping[str, float]]:
        return lambda: {shard.name: float(read(shard)) for shard in shards}

    metrics.labelled_gauge(
        "shard-healthy-",
        each(lambda shard: shard.healthy),
        prometheus="pinlater_shard_healthy",
        label="shard",
        help="1 while the shard is in use, 0 while it is unreachable",
        join="min",
    )
    metrics.labelled_gauge(
        "shard-takes-enqueues-",
        each(lambda shard: shard.takes_enqueues),
        prometheus="pinlater_shard_takes_enqueues",
        label="shard",
        help="1 where the shard takes enqueues, 0 where it only drains",
        join="min",
    )
    metrics.labelled_gauge(
        "shard-full-",
        each(lambda shard: bool(shard.fullness.reason)),
        prometheus="pinlater_shard_full",
        label="shard",
        help="1 from an enqueue that the shard refuses as full until it has stored jobs and refused none for 10 s",
        join="max",
    )
    metrics.gauge(
        "unique-keys-refused",
        lambda: float(bool(shards.unique.refused_because_of)),
        prometheus="pinlater_unique_keys_refused",
        help="1 while the server refuses all jobs with a unique key, because a shard is unreachable whose keys it does not know",
        join="max",
    )


def _show_jobs(shards: Shards, metrics: Metrics, counted: Counted) -> None:
    """Shows the jobs of reachable shards: of the others only old numbers are known."""

    def rows(read: Callable[[PriorityCounts], int]) -> Callable[[], Mapping[str, float]]:
        def sums() -> Mapping[str, float]:
            in_reach = {shard.name for shard in shards.in_reach()}
            return {
                name: sum(read(row.counts) for row in found) for name, found in counted().items() if name in in_reach
            }

        return sums

    metrics.labelled_gauge(
        "shard-jobs-live-",
        rows(lambda counts: counts.pending + counts.in_progress),
        prometheus="pinlater_shard_jobs_live",
        label="shard",
        help="Jobs that wait or run, by shard; absent while it is unreachable",
        join="max",
    )
    metrics.labelled_gauge(
        "shard-jobs-finished-",
        rows(lambda counts: counts.succeeded + counts.failed),
        prometheus="pinlater_shard_jobs_finished",
        label="shard",
        help="Finished jobs that are still kept, by shard; absent while it is unreachable",
        join="max",
    )
    metrics.labelled_gauge(
        "shard-strays-",
        partial(_strays, shards, counted),
        prometheus="pinlater_shard_strays",
        label="shard",
        help="Jobs that wait or run on a shard that is no partition of their queue, as counted last",
        join="max",
    )


def _strays(shards: Shards, counted: Counted) -> Mapping[str, float]:
    return {
        name: sum(
            row.counts.pending + row.counts.in_progress for row in found if not shards.is_partition(row.queue, name)
        )
        for name, found in counted().items()
        if len(shards) > 1
    }


def _show_lanes(shards: Shards, metrics: Metrics) -> None:
    def lanes(attribute: str) -> Callable[[], Mapping[str, float]]:
        return lambda: {lane.name: getattr(lane, attribute) for shard in shards for lane in shard.lanes}

    metrics.labelled_gauge(
        "lane-length-",
        lanes("length"),
        prometheus="pinlater_lane_length",
        label="lane",
        help="Jobs that wait or run in a lane to a shard",
    )
    metrics.labelled_gauge(
        "lane-calls-",
        lanes("calls"),
        prometheus="pinlater_lane_calls",
        label="lane",
        help="Calls of the store by a lane since the start",
    )
    metrics.labelled_gauge(
        "lane-requests-",
        lanes("items"),
        prometheus="pinlater_lane_requests",
        label="lane",
        help="Requests that these calls carried",
    )
    metrics.labelled_gauge(
        "lane-busy-seconds-",
        lanes("busy_s"),
        prometheus="pinlater_lane_busy_seconds",
        label="lane",
        help="How long these calls took together",
    )


def _show_figures(shards: Shards, metrics: Metrics) -> None:
    """Adds the figures that the stores count themselves."""

    def figures(name: str) -> Callable[[], Mapping[str, float]]:
        def read() -> Mapping[str, float]:
            counts = {shard.name: shard.unguarded.figures() for shard in shards}
            return {shard: count[name] for shard, count in counts.items() if name in count}

        return read

    for figure, meaning in FIGURES.items():
        metrics.labelled_gauge(
            f"store-{figure.replace('_', '-')}-",
            figures(figure),
            prometheus=f"pinlater_store_{figure}",
            label="shard",
            help=meaning,
        )
