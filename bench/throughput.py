"""The rows about rates and commit latency: enqueues and claims, one by one and fifty at a time."""

from __future__ import annotations

from dataclasses import replace

from bench.bare import ROWS_PER_BATCH
from bench.benchmark_run import BODY, QUEUE, BenchmarkRun, MeasuredRun
from bench.raw_client import RawClient
from bench.results import RowResult, median_of
from bench.stores import BenchmarkStore


def enqueue_single(place: BenchmarkRun) -> RowResult:
    """One job a request, 64 connections, beside the wire and a bare loop of single-row commits."""
    runs = []
    for _ in range(place.sizes.repeats):
        bare_rate = place.bare(1)
        wire, ours = _beside_wire(place, "enqueue", 64, 1)
        run = {**ours.facts("enqueue"), **wire.facts("wire"), "bare_single_rate": bare_rate}
        run["wire_ratio"] = ours.report.rate / wire.report.rate
        run["bare_single_ratio"] = ours.report.rate / bare_rate
        runs.append(run)
    row = _row(place, "enqueue_single", "enqueue, one job a request, 64 connections", runs)
    row.references["flush_ms"] = place.flush_ms()
    return row


def enqueue_batched(place: BenchmarkRun) -> RowResult:
    """Fifty jobs a request, 32 connections, beside bare inserts of 500 rows."""
    runs = []
    for _ in range(place.sizes.repeats):
        bare_rate = place.bare(ROWS_PER_BATCH)
        wire, ours = _beside_wire(place, "enqueue", 32, 50)
        run = {**ours.facts("enqueue"), **wire.facts("wire"), "bare_rate": bare_rate}
        run["bare_ratio"] = ours.report.rate / bare_rate
        runs.append(run)
    return _row(place, "enqueue_batched", "enqueue, fifty a request, 32 connections", runs)


def request_keys(place: BenchmarkRun) -> RowResult:
    """What a request key costs, one job a request, 64 connections: the dearest case, one narrow row more for each job."""
    runs = []
    for _ in range(place.sizes.repeats):
        with place.pinlater() as server:
            plain = place.load(server, place.plan(server, "enqueue", 64, 1))
        with place.pinlater() as server:
            keyed = place.load(server, place.plan(server, "enqueue with key", 64, 1))
        runs.append(
            {
                **keyed.facts("keyed"),
                "plain_rate": plain.report.rate,
                "keyed_ratio": keyed.report.rate / plain.report.rate,
            }
        )
    return _row(place, "request_keys", "enqueue with a request key, one job a request, against without", runs)


def ordering_keys(place: BenchmarkRun) -> RowResult:
    """What an ordering key costs: CPU of server and database for a job with one of ten thousand keys, over that for a job without."""
    runs = []
    for _ in range(place.sizes.repeats):
        run = {}
        for name, connections, jobs in (("single", 64, 1), ("batched", 32, 50)):
            with place.pinlater() as server:
                plain = place.load(server, place.plan(server, "enqueue", connections, jobs))
            with place.pinlater() as server:
                ordered = place.load(server, place.plan(server, "enqueue ordered", connections, jobs))
            run[f"enqueue_{name}_cpu_ratio"] = _all_cpu(ordered) / _all_cpu(plain)
            waiting = getattr(place.sizes, f"claim_jobs_{name}")
            plain = claim_run(place, connections, jobs, waiting)
            ordered = claim_run(place, connections, jobs, waiting, ordered=True)
            run[f"claim_{name}_cpu_ratio"] = _all_cpu(ordered) / _all_cpu(plain)
        runs.append(run)
    return _row(place, "ordering_keys", "CPU of a job with an ordering key over one without", runs)


def claim_single(place: BenchmarkRun) -> RowResult:
    """Claim and ack, one job a request (two requests a job), 64 connections, beside the wire."""
    runs = []
    for _ in range(place.sizes.repeats):
        with place.wire() as server:
            wire = place.load(server, place.plan(server, "claim", 64, 1))
        ours = claim_run(place, 64, 1, place.sizes.claim_jobs_single)
        run = {**ours.facts("claim"), **wire.facts("wire"), "wire_ratio": ours.report.rate / wire.report.rate}
        runs.append(run)
    return _row(place, "claim_single", "claim + ack, one a request, 64 connections", runs)


