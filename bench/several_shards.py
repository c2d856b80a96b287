"""The rows about several shards: what a second database server brings, and what idle shards cost."""

from __future__ import annotations

import threading

from bench.benchmark_run import BenchmarkRun, MeasuredRun
from bench.results import RowResult, median_of
from bench.throughput import claim_run
from bench.waiting import parked

SHARDS = 4
# After the queues were made each sweep looks once more whether that left it anything to do; the slowest comes every five seconds.
CALM_SECONDS = 6.0
# The name of a load, its connections, and its jobs a request.
_LOADS = (("single", 64, 1), ("batched", 32, 50))


def two_shards(place: BenchmarkRun) -> RowResult:
    """The four loads on two shards, each on a database server of its own, over those on one; in turn."""
    runs: list[dict[str, float]] = []
    for _ in range(place.sizes.repeats):
        run: dict[str, float] = {}
        for name, connections, per_request in _LOADS:
            for work, measure in (("enqueue", _enqueue), ("claim", _claim)):
                one = measure(place, 1, connections, per_request)
                two = measure(place, 2, connections, per_request)
                run[f"{work}_{name}_ratio"] = two.report.rate / one.report.rate
                run[f"{work}_{name}_rate"] = two.report.rate
                run[f"{work}_{name}_server_cpu"] = two.server_cpu_share
                run[f"{work}_{name}_database_cpu"] = two.database_cpu_share
        runs.append(run)
    title = "two shards on two database servers, against one"
    return RowResult("two_shards", title, place.goals("two_shards"), median_of(runs), runs=list(runs))


def _enqueue(place: BenchmarkRun, shards: int, connections: int, per_request: int) -> MeasuredRun:
    store = place.mysql.spread(shards, servers=shards)
    with place.pinlater(store, partitions=shards) as server:
        run = place.load(server, place.plan(server, "enqueue", connections, per_request))
    store.remove()
    return run


def _claim(place: BenchmarkRun, shards: int, connections: int, per_request: int) -> MeasuredRun:
    sizes = place.sizes
    store = place.mysql.spread(shards, servers=shards)
    jobs = sizes.claim_jobs_single if per_request == 1 else sizes.claim_jobs_batched
    run = claim_run(place, connections, per_request, jobs, store, partitions=shards)
    store.remove()
    return run


def idle_shards(place: BenchmarkRun) -> RowResult:
    """Statements that four shards, databases of one server, are sent while long polls wait and nothing happens."""
    sizes = place.sizes
    store = place.mysql.spread(SHARDS)
    pause = threading.Event()
    with place.pinlater(store) as server, parked(server, sizes.idle_waits) as before_mb:
        pause.wait(min(CALM_SECONDS, sizes.idle_shards_seconds))
        cpu = server.cpu_seconds()
        _, sent = place.mysql.statements_during(lambda: pause.wait(sizes.idle_shards_seconds))
        figures = {
            "statements_per_s_shard": sent / sizes.idle_shards_seconds / SHARDS,
            "server_mb": server.memory_mb(),
            "server_cpu": (server.cpu_seconds() - cpu) / sizes.idle_shards_seconds,
        }
    store.remove()
    title = f"{sizes.idle_waits:,} idle waiting dequeues on {sizes.idle_waits:,} queues of {SHARDS} shards"
    return RowResult(
        "idle_shards",
        title,
        place.goals("idle_shards"),
        figures,
        {"server_mb_before": before_mb},
        runs=[dict(figures)],
    )