def claim_batched(place: BenchmarkRun) -> RowResult:
    """Claim and ack, fifty a request, 32 connections; beside one at a time and enqueues by fifty, measured in turn with it."""
    runs = []
    for _ in range(place.sizes.repeats):
        with place.pinlater() as server:
            enqueues = place.load(server, place.plan(server, "enqueue", 32, 50))
        single = claim_run(place, 64, 1, place.sizes.claim_jobs_single)
        ours = claim_run(place, 32, 50, place.sizes.claim_jobs_batched)
        ratio = ours.report.rate / single.report.rate
        runs.append(
            {
                **ours.facts("claim"),
                "single_rate": single.report.rate,
                "single_ratio": ratio,
                "enqueue_ratio": ours.report.rate / enqueues.report.rate,
            }
        )
    return _row(place, "claim_batched", "claim + ack, fifty a request, 32 connections", runs)


def fail_single(place: BenchmarkRun) -> RowResult:
    """Claim and failed ack, one job a request, 64 connections, in turn with acks that succeed."""
    return _failures(place, "fail_single", "claim + failed ack, one a request, 64 connections", 64, 1)


def fail_batched(place: BenchmarkRun) -> RowResult:
    """The same with fifty a request, 32 connections."""
    return _failures(place, "fail_batched", "claim + failed ack, fifty a request, 32 connections", 32, 50)


def steady(place: BenchmarkRun) -> RowResult:
    """Commit latency at a steady rate, one job a request, from when each request was due (open loop)."""
    sizes = place.sizes
    runs = []
    for _ in range(max(1, sizes.repeats - 2)):
        with place.pinlater() as server:
            plan = place.plan(server, "enqueue", 64, 1)
            ours = place.load(server, replace(plan, rate=sizes.steady_rate, seconds=sizes.steady_seconds))
        with place.wire() as server:
            plan = place.plan(server, "enqueue", 64, 1)
            wire = place.load(server, replace(plan, rate=sizes.steady_rate, seconds=min(2.0, sizes.steady_seconds)))
        runs.append({**ours.facts("commit"), **wire.facts("wire")})
    return _row(place, "steady", f"commit latency at a steady {sizes.steady_rate:,.0f} jobs/s", runs)


def claim_run(
    place: BenchmarkRun,
    connections: int,
    jobs_per_request: int,
    jobs: int,
    store: BenchmarkStore | None = None,
    kind: str = "claim",
    partitions: int = 1,
    *,
    ordered: bool = False,
) -> MeasuredRun:
    """Fills a new store with `jobs` waiting jobs, then claims and acks most of them; the rate ends before the queue runs dry."""
    with place.pinlater(store, partitions=partitions) as server:
        with RawClient(server.port) as client:
            client.enqueue_many(QUEUE, BODY, jobs, ordered=ordered)
        plan = place.plan(server, kind, connections, jobs_per_request)
        run = place.load(
            server,
            replace(plan, seconds=60.0, warmup_seconds=min(0.1, place.sizes.warmup_seconds), jobs_max=int(jobs * 0.9)),
        )
    if not run.report.jobs:
        raise RuntimeError(f"no job was claimed and acked: {run.report}")
    return run


def _all_cpu(run: MeasuredRun) -> float:
    return (run.server_cpu_share + run.database_cpu_share) / run.report.rate


def _failures(place: BenchmarkRun, name: str, title: str, connections: int, jobs_per_request: int) -> RowResult:
    jobs = place.sizes.claim_jobs_single if jobs_per_request == 1 else place.sizes.claim_jobs_batched
    runs = []
    for _ in range(place.sizes.repeats):
        succeeded = claim_run(place, connections, jobs_per_request, jobs)
        failed = claim_run(place, connections, jobs_per_request, jobs, kind="fail")
        runs.append({**failed.facts("fail"), "success_cpu_ratio": failed.cpu_per_job() / succeeded.cpu_per_job()})
    return _row(place, name, title, runs)


def _beside_wire(
    place: BenchmarkRun, kind: str, connections: int, jobs_per_request: int
) -> tuple[MeasuredRun, MeasuredRun]:
    with place.wire() as server:
        wire = place.load(server, place.plan(server, kind, connections, jobs_per_request))
    with place.pinlater() as server:
        ours = place.load(server, place.plan(server, kind, connections, jobs_per_request))
    return wire, ours


def _row(place: BenchmarkRun, name: str, title: str, runs: list[dict[str, float]]) -> RowResult:
    """Sorts medians into figures of ours and references."""
    medians = median_of(runs)
    references = {key: value for key, value in medians.items() if key.startswith(("wire_", "bare_", "single_"))}
    ratios = {key for key in references if key.endswith("_ratio")}
    figures = {key: value for key, value in medians.items() if key not in references or key in ratios}
    references = {key: value for key, value in references.items() if key not in ratios}
    return RowResult(name, title, place.goals(name), figures, references, runs=list(runs))
